"""The text about a threshold."""

from dataclasses import replace
from pathlib import Path

from ragqa.risk_control.run import CurvePoint, RiskReport
from ragqa.risk_control.summary import FEW_QUESTIONS, format_report

POINT = CurvePoint(0.25, 0.5, 0.1, 0.2, None)
REPORT = RiskReport(0.25, 0.16, 0.27, 0.1, 300, True, 0.5, POINT, [CurvePoint(0.0, 1.0, 0.4, 0.0, None)])


def test_the_stored_threshold_is_marked_in_the_curve() -> None:
    *head, zero, stored = format_report(REPORT, Path("notes.index")).splitlines()
    assert head[0] == "threshold 0.250 (before: 0.160), stored in notes.index"
    assert head[1] == "300 questions made from the documents; asked without their documents with a weight of 50 %"
    assert zero.split() == ["0.000", "100", "%", "40", "%", "0", "%", "–"]
    assert stored.split() == ["0.250", "50", "%", "10", "%", "20", "%", "–", "<-", "stored"]


def test_a_stored_threshold_that_looks_like_another_has_the_only_row() -> None:
    report = replace(REPORT, threshold=0.0002, at_threshold=replace(POINT, threshold=0.0002))
    table = format_report(report, Path("i")).splitlines()
    assert [line.split()[0] for line in table if "%  " in line and line.strip()[0].isdigit()] == ["0.000"]
    assert table[-1].endswith("<- stored")


def test_a_threshold_that_stays_that_of_the_reader_is_explained() -> None:
    words = "This is the reader's own threshold"
    assert words in format_report(replace(REPORT, lowest=0.25), Path("i")) and words not in format_report(
        REPORT, Path("i")
    )


def test_few_questions_are_called_uncertain() -> None:
    words = "the threshold is uncertain"
    assert words in format_report(replace(REPORT, questions=FEW_QUESTIONS - 1), Path("i"))
    assert words not in format_report(replace(REPORT, questions=FEW_QUESTIONS), Path("i"))
