"""Comparison of two reports."""

from pathlib import Path

import pytest

from ragqa.errors import Mismatch
from ragqa.evaluation import evaluate
from ragqa.evaluation.compare import compare
from ragqa.evaluation.report.summary import format_comparison
from ragqa.pipeline import Pipeline
from tests.helpers.evaluation import ANSWERS, HITS, QUESTIONS, FixedReader, FixedRetriever, make_pipeline

pytestmark = pytest.mark.usefixtures("without_plots")


def test_a_comparison_matches_a_count_by_hand(tmp_path: Path) -> None:
    better = {**ANSWERS, "who is third?": ("Cy", 0.6), "who is second?": ("bo", 0.4)}
    a = evaluate(Pipeline(FixedRetriever(HITS), FixedReader(better, "better"), k=2), QUESTIONS, out=tmp_path / "a")
    b = evaluate(make_pipeline(), QUESTIONS, out=tmp_path / "b")
    both = compare(a, b)
    assert both.figures["em"]["a"] == pytest.approx(4 / 5) and both.figures["em"]["b"] == pytest.approx(2 / 5)
    assert both.figures["em"]["p"] == pytest.approx(2 / 4)  # two coins that both fall the same way
    assert both.figures["right"] == {"both": 2, "only a": 2, "only b": 0, "neither": 1}
    assert both.figures["answer_recall"]["1"]["difference"]["value"] == 0
    assert both.figures["notes"] == []
    other = compare(a, evaluate(make_pipeline(), QUESTIONS, out=tmp_path / "c", batch=2, corpus="another", depth=5))
    assert [note.split(" differ")[0] for note in other.figures["notes"]] == [
        "the corpora",
        "the depths",
        "the questions asked at a time",
    ]
    assert "exact match" in format_comparison(both)
    assert len(list(both.pairs())) == len(QUESTIONS)


def test_reports_of_other_questions_or_rules_cannot_be_compared(tmp_path: Path) -> None:
    a = evaluate(make_pipeline(), QUESTIONS, out=tmp_path / "a")
    with pytest.raises(Mismatch, match="more questions"):
        compare(a, evaluate(make_pipeline(), QUESTIONS[:2], out=tmp_path / "b"))
    with pytest.raises(Mismatch, match="question 1 of"):
        compare(a, evaluate(make_pipeline(), QUESTIONS[::-1], out=tmp_path / "c"))
    with pytest.raises(Mismatch, match="rule nq"):
        compare(a, evaluate(make_pipeline(), QUESTIONS, out=tmp_path / "d", unicode=None))
