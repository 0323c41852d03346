"""Calibration: recovers the curve that made the data, and says nothing it was not taught."""

import numpy as np
import pytest

from ragqa.errors import DamagedArtefact
from ragqa.reading.confidence import Calibration, Evidence, fit


def test_uncalibrated_is_the_raw_probability(tmp_path) -> None:
    assert Calibration.load(tmp_path).confidence(Evidence(0.73, 5.0, -2.0)) == pytest.approx(0.73)


def test_fit_recovers_the_true_probabilities() -> None:
    rng = np.random.default_rng(0)
    evidence = [
        Evidence(float(w), float(s), float(r))
        for w, s, r in zip(
            rng.uniform(0.01, 0.99, 20_000), rng.normal(5, 3, 20_000), rng.normal(0, 2, 20_000), strict=True
        )
    ]
    truth = np.array(
        [1 / (1 + np.exp(-(-1 + 0.8 * np.log(e.weight / (1 - e.weight)) + 0.5 * e.relevance))) for e in evidence]
    )
    right = (rng.uniform(size=len(truth)) < truth).tolist()
    fitted = fit(evidence, right, "made up")
    said = np.array([fitted.confidence(e) for e in evidence])
    assert np.abs(said - truth).max() < 0.05
    assert fitted.questions == 20_000


def test_saved_and_loaded(tmp_path) -> None:
    calibration = Calibration((0.1, 0.2, 0.3, 0.4), "data", 7)
    calibration.save(tmp_path)
    assert Calibration.load(tmp_path) == calibration
    (tmp_path / "calibration.json").write_text("{}")
    with pytest.raises(DamagedArtefact, match=r"calibration\.json"):
        Calibration.load(tmp_path)


def test_separable_data_stay_finite() -> None:
    evidence = [Evidence(0.9, 5, 5)] * 10 + [Evidence(0.1, -5, -5)] * 10
    fitted = fit(evidence, [True] * 10 + [False] * 10, "made up")
    assert fitted.confidence(evidence[0]) > 0.9 > 0.1 > fitted.confidence(evidence[-1])
