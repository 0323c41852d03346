"""Calibration: fitting, features, and files."""

import json
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipelines.common.recipe_calibration import cross_fit
from ragqa.artefacts.paths import get_weights_dir
from ragqa.errors import DamagedArtefact
from ragqa.reading.calibration import BASIC_FEATURES, SPAN_FEATURES, Calibration, Evidence, fit_calibration


def test_uncalibrated_is_the_raw_probability(tmp_path) -> None:
    assert Calibration.load(tmp_path).compute_confidence(Evidence(0.73, 5.0, -2.0)) == pytest.approx(0.73)


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
    fitted = fit_calibration(evidence, right, "made up")
    predicted = np.array([fitted.compute_confidence(e) for e in evidence])
    assert np.abs(predicted - truth).max() < 0.05
    assert fitted.answers == 20_000


def test_an_answer_with_count_two_weighs_as_two_answers() -> None:
    rng = np.random.default_rng(0)
    evidence = [Evidence(*rng.uniform(0.1, 0.9, 3)) for _ in range(40)]
    right = (rng.uniform(size=40) < [each.weight for each in evidence]).tolist()
    twice = fit_calibration(evidence, right, "made up", counts=[2] * 10 + [1] * 30)
    assert twice.coefficients == pytest.approx(
        fit_calibration([*evidence, *evidence[:10]], [*right, *right[:10]], "").coefficients
    )
    assert twice.answers == 40


def test_cross_fitting_predicts_each_half_from_the_other() -> None:
    """Odd answers are right if probable, even answers if improbable, so a fit on one half misjudges the other."""
    evidence = [Evidence(weight, 0, 0) for weight in (0.9, 0.8, 0.1, 0.2) for _ in range(10)]
    right = [(each.weight > 0.5) == bool(row % 2) for row, each in enumerate(evidence)]
    found = cross_fit(list(zip(evidence, right, strict=True)), "made up")
    assert (found.right == right).all() and ((found.confidence > 0.5) != found.right).all()
    interleaved = cross_fit(
        list(zip(evidence, right, strict=True)), "made up", parts=[row // 2 % 2 for row in range(40)]
    )
    assert interleaved.error < found.error


def test_features_match_a_computation_by_hand() -> None:
    evidence = Evidence(
        0.75,
        2.0,
        1.5,
        own_relevance=2.5,
        passages_read=1,
        lead=-99.0,
        behind_best=-1.0,
        best_ahead=1.25,
        passages_agreeing=3,
    )
    assert evidence.compute_features(BASIC_FEATURES).tolist() == pytest.approx([1, np.log(3), 2, 1.5])
    expected = [1, np.log(3), 2.5, 1, 0, -10, -1, 1.25, np.log(4)]
    assert evidence.compute_features(SPAN_FEATURES).tolist() == pytest.approx(expected)
    expected[3:5] = [0, np.log(10)]
    assert replace(evidence, passages_read=10).compute_features(SPAN_FEATURES).tolist() == pytest.approx(expected)


def test_a_calibration_is_saved_and_loaded(tmp_path) -> None:
    calibration = Calibration((0.1, 0.2), "data", 7, ("constant", "lead"), 0.3, 0.5)
    calibration.save(tmp_path)
    assert Calibration.load(tmp_path) == calibration


def test_files_of_the_first_version_keep_their_meaning(tmp_path) -> None:
    row = {"coefficients": [-1.1, 0.9, -0.14, 0.4], "fitted_on": "data", "questions": 7}
    (tmp_path / "calibration.json").write_text(json.dumps(row))
    found = Calibration.load(tmp_path)
    assert (found.threshold, found.prior, found.features, found.answers) == (0.2, 1.0, BASIC_FEATURES, 7)
    expected = 1 / (1 + np.exp(1.1 - 0.9 * np.log(3) + 0.14 * 5 - 0.4 * 2))
    assert found.compute_confidence(
        Evidence(0.75, 5.0, 2.0, own_relevance=9.0, lead=9.0, passages_agreeing=9)
    ) == pytest.approx(expected)


@pytest.mark.parametrize(
    "changed",
    [
        {"coefficients": None},
        {"coefficients": [1.0]},
        {"coefficients": [1.0, 2.0, 3.0, float("nan")]},
        {"features": ["constant", "span", "relevance", "colour"]},
        {"features": ["constant"]},
        {"threshold": 1.5},
        {"threshold": "low"},
        {"prior": float("inf")},
    ],
)
def test_a_damaged_file_is_named(changed: dict[str, Any], tmp_path) -> None:
    row = {"coefficients": [0.0, 1.0, 0.0, 0.0], "fitted_on": "data", "questions": 7}
    (tmp_path / "calibration.json").write_text(json.dumps({**row, **changed}))
    with pytest.raises(DamagedArtefact, match=r"calibration\.json"):
        Calibration.load(tmp_path)


def test_the_packaged_reader_is_calibrated() -> None:
    found = Calibration.load(get_weights_dir() / "reader")
    assert found.answers > 0 and 0 < found.threshold < 1


def test_separable_data_give_finite_coefficients() -> None:
    evidence = [Evidence(0.9, 5, 5)] * 10 + [Evidence(0.1, -5, -5)] * 10
    fitted = fit_calibration(evidence, [True] * 10 + [False] * 10, "made up")
    assert fitted.compute_confidence(evidence[0]) > 0.9 > 0.1 > fitted.compute_confidence(evidence[-1])


@pytest.mark.parametrize("content", ["[" * 100_000, '{"coefficients": [' + "9" * 400 + "]}"])
def test_a_hostile_file_is_named_in_a_short_message(content: str, tmp_path) -> None:
    (tmp_path / "calibration.json").write_text(content)
    with pytest.raises(DamagedArtefact, match=r"calibration\.json is damaged") as caught:
        Calibration.load(tmp_path)
    assert len(str(caught.value)) < len(str(tmp_path)) + 300


def test_huge_coefficients_give_a_confidence_without_a_warning() -> None:
    calibration = Calibration((1e308, 0.0, 0.0, 0.0))
    assert calibration.compute_confidence(Evidence(0.5, 0.0, 0.0)) == 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Calibration((0.0, 1e308, 1e308, 0.0)).compute_confidence(Evidence(0.9, 20.0, 0.0)) == 1.0
        # Without a limit on coefficients, the sum would be infinity minus infinity.
        assert Calibration((0.0, 0.0, 1e308, -1e308)).compute_confidence(Evidence(0.5, 20.0, 10.0)) == 1.0
