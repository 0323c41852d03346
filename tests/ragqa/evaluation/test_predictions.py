"""Evaluation of predictions of other systems, and of readers on gold passages."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ragqa.errors import BadInput, BadLine, Mismatch, SlowPattern
from ragqa.evaluation import evaluate
from ragqa.evaluation.evaluated_systems import GoldPassages, Predictions
from ragqa.evaluation.report.summary import format_summary
from ragqa.types import Answer, Hit
from tests.helpers.evaluation import (
    QUESTIONS,
    FixedReader,
)

pytestmark = pytest.mark.usefixtures("without_plots")


def write_lines(file: Path, *rows: object) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_predictions_by_id_are_scored(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "p.json", {"q1": "Ada Holm", "q2": "the Bo", "q3": "x", "q1 again": ""})
    report = evaluate(Predictions(file, depth=100), QUESTIONS, out=tmp_path / "r", unicode=None)
    assert [row.em for row in report.rows()] == [True, True, False, False, False, False]
    assert report.figures["warnings"] == [
        "4 of 6 questions were answered without a confidence, so there are no figures of confidence",
        "1 of 5 questions with gold answers got no prediction, which counts as wrong",
    ]
    assert report.figures["answer_recall"] == {} and report.figures["loss"] is None
    assert report.figures["confidence"] is None and report.figures["seconds"] is None
    assert "answer recall" not in format_summary(report)


def test_predictions_by_line_are_scored_with_their_passages(tmp_path: Path) -> None:
    ctxs = [{"text": "x", "title": "t", "id": "wiki:1", "score": "7.5"}, {"text": "Ada Holm"}]
    file = write_lines(
        tmp_path / "p.jsonl",
        {"question": "who is first?", "prediction": "Ada Holm", "ctxs": ctxs, "confidence": 0.5},
        {"prediction": "Bo", "ctxs": ctxs, "confidence": 0.25},
    )
    report = evaluate(Predictions(file, depth=100), QUESTIONS[:2], out=tmp_path / "r")
    first, second = report.rows()
    assert (first.rank, first.loss, second.rank, second.loss) == (2, "right", None, "right")
    assert report.figures["confidence"] is not None


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([{"prediction": "a"}], Mismatch, "ends before the questions do"),
        ([{"prediction": "a"}, {"question": "another?", "prediction": "a"}], Mismatch, "p.jsonl:2: it answers"),
        ([{"answer": "a"}, {}], BadLine, "p.jsonl:1: not a prediction: no prediction"),
        ([{"prediction": 7}, {}], BadLine, "p.jsonl:1: not a prediction"),
        ([[], {}], BadLine, "p.jsonl:1: not a prediction"),
        ([{"prediction": "a", "ctxs": [{}]}, {}], BadLine, "p.jsonl:1: not a prediction"),
        ([{"prediction": "a", "ctxs": [{"text": []}]}, {}], BadLine, "p.jsonl:1: not a prediction"),
        ([{"prediction": "a", "ctxs": [{"text": "x", "score": "nan"}]}, {}], BadLine, "must be a finite number"),
        ([{"prediction": "a", "confidence": -3.2}, {}], BadLine, "between 0 and 1"),
        ([{"prediction": "a", "question": 5}, {}], BadLine, "p.jsonl:1: not a prediction"),
        (
            [{"prediction": "a"}, {"prediction": None}, {}],
            Mismatch,
            "p.jsonl:3: there are more predictions than questions",
        ),
    ],
)
def test_predictions_that_do_not_match_the_questions_are_refused(
    tmp_path: Path, rows: list, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        evaluate(Predictions(write_lines(tmp_path / "p.jsonl", *rows), depth=9), QUESTIONS[:2], out=tmp_path / "r")


def test_declining_an_unanswerable_question_is_not_an_error(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "p.jsonl", {"prediction": "Ada Holm", "confidence": 0.8}, {"prediction": None})
    report = evaluate(Predictions(file), [QUESTIONS[0], QUESTIONS[-1]], out=tmp_path / "r")
    confidence = report.figures["confidence"]
    assert confidence["risk_coverage"] == [[0.5, 0.0]] and confidence["right_at_half_coverage"] == 1.0
    assert confidence["declining"]["unanswerable_declined"] == 1.0
    assert report.figures["warnings"] == []


def test_passages_without_predictions_are_scored(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "p.jsonl", {"ctxs": [{"text": "x"}, {"text": "Ada Holm"}]})
    report = evaluate(Predictions(file, read=False), QUESTIONS[:1], out=tmp_path / "r")
    assert report.em is None and report.figures["answer_recall"]["2"]["value"] == 1.0
    (row,) = report.rows()
    assert row.loss is None and row.f1 is None and row.confidence is None


def test_a_reader_can_be_scored_on_gold_passages(tmp_path: Path) -> None:
    class EchoReader(FixedReader):
        def read(self, questions: list[str], make_hits: list[list[Hit]]) -> list[Answer]:
            return [Answer(q, h[0].passage.text[:9], 1.0, 0.5) for q, h in zip(questions, make_hits, strict=True)]

    report = evaluate(GoldPassages(EchoReader({})), QUESTIONS[:1], out=tmp_path / "r")
    assert report.em == 1.0 and report.figures["answer_recall"] == {}
    assert report.figures["coverage_bound"] is report.figures["gold_passage"] is report.figures["loss"] is None
    assert report.figures["about"]["corpus"] == "the gold passages"
    assert report.figures["seconds"] is not None and list(report.figures["seconds"]) == ["read"]
    with pytest.raises(BadInput, match="'who is third\\?' names no gold passage"):
        evaluate(GoldPassages(EchoReader({})), QUESTIONS[2:3], out=tmp_path / "r2")


@pytest.mark.parametrize(("name", "text"), [("p.json", "{"), ("p.json", "[]"), ("p.txt", ""), ("q.jsonl", None)])
def test_files_without_predictions_are_refused(tmp_path: Path, name: str, text: str | None) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match=name):
        Predictions(tmp_path / name, depth=9)


def test_a_pattern_that_never_ends_ends_the_evaluation_with_one_line(tmp_path: Path) -> None:
    """The pattern is tried on a prediction, and on the text of a passage."""
    pattern, text = r"(a|aa)+$", "a" * 60 + "!"
    questions = [QUESTIONS[0], replace(QUESTIONS[1], answers=("Bo", pattern), id="trec 7")]
    words = r"^the pattern '\(a\|aa\)\+\$' of question trec 7 takes more than 1 s to search 6\d characters: .*$"
    for number, row in enumerate(({"prediction": text}, {"prediction": "A", "ctxs": [{"text": f"z{text}"}]})):
        file = write_lines(tmp_path / f"{number}.jsonl", {"prediction": "x"}, row)
        with pytest.raises(SlowPattern, match=words):
            evaluate(Predictions(file), questions, out=tmp_path / f"r{number}", regex=True)
    assert not (tmp_path / "r0").exists()
