"""Evaluation of small fixed systems, whose figures can be counted by hand."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ragqa.errors import BadInput, DamagedArtefact
from ragqa.evaluation import Report, evaluate, rebuild_report
from ragqa.evaluation.report.summary import format_summary
from ragqa.pipeline import Pipeline
from ragqa.types import Answer, Hit, Question
from tests.helpers.evaluation import ANSWERS, HITS, QUESTIONS, FixedReader, FixedRetriever, make_hits, make_pipeline

pytestmark = pytest.mark.usefixtures("without_plots")


def test_figures_match_a_count_by_hand(tmp_path: Path) -> None:
    """Five questions have answers; the first occurs twice and counts twice."""
    report = evaluate(make_pipeline(), QUESTIONS, out=tmp_path / "r", name="five", corpus="hand-made", depth=3)
    figures = report.figures
    assert report.em == pytest.approx(2 / 5)
    assert report.f1 == pytest.approx((1 + 0 + 2 / 3 + 0 + 1) / 5)
    recall = {k: interval["value"] for k, interval in figures["answer_recall"].items()}
    assert recall == pytest.approx({"1": 3 / 5, "2": 3 / 5, "3": 4 / 5})
    assert figures["coverage_bound"] == {"corpus": None, "retrieved": 4 / 5}
    assert figures["gold_passage"]["questions"] == 1 and figures["gold_passage"]["mrr"] == 1
    assert figures["gold_document"]["questions"] == 1 and figures["gold_document"]["mrr"] == pytest.approx(1 / 3)
    assert figures["loss"] == {
        "right": 2,
        "not retrieved": 1,
        "not read": 1,
        "not chosen": 1,
    }
    declining = figures["confidence"]["declining"]
    assert declining["answered"] == pytest.approx(5 / 6)
    assert declining["right_of_answered"] == pytest.approx(2 / 5)
    assert (declining["unanswerable"], declining["unanswerable_declined"]) == (1, 0.0)
    assert [row["questions"] for row in figures["breakdown"]["question word"]] == [5]
    assert figures["about"]["questions"] == 6 and figures["about"]["answerable"] == 5
    assert figures["warnings"] == []


def test_a_row_records_hits_and_prediction(tmp_path: Path) -> None:
    first, second, *_, nobody = evaluate(make_pipeline(), QUESTIONS, out=tmp_path / "r", depth=3).rows()
    assert (first.prediction, first.em, first.f1, first.loss) == ("ada holm.", True, 1.0, "right")
    assert (first.rank, first.passage_rank, first.document_rank, first.read) == (1, 1, None, 2)
    assert [(hit.passage, hit.has_answer) for hit in first.hits] == [(0, True), (1, False), (2, False)]
    assert first.cited is not None and (first.cited.rank, first.cited.start, first.cited.end) == (1, 0, 1)
    assert first.holding is None  # the passage with the answer is the cited one
    assert second.loss == "not read" and second.rank == second.document_rank == 3
    assert second.holding is not None and second.holding.text == "Bo came second."
    assert nobody.loss == "unanswerable" and not nobody.em
    assert first.retrieve_seconds is not None and first.retrieve_seconds >= 0


def test_predictions_equal_those_of_ask(tmp_path: Path) -> None:
    questions = [question.text for question in QUESTIONS]
    rows = evaluate(make_pipeline(), QUESTIONS, out=tmp_path / "r").rows()
    assert [row.prediction for row in rows] == [
        answer.text for answer in make_pipeline().ask(questions, min_confidence=0)
    ]


def test_the_reader_gets_the_passages_of_a_search_for_k(tmp_path: Path) -> None:
    """An approximate index may find better passages for a larger k; those must not be read."""

    class ApproximateRetriever(FixedRetriever):
        def search(self, questions: list[str], k: int) -> list[list[Hit]]:
            return [make_hits("x") if k == 1 else make_hits("Ada Holm", "x") for _ in questions]

    (row,) = evaluate(
        Pipeline(ApproximateRetriever({}), FixedReader(ANSWERS), k=1), QUESTIONS[:1], out=tmp_path / "r"
    ).rows()
    assert row.rank == 1 and row.cited is not None and row.cited.text == "x"


def test_declining_is_reported_at_the_readers_own_threshold(tmp_path: Path) -> None:
    @dataclass
    class ReaderWithThreshold(FixedReader):
        threshold: float = 0.45

    for number, (reader, wanted, below) in enumerate(
        [
            (FixedReader(ANSWERS), None, 0.2),
            (ReaderWithThreshold(ANSWERS), None, 0.45),
            (ReaderWithThreshold(ANSWERS), 0.3, 0.3),
            (ReaderWithThreshold(ANSWERS), 0.27563992747867594, 0.27563992747867594),
        ]
    ):
        report = evaluate(
            Pipeline(FixedRetriever(HITS), reader), QUESTIONS, out=tmp_path / str(number), min_confidence=wanted
        )
        assert report.figures["confidence"]["declining"]["below"] == below
    assert "\ndeclined below 0.276     " in format_summary(report)  # a calibrated threshold has 17 digits


def test_questions_are_consumed_batch_by_batch(tmp_path: Path) -> None:
    taken = 0

    def stream() -> Iterator[Question]:
        nonlocal taken
        for question in QUESTIONS:
            taken += 1
            yield question

    class WatchingReader(FixedReader):
        def read(self, questions: list[str], make_hits: list[list[Hit]]) -> list[Answer]:
            ahead.append(taken)
            return super().read(questions, make_hits)

    ahead: list[int] = []
    evaluate(Pipeline(FixedRetriever(HITS), WatchingReader(ANSWERS), k=2), stream(), out=tmp_path / "r", batch=2)
    assert ahead == [2, 4, 6]


def test_patterns_are_matched_on_the_raw_answer(tmp_path: Path) -> None:
    questions = [
        Question("who is first?", (r"ada\s+\w+",)),
        Question("who is third?", ("came",)),  # not at the start
        Question("who is fourth?", ("(",)),
    ]
    report = evaluate(make_pipeline(), questions, out=tmp_path / "r", regex=True)
    assert [row.em for row in report.rows()] == [True, False, False]
    assert report.em == pytest.approx(1 / 3) and report.f1 is None
    assert report.figures["warnings"] == [
        "1 of 3 questions have a gold answer that is no valid pattern, which matches nothing"
    ]
    assert "answer type" not in report.figures["breakdown"]


def test_the_unicode_rule_changes_exact_match(tmp_path: Path) -> None:
    """After NFD a lone á loses its a to the article rule, and equals a lone accent."""
    answers = FixedReader({"who is first?": ("á", 0.5)})
    question = Question("who is first?", ("\u0301",))
    nq = evaluate(Pipeline(FixedRetriever(HITS), answers, k=1), [question], out=tmp_path / "nq", unicode="NFD")
    squad = evaluate(Pipeline(FixedRetriever(HITS), answers, k=1), [question], out=tmp_path / "squad", unicode=None)
    assert (nq.em, squad.em) == (1.0, 0.0)


def test_gold_answers_without_a_token_are_reported(tmp_path: Path) -> None:
    report = evaluate(make_pipeline(), [replace(QUESTIONS[0], answers=("Ada Holm", " "))], out=tmp_path / "r")
    assert report.figures["warnings"] == ["1 of 1 questions have an empty gold answer: no passage holds it"]


def test_patterns_that_only_nfd_makes_invalid_are_counted_separately(tmp_path: Path) -> None:
    report = evaluate(
        make_pipeline(), [replace(QUESTIONS[0], answers=("Sn\\ěžka|ada",))], out=tmp_path / "r", regex=True
    )
    assert report.em == 1.0
    assert "invalid after Unicode NFD" in report.figures["warnings"][0]


def test_retrieval_can_be_scored_without_reading(tmp_path: Path) -> None:
    report = evaluate(make_pipeline(), QUESTIONS, out=tmp_path / "r", read=False, depth=3)
    assert report.em is None and report.figures["loss"] is None and report.figures["confidence"] is None
    assert report.figures["answer_recall"]["1"]["value"] == pytest.approx(3 / 5)
    assert "\nexact match" not in format_summary(report)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "batch = 0"),
        ({"k": 0}, "k = 0"),
        ({"depth": 0}, "depth = 0"),
    ],
)
def test_invalid_settings_are_refused(tmp_path: Path, options: dict, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        evaluate(make_pipeline(), QUESTIONS, out=tmp_path / "r", **options)


def test_no_questions_and_a_foreign_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no questions"):
        evaluate(make_pipeline(), [], out=tmp_path / "r")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("kept")
    with pytest.raises(BadInput, match="not a ragqa report"):
        evaluate(make_pipeline(), QUESTIONS, out=tmp_path / "precious")
    assert (tmp_path / "precious" / "file").read_text() == "kept"
    with pytest.raises(BadInput, match="question is empty"):
        evaluate(make_pipeline(), [Question(" ")], out=tmp_path / "r")


def test_a_report_without_a_path_is_deleted_when_the_process_ends(tmp_path: Path) -> None:
    code = f"""
import sys
sys.path[:0] = [{str(Path(__file__).parents[3])!r}, {str(Path(__file__).parents[2])!r}]
from tests.helpers.evaluation import QUESTIONS, make_pipeline
from ragqa.evaluation import evaluate
report = evaluate(make_pipeline(), QUESTIONS)
print(report.path, len(list(report.rows())))
"""
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    path, rows = run.stdout.split()
    assert int(rows) == len(QUESTIONS)
    assert tmp_path in Path(path).parents and list(tmp_path.iterdir()) == []


def test_an_error_of_the_system_is_not_reported_as_a_write_error(tmp_path: Path) -> None:
    class FailingRetriever(FixedRetriever):
        def search(self, questions: list[str], k: int) -> list[list[Hit]]:
            raise ConnectionRefusedError("no server")

    with pytest.raises(ConnectionRefusedError, match="no server"):
        evaluate(Pipeline(FailingRetriever(HITS), FixedReader(ANSWERS)), QUESTIONS, out=tmp_path / "r")


def test_a_damaged_report_is_named(tmp_path: Path) -> None:
    evaluate(make_pipeline(), QUESTIONS, out=tmp_path / "r")
    file = tmp_path / "r" / "rows.jsonl"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(DamagedArtefact, match=r"rows\.jsonl is damaged"):
        Report.load(tmp_path / "r")


def test_a_report_is_rebuilt_from_its_rows(tmp_path: Path) -> None:
    report = evaluate(make_pipeline(), QUESTIONS, out=tmp_path / "r", name="five")
    (report.path / "report.html").write_text("")
    (report.path / "notes.txt").write_text("mine")
    assert rebuild_report(report.path).figures == report.figures
    assert (report.path / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert (report.path / "notes.txt").read_text() == "mine"
    with pytest.raises(BadInput, match=r"r also holds notes\.txt, which would be deleted"):
        evaluate(make_pipeline(), QUESTIONS, out=tmp_path / "r")  # the rebuilt manifest does not take it for ragqa's
    (report.path / "rows.jsonl").write_text("")
    with pytest.raises(DamagedArtefact, match=r"rows\.jsonl is damaged"):
        rebuild_report(report.path)


def test_a_surrogate_in_a_question_does_not_stop_a_run(tmp_path: Path) -> None:
    question = Question("who is \ud800 first?", ("\ud800",))
    found, answers = {"who is ? first?": make_hits("x")}, {"who is ? first?": ("x", 0.5)}
    (row,) = evaluate(Pipeline(FixedRetriever(found), FixedReader(answers)), [question], out=tmp_path / "r").rows()
    assert row.prediction == "x"
