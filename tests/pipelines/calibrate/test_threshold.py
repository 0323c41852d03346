"""Threshold of declining: its choice by hand, and its effect on ``ragqa ask``."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import run

from pipelines.calibrate.conditions import ANSWERABLE, MISSED, OWN_PARAGRAPH, UNANSWERABLE
from pipelines.calibrate.fit import CalibrationRow, choose_decline_threshold
from pipelines.calibrate.threshold import choose_reader_threshold
from pipelines.common.recipe_calibration import CrossFit, install_calibration
from ragqa.reading.calibration import Calibration, Evidence
from tests.helpers import towns

NQ = Path("nq.jsonl")


def test_the_threshold_declines_a_twentieth_of_the_right_answers() -> None:
    confidences = np.arange(1, 101) / 100 + 0.004
    assert choose_reader_threshold(confidences, np.ones(100)) == 0.06  # five of 100 lie below: 0.014 … 0.054
    # Two of fifty right answers lie below 0.52: 0.504 and 0.514.
    assert choose_reader_threshold(confidences, (confidences > 0.5).astype(float)) == 0.52
    assert choose_reader_threshold(confidences, np.zeros(100)) == 0.0


def test_the_threshold_counts_ordinary_questions_over_indexes() -> None:
    """Three of sixty answers are declined: 0.10, 0.11 and 0.12 of "wiki". Other conditions do not count."""

    def make_rows(name: str, confidences: list[float], **other: Any) -> list[tuple[CalibrationRow, float]]:
        row = CalibrationRow(NQ, name, 0, ANSWERABLE, Evidence(0.5, 0, 0), right=True, log_likelihood=0.0)
        return [(replace(row, **other), confidence) for confidence in confidences]

    rows = [
        *make_rows("paragraphs", [0.5 + n / 100 for n in range(40)]),
        *make_rows("wiki", [0.1 + n / 100 for n in range(20)]),
        *make_rows(OWN_PARAGRAPH, [0.01] * 50),
        *make_rows("wiki", [0.02] * 50, is_shallow=True),
        *make_rows("wiki", [0.03] * 50, kind=UNANSWERABLE),
    ]
    confidences = np.array([each for _, each in rows])
    fit = CrossFit(Calibration(()), confidences, np.ones(len(rows)))
    assert choose_decline_threshold([row for row, _ in rows], fit) == (0.13, {"paragraphs": 0.0, "wiki": 0.15})


def test_an_index_that_lacks_most_answers_does_not_lower_the_threshold() -> None:
    """Of the two sets, only "paragraphs" counts: of its 40 right answers, 0.50 and 0.51 are declined."""
    row = CalibrationRow(NQ, "paragraphs", 0, ANSWERABLE, Evidence(0.5, 0, 0), right=True, log_likelihood=0.0)
    rows = [(row, 0.5 + n / 100) for n in range(40)]
    rows += [(replace(row, name="wiki"), 0.1)] * 20 + [(replace(row, name="wiki", kind=MISSED, right=False), 0.2)] * 30
    fit = CrossFit(Calibration(()), np.array([each for _, each in rows]), np.array([each.right for each, _ in rows]))
    assert choose_decline_threshold([each for each, _ in rows], fit) == (0.52, {"paragraphs": 0.05, "wiki": 1.0})


def test_questions_below_the_threshold_of_the_reader_are_declined(
    index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = towns.copy_reader(tmp_path)
    ask = ("ask", "Who built Skarvik Lighthouse?", "--index", str(index), "--reader", str(reader))
    assert run(*ask, capsys=capsys)[0] == 0
    install_calibration(replace(Calibration.load(reader), threshold=0.999), reader)
    status, out, _ = run(*ask, capsys=capsys)
    assert status == 1 and "below 1.00" in out
    assert run(*ask, "--min-confidence", "0.1", capsys=capsys)[0] == 0
