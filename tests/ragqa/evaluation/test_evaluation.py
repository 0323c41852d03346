"""The harness over small hand-made systems, so that every figure can be counted by hand."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragqa.corpus.sources import Document
from ragqa.corpus.store import PassageStore, PassageWriter
from ragqa.errors import BadInput, BadLine, DamagedArtefact, Mismatch
from ragqa.evaluation import Report, evaluate, rebuild_report
from ragqa.evaluation.compare import compare
from ragqa.evaluation.coverage import find_missing
from ragqa.evaluation.kinds import answer_length, answer_type, question_word
from ragqa.evaluation.report.summary import format_comparison, format_summary
from ragqa.evaluation.rows import Row, Rule, SystemResult, score
from ragqa.evaluation.systems import GoldPassages, Predictions
from ragqa.metrics import has_answer
from ragqa.pipeline import Pipeline
from ragqa.types import Answer, Hit, Passage, Question, Source, Span


@pytest.fixture(autouse=True)
def _no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are test_page.py's, and take a second a report."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def hits(*texts: str) -> list[Hit]:
    return [
        Hit(Passage(n, f"d{n}", f"Title {n}", text, f"/c/d{n}", 0, len(text)), 1.0 - n / 10)
        for n, text in enumerate(texts)
    ]


@dataclass
class Found:
    """A retriever that knows what it finds for each question."""

    by_question: dict[str, list[Hit]]
    asked: list[tuple[str, int]] = field(default_factory=list)

    def search(self, questions: list[str], k: int) -> list[list[Hit]]:
        self.asked += [(question, k) for question in questions]
        return [self.by_question[question][:k] for question in questions]


@dataclass
class Said:
    """A reader that knows what it says to each question, cited from its first hit."""

    by_question: dict[str, tuple[str | None, float]]
    fingerprint: str = "said"
    is_closed_book: bool = False

    def read(self, questions: list[str], hits: list[list[Hit]]) -> list[Answer]:
        answers = []
        for question, found in zip(questions, hits, strict=True):
            text, confidence = self.by_question[question]
            sources = tuple(Source(hit, Span(0, 1), 1.0) for hit in found[:1])
            answers.append(Answer(question, text, confidence, confidence, sources))
        return answers


QUESTIONS = [
    Question("who is first?", ("Ada Holm",), "q1", passages=("Ada  Holm came first.",)),
    Question("who is second?", ("Bo", "Bo Berg"), "q2", documents=("d2",)),
    Question("who is third?", ("Cy",), "q3"),
    Question("who is fourth?", ("Di",), "q4"),
    Question("who is first?", ("Ada Holm",), "q1 again"),
    Question("who is nobody?", (), "q5"),
]
FOUND = {
    "who is first?": hits("Ada Holm came first.", "x", "y"),
    "who is second?": hits("x", "y", "Bo came second."),
    "who is third?": hits("Cy came third.", "x", "y"),
    "who is fourth?": hits("x", "y", "z"),
    "who is nobody?": hits("x", "y", "z"),
}
SAID = {
    "who is first?": ("ada holm.", 0.9),
    "who is second?": ("nobody", 0.1),
    "who is third?": ("Cy came", 0.6),
    "who is fourth?": ("z", 0.3),
    "who is nobody?": ("x", 0.5),
}


def pipeline() -> Pipeline:
    return Pipeline(Found(FOUND), Said(SAID), k=2)


def timeless(report: Report) -> list[Row]:
    return [replace(row, retrieve_seconds=None, read_seconds=None) for row in report.rows()]


def test_figures_match_a_count_by_hand(tmp_path: Path) -> None:
    """Five questions have answers; the first stands there twice and counts twice."""
    report = evaluate(pipeline(), QUESTIONS, out=tmp_path / "r", name="five", corpus="hand-made", depth=3)
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


def test_a_row_holds_hits_and_prediction(tmp_path: Path) -> None:
    first, second, *_, nobody = evaluate(pipeline(), QUESTIONS, out=tmp_path / "r", depth=3).rows()
    assert (first.prediction, first.em, first.f1, first.loss) == ("ada holm.", True, 1.0, "right")
    assert (first.rank, first.passage_rank, first.document_rank, first.read) == (1, 1, None, 2)
    assert [(hit.passage, hit.has_answer) for hit in first.hits] == [(0, True), (1, False), (2, False)]
    assert first.cited is not None and (first.cited.rank, first.cited.start, first.cited.end) == (1, 0, 1)
    assert first.holding is None  # it is the one that is cited
    assert second.loss == "not read" and second.rank == second.document_rank == 3
    assert second.holding is not None and second.holding.text == "Bo came second."
    assert nobody.loss == "unanswerable" and not nobody.em
    assert first.retrieve_seconds is not None and first.retrieve_seconds >= 0


def test_predictions_are_those_of_ask(tmp_path: Path) -> None:
    asked = [question.text for question in QUESTIONS]
    rows = evaluate(pipeline(), QUESTIONS, out=tmp_path / "r").rows()
    assert [row.prediction for row in rows] == [answer.text for answer in pipeline().ask(asked, min_confidence=0)]


def test_the_passages_read_are_those_of_a_search_for_k(tmp_path: Path) -> None:
    """An approximate index finds better passages when it is asked for more; they must not be read."""

    class Approximate(Found):
        def search(self, questions: list[str], k: int) -> list[list[Hit]]:
            return [hits("x") if k == 1 else hits("Ada Holm", "x") for _ in questions]

    (row,) = evaluate(Pipeline(Approximate({}), Said(SAID), k=1), QUESTIONS[:1], out=tmp_path / "r").rows()
    assert row.rank == 1 and row.cited is not None and row.cited.text == "x"


def test_declining_is_reported_at_the_readers_own_threshold(tmp_path: Path) -> None:
    @dataclass
    class Careful(Said):
        threshold: float = 0.45

    for number, (reader, wanted, below) in enumerate(
        [(Said(SAID), None, 0.2), (Careful(SAID), None, 0.45), (Careful(SAID), 0.3, 0.3)]
    ):
        report = evaluate(Pipeline(Found(FOUND), reader), QUESTIONS, out=tmp_path / str(number), min_confidence=wanted)
        assert report.figures["confidence"]["declining"]["below"] == below


def test_questions_are_consumed_as_they_are_asked(tmp_path: Path) -> None:
    taken = 0

    def stream() -> Iterator[Question]:
        nonlocal taken
        for question in QUESTIONS:
            taken += 1
            yield question

    class Watching(Said):
        def read(self, questions: list[str], hits: list[list[Hit]]) -> list[Answer]:
            ahead.append(taken)
            return super().read(questions, hits)

    ahead: list[int] = []
    evaluate(Pipeline(Found(FOUND), Watching(SAID), k=2), stream(), out=tmp_path / "r", batch=2)
    assert ahead == [2, 4, 6]


def test_patterns_are_matched_on_the_raw_answer(tmp_path: Path) -> None:
    questions = [
        Question("who is first?", (r"ada\s+\w+",)),
        Question("who is third?", ("came",)),  # not at the start
        Question("who is fourth?", ("(",)),
    ]
    report = evaluate(pipeline(), questions, out=tmp_path / "r", regex=True)
    assert [row.em for row in report.rows()] == [True, False, False]
    assert report.em == pytest.approx(1 / 3) and report.f1 is None
    assert report.figures["warnings"] == [
        "1 of 3 questions have a gold answer that is no valid pattern, which matches nothing"
    ]
    assert "answer type" not in report.figures["breakdown"]


def test_the_unicode_rule_is_an_option(tmp_path: Path) -> None:
    """After NFD a lone á loses its a to the article rule, and equals a lone accent."""
    said = Said({"who is first?": ("á", 0.5)})
    question = Question("who is first?", ("\u0301",))
    nq = evaluate(Pipeline(Found(FOUND), said, k=1), [question], out=tmp_path / "nq", unicode="NFD")
    squad = evaluate(Pipeline(Found(FOUND), said, k=1), [question], out=tmp_path / "squad", unicode=None)
    assert (nq.em, squad.em) == (1.0, 0.0)


def test_gold_answers_without_a_token_are_reported(tmp_path: Path) -> None:
    report = evaluate(pipeline(), [replace(QUESTIONS[0], answers=("Ada Holm", " "))], out=tmp_path / "r")
    assert report.figures["warnings"] == ["1 of 1 questions have an empty gold answer: no passage holds it"]


def test_a_pattern_that_only_nfd_breaks_is_counted_separately(tmp_path: Path) -> None:
    report = evaluate(pipeline(), [replace(QUESTIONS[0], answers=("Sn\\ěžka|ada",))], out=tmp_path / "r", regex=True)
    assert report.em == 1.0
    assert "invalid after Unicode NFD" in report.figures["warnings"][0]


def test_retrieval_alone_is_scored(tmp_path: Path) -> None:
    report = evaluate(pipeline(), QUESTIONS, out=tmp_path / "r", read=False, depth=3)
    assert report.em is None and report.figures["loss"] is None and report.figures["confidence"] is None
    assert report.figures["answer_recall"]["1"]["value"] == pytest.approx(3 / 5)
    assert "\nexact match" not in format_summary(report)


class Interrupted(Exception):
    pass


def broken(after: int) -> Pipeline:
    class Breaking(Said):
        left = after

        def read(self, questions: list[str], hits: list[list[Hit]]) -> list[Answer]:
            self.left -= 1
            if self.left < 0:
                raise Interrupted
            return super().read(questions, hits)

    return Pipeline(Found(FOUND), Breaking(SAID), k=2)


@pytest.mark.parametrize("after", [0, 1, 4])
def test_an_interrupted_run_is_continued(tmp_path: Path, after: int) -> None:
    whole = evaluate(pipeline(), QUESTIONS, out=tmp_path / "whole")
    with pytest.raises(Interrupted):
        evaluate(broken(after), QUESTIONS, out=tmp_path / "r", resume=True)
    assert not (tmp_path / "r").exists()
    second = pipeline()
    report = evaluate(second, iter(QUESTIONS), out=tmp_path / "r", resume=True)
    assert timeless(report) == timeless(whole)
    assert isinstance(second.retriever, Found)
    assert {question for question, _ in second.retriever.asked} == {q.text for q in QUESTIONS[after:]}
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) - 20],  # half a line
        lambda text: text + "{",
        lambda text: text.replace('"number": 1', '"number": 7'),
        lambda text: text + "\n\n",
    ],
    ids=["cut", "begun", "renumbered", "blank lines"],
)
def test_lines_that_are_not_rows_are_asked_again(tmp_path: Path, spoil) -> None:
    whole = evaluate(pipeline(), QUESTIONS, out=tmp_path / "whole")
    with pytest.raises(Interrupted):
        evaluate(broken(3), QUESTIONS, out=tmp_path / "r", resume=True)
    rows = tmp_path / ".r.evaluating" / "rows.jsonl"
    rows.write_text(spoil(rows.read_text()))
    assert timeless(evaluate(pipeline(), QUESTIONS, out=tmp_path / "r", resume=True)) == timeless(whole)


@pytest.mark.parametrize(
    "changed",
    [{"answers": ("nobody",)}, {"id": "q7"}, {"passages": ("x",)}, {"documents": ("d1",)}],
    ids=lambda change: next(iter(change)),
)
def test_rows_are_rebuilt_from_the_first_changed_question(tmp_path: Path, changed: dict) -> None:
    with pytest.raises(Interrupted):
        evaluate(broken(3), QUESTIONS, out=tmp_path / "r", resume=True)
    questions = [QUESTIONS[0], replace(QUESTIONS[1], **changed), *QUESTIONS[2:]]
    second = pipeline()
    report = evaluate(second, questions, out=tmp_path / "r", resume=True)
    assert timeless(report) == timeless(evaluate(pipeline(), questions, out=tmp_path / "whole"))
    assert isinstance(second.retriever, Found) and second.retriever.asked[0][0] == "who is second?"


@pytest.mark.parametrize("other", [{"regex": True}, {"unicode": None}, {"batch": 2}, {"k": 1}, {"depth": 7}])
def test_rows_of_another_run_are_neither_taken_nor_lost(tmp_path: Path, other: dict) -> None:
    with pytest.raises(Interrupted):
        evaluate(broken(3), QUESTIONS, out=tmp_path / "r", resume=True)
    rows = (tmp_path / ".r.evaluating" / "rows.jsonl").read_bytes()
    with pytest.raises(BadInput, match=r"holds the rows of a run of another system, rule or batch"):
        evaluate(pipeline(), QUESTIONS, out=tmp_path / "r", resume=True, **other)
    with pytest.raises(BadInput, match="holds the rows"):
        evaluate(Pipeline(Found(FOUND), Said(SAID, "other"), k=2), QUESTIONS, out=tmp_path / "r", resume=True)
    with pytest.raises(BadInput, match="rows of more questions than are asked now"):
        evaluate(pipeline(), QUESTIONS[:2], out=tmp_path / "r", resume=True)
    assert (tmp_path / ".r.evaluating" / "rows.jsonl").read_bytes() == rows
    evaluate(pipeline(), QUESTIONS[:2], out=tmp_path / "r", resume=False, **other)


def test_one_run_at_a_time(tmp_path: Path) -> None:
    class Nested(Said):
        def read(self, questions: list[str], hits: list[list[Hit]]) -> list[Answer]:
            with pytest.raises(BadInput, match="another process is at work"):
                evaluate(pipeline(), QUESTIONS, out=tmp_path / "r")
            return super().read(questions, hits)

    evaluate(Pipeline(Found(FOUND), Nested(SAID), k=2), QUESTIONS[:1], out=tmp_path / "r")


@pytest.mark.parametrize("where", ["write_report", "find_missing", "Report"])
def test_a_run_that_ends_while_it_reports_asks_nothing_again(tmp_path: Path, where: str, monkeypatch) -> None:
    """Between the last question and the return: whatever stands in the target is whole."""
    import ragqa.evaluation.run as module

    def stop(*arguments: object, **options: object) -> None:
        raise Interrupted

    texts = store(tmp_path / "store", ["Ada Holm"])
    first, second = pipeline(), pipeline()
    for each in (first, second):
        each.retriever.passages = texts  # type: ignore[attr-defined]
    with monkeypatch.context() as patched, pytest.raises(Interrupted):
        patched.setattr(module, where, type("Stop", (), {"load": stop}) if where == "Report" else stop)
        evaluate(first, QUESTIONS, out=tmp_path / "r", resume=True)
    assert (tmp_path / "r").exists() == (where == "Report")
    report = evaluate(second, QUESTIONS, out=tmp_path / "r", resume=True)
    assert isinstance(second.retriever, Found) and second.retriever.asked == []
    assert timeless(report) == timeless(evaluate(pipeline(), QUESTIONS, out=tmp_path / "whole"))


def test_rows_of_a_model_in_memory_are_not_reused(tmp_path: Path) -> None:
    """So rows of an earlier run are taken only from a pipeline that is known by fingerprint, or on request."""
    with pytest.raises(Interrupted):
        evaluate(broken(3), QUESTIONS, out=tmp_path / "r")
    second = pipeline()
    evaluate(second, QUESTIONS, out=tmp_path / "r")
    assert isinstance(second.retriever, Found) and ("who is first?", 2) in second.retriever.asked


SLOW_RUN = """
import sys, time
sys.path[:0] = [{tests!r}, {tests!r} + "/tests"]
from tests.ragqa.evaluation.test_evaluation import FOUND, QUESTIONS, SAID, Found, Said
from ragqa import Pipeline
from ragqa.evaluation import evaluate

class Slow(Said):
    def read(self, questions, hits):
        time.sleep(0.02)
        return super().read(questions, hits)

evaluate(Pipeline(Found(FOUND), Slow(SAID), k=2), QUESTIONS * 10, out={out!r}, resume=True)
"""


def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    code = SLOW_RUN.format(tests=str(Path(__file__).parents[3]), out=str(tmp_path / "r"))
    rows, seen = tmp_path / ".r.evaluating" / "rows.jsonl", 0
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", code])
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and (not rows.exists() or rows.read_bytes().count(b"\n") < seen + 5):
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        now = rows.read_bytes().count(b"\n")
        assert seen < now < len(QUESTIONS) * 10
        seen = now
    subprocess.run([sys.executable, "-c", code], check=True)
    assert timeless(Report.load(tmp_path / "r")) == timeless(
        evaluate(pipeline(), QUESTIONS * 10, out=tmp_path / "whole")
    )


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
        evaluate(pipeline(), QUESTIONS, out=tmp_path / "r", **options)


def test_no_questions_and_a_foreign_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no questions"):
        evaluate(pipeline(), [], out=tmp_path / "r")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("kept")
    with pytest.raises(BadInput, match="not a ragqa report"):
        evaluate(pipeline(), QUESTIONS, out=tmp_path / "precious")
    assert (tmp_path / "precious" / "file").read_text() == "kept"
    with pytest.raises(BadInput, match="question is empty"):
        evaluate(pipeline(), [Question(" ")], out=tmp_path / "r")


def test_a_report_without_a_place_is_kept_while_the_process_lives(tmp_path: Path) -> None:
    code = f"""
import sys
sys.path[:0] = [{str(Path(__file__).parents[3])!r}, {str(Path(__file__).parents[2])!r}]
from tests.ragqa.evaluation.test_evaluation import QUESTIONS, pipeline
from ragqa.evaluation import evaluate
report = evaluate(pipeline(), QUESTIONS)
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
    class Down(Found):
        def search(self, questions: list[str], k: int) -> list[list[Hit]]:
            raise ConnectionRefusedError("no server")

    with pytest.raises(ConnectionRefusedError, match="no server"):
        evaluate(Pipeline(Down(FOUND), Said(SAID)), QUESTIONS, out=tmp_path / "r")


def test_a_damaged_report_is_named(tmp_path: Path) -> None:
    evaluate(pipeline(), QUESTIONS, out=tmp_path / "r")
    file = tmp_path / "r" / "rows.jsonl"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(DamagedArtefact, match=r"rows\.jsonl is damaged"):
        Report.load(tmp_path / "r")


def test_a_report_is_rebuilt_from_its_rows(tmp_path: Path) -> None:
    report = evaluate(pipeline(), QUESTIONS, out=tmp_path / "r", name="five")
    (report.path / "report.html").write_text("")
    (report.path / "notes.txt").write_text("mine")
    assert rebuild_report(report.path).figures == report.figures
    assert (report.path / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert (report.path / "notes.txt").read_text() == "mine"
    (report.path / "rows.jsonl").write_text("")
    with pytest.raises(DamagedArtefact, match=r"rows\.jsonl is damaged"):
        rebuild_report(report.path)


def test_a_surrogate_in_a_question_does_not_stop_a_run(tmp_path: Path) -> None:
    question = Question("who is \ud800 first?", ("\ud800",))
    found, said = {"who is ? first?": hits("x")}, {"who is ? first?": ("x", 0.5)}
    (row,) = evaluate(Pipeline(Found(found), Said(said)), [question], out=tmp_path / "r").rows()
    assert row.prediction == "x"


# What other systems predicted


def write(file: Path, *rows: object) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_predictions_by_id_as_squads_script_takes_them(tmp_path: Path) -> None:
    file = write(tmp_path / "p.json", {"q1": "Ada Holm", "q2": "the Bo", "q3": "x", "q1 again": ""})
    report = evaluate(Predictions(file, depth=100), QUESTIONS[:5], out=tmp_path / "r", unicode=None)
    assert [row.em for row in report.rows()] == [True, True, False, False, False]
    assert report.figures["warnings"] == [
        "1 of 5 questions with gold answers got no prediction, which counts as wrong",
        "4 of 5 questions were answered without a confidence, so there are no figures of confidence",
    ]
    assert report.figures["answer_recall"] == {} and report.figures["loss"] is None
    assert report.figures["confidence"] is None and report.figures["seconds"] is None
    assert "answer recall" not in format_summary(report)


def test_predictions_line_by_line_with_their_passages(tmp_path: Path) -> None:
    ctxs = [{"text": "x", "title": "t", "id": "wiki:1", "score": "7.5"}, {"text": "Ada Holm"}]
    file = write(
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
        evaluate(Predictions(write(tmp_path / "p.jsonl", *rows), depth=9), QUESTIONS[:2], out=tmp_path / "r")


def test_declining_an_unanswerable_question_is_not_an_error(tmp_path: Path) -> None:
    file = write(tmp_path / "p.jsonl", {"prediction": "Ada Holm", "confidence": 0.8}, {"prediction": None})
    report = evaluate(Predictions(file), [QUESTIONS[0], QUESTIONS[-1]], out=tmp_path / "r")
    confidence = report.figures["confidence"]
    assert confidence["risk_coverage"] == [[0.5, 0.0]] and confidence["right_at_half_coverage"] == 1.0
    assert confidence["declining"]["unanswerable_declined"] == 1.0
    assert report.figures["warnings"] == []


def test_passages_of_predictions_are_scored_alone(tmp_path: Path) -> None:
    file = write(tmp_path / "p.jsonl", {"ctxs": [{"text": "x"}, {"text": "Ada Holm"}]})
    report = evaluate(Predictions(file, read=False), QUESTIONS[:1], out=tmp_path / "r")
    assert report.em is None and report.figures["answer_recall"]["2"]["value"] == 1.0
    (row,) = report.rows()
    assert row.loss is None and row.f1 is None and row.confidence is None


def test_a_reader_alone_reads_the_gold_passage(tmp_path: Path) -> None:
    class Echo(Said):
        def read(self, questions: list[str], hits: list[list[Hit]]) -> list[Answer]:
            return [Answer(q, h[0].passage.text[:9], 1.0, 0.5) for q, h in zip(questions, hits, strict=True)]

    report = evaluate(GoldPassages(Echo({})), QUESTIONS[:1], out=tmp_path / "r")
    assert report.em == 1.0 and report.figures["answer_recall"] == {}
    assert report.figures["coverage_bound"] is report.figures["gold_passage"] is report.figures["loss"] is None
    assert report.figures["about"]["corpus"] == "the gold passages"
    assert report.figures["seconds"] is not None and list(report.figures["seconds"]) == ["read"]
    with pytest.raises(BadInput, match="'who is third\\?' names no gold passage"):
        evaluate(GoldPassages(Echo({})), QUESTIONS[2:3], out=tmp_path / "r2")


@pytest.mark.parametrize(("name", "text"), [("p.json", "{"), ("p.json", "[]"), ("p.txt", ""), ("q.jsonl", None)])
def test_files_without_predictions_are_refused(tmp_path: Path, name: str, text: str | None) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match=name):
        Predictions(tmp_path / name, depth=9)


# Comparing


def test_a_comparison_counted_by_hand(tmp_path: Path) -> None:
    better = {**SAID, "who is third?": ("Cy", 0.6), "who is second?": ("bo", 0.4)}
    a = evaluate(Pipeline(Found(FOUND), Said(better, "better"), k=2), QUESTIONS, out=tmp_path / "a")
    b = evaluate(pipeline(), QUESTIONS, out=tmp_path / "b")
    both = compare(a, b)
    assert both.figures["em"]["a"] == pytest.approx(4 / 5) and both.figures["em"]["b"] == pytest.approx(2 / 5)
    assert both.figures["em"]["p"] == pytest.approx(2 / 4)  # two coins fell the same way
    assert both.figures["right"] == {"both": 2, "only a": 2, "only b": 0, "neither": 1}
    assert both.figures["answer_recall"]["1"]["difference"]["value"] == 0
    assert both.figures["notes"] == []
    other = compare(a, evaluate(pipeline(), QUESTIONS, out=tmp_path / "c", batch=2, corpus="another", depth=5))
    assert [note.split(" differ")[0] for note in other.figures["notes"]] == [
        "the corpora",
        "the depths",
        "the questions asked at a time",
    ]
    assert "exact match" in format_comparison(both)
    assert len(list(both.pairs())) == len(QUESTIONS)


def test_only_the_same_questions_under_the_same_rule_compare(tmp_path: Path) -> None:
    a = evaluate(pipeline(), QUESTIONS, out=tmp_path / "a")
    with pytest.raises(Mismatch, match="more questions"):
        compare(a, evaluate(pipeline(), QUESTIONS[:2], out=tmp_path / "b"))
    with pytest.raises(Mismatch, match="question 1 of"):
        compare(a, evaluate(pipeline(), QUESTIONS[::-1], out=tmp_path / "c"))
    with pytest.raises(Mismatch, match="rule nq"):
        compare(a, evaluate(pipeline(), QUESTIONS, out=tmp_path / "d", unicode=None))


# Coverage


def store(folder: Path, texts: list[str]) -> PassageStore:
    with PassageWriter(folder) as writer:
        for n, text in enumerate(texts):
            writer.add_document(Document(str(n), "title", text, "path"), [(0, len(text))])
    return PassageStore.open(folder)


WORDS = st.text(alphabet="ab ÁáΣςσ.-\u0301\u00a0é", min_size=0, max_size=8)


def row_of(number: int, question: Question) -> Row:
    return score(number, question, SystemResult(Answer("", None, 0.0, 0.0), [], []), Rule())


@given(texts=st.lists(WORDS, min_size=1, max_size=8), answers=st.lists(st.lists(WORDS, max_size=3), max_size=6))
@settings(deadline=None, max_examples=60)
@pytest.mark.parametrize("regex", [False, True])
def test_what_the_corpus_lacks_is_what_no_passage_has(
    tmp_path_factory: pytest.TempPathFactory, regex: bool, texts: list[str], answers: list[list[str]]
) -> None:
    asked = [Question("?", tuple(each)) for each in answers]
    rows = [row_of(number, question) for number, question in enumerate(asked)]
    expected = {
        n for n, q in enumerate(asked) if q.answers and not any(has_answer(t, q.answers, regex=regex) for t in texts)
    }
    found = find_missing(store(tmp_path_factory.mktemp("store"), texts), rows, regex=regex)
    assert found.answers == expected and not found.passages and not found.documents


def test_gold_passages_that_the_corpus_lacks_are_not_scored(tmp_path: Path) -> None:
    """A corpus that is cut otherwise has none of them: 0 % would say nothing of the retriever."""
    passages = store(tmp_path / "store", ["Ada Holm  came first.", "y"])
    asked = [
        Question("who is first?", ("Ada Holm",), passages=("Ada Holm came\nfirst.",)),
        Question("who is third?", ("Cy",), passages=("somewhere else",)),
    ]
    found = Found({q.text: hits("x", "y") for q in asked})
    found.passages = passages  # type: ignore[attr-defined]
    report = evaluate(Pipeline(found, Said(SAID)), asked, out=tmp_path / "r")
    gold = report.figures["gold_passage"]
    assert (gold["questions"], gold["in_corpus"], gold["mrr"]) == (2, 1, 0.0)
    only = evaluate(Pipeline(found, Said(SAID)), asked[1:], out=tmp_path / "r2").figures["gold_passage"]
    assert (only["in_corpus"], only["accuracy"]) == (0, None)


def test_a_right_answer_without_a_passage_raises_the_bound(tmp_path: Path) -> None:
    """Exact match forgives punctuation, has-answer does not."""
    found = Found({"who is first?": hits("Holm, Ada")})
    found.passages = store(tmp_path / "store", ["Holm, Ada"])  # type: ignore[attr-defined]
    report = evaluate(
        Pipeline(found, Said({"who is first?": ("Holm, Ada", 0.5)})),
        [Question("who is first?", ("Holm Ada",))],
        out=tmp_path / "r",
    )
    assert report.em == 1.0 and report.figures["coverage_bound"] == {"corpus": 1.0, "retrieved": 1.0}


# Kinds


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Who wrote it?", "who"),
        ("In what year did it end?", "what"),
        ("how many pages has it", "how many"),
        ("how is it made", "how"),
        ("total number of inmates", "other"),
        ("To whom was it sold?", "who"),
        ("somewhat odd, when was it", "when"),
        ("1871?", "other"),
        ("Кто построил маяк?", "other"),
        ("how", "how"),
    ],
)
def test_the_question_word_is_the_first_one(text: str, word: str) -> None:
    assert question_word(Question(text)) == word


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("May 18 , 2018", "date"),
        ("1871", "date"),
        ("the 1990s", "date"),
        ("March", "date"),
        ("12th century", "date"),
        ("282", "number"),
        ("2,718", "number"),
        ("1500,000", "number"),
        ("1500 meters", "number"),
        ("Ad agency", "phrase"),
        ("44 BC", "date"),
        ("1914–1918", "date"),
        ("“Hello World”", "name"),
        ("seven", "number"),
        ("Wilhelm Conrad Röntgen", "name"),
        ("University of Oslo", "name"),
        ("drug abuse", "phrase"),
        ("", "none"),
    ],
)
def test_the_type_of_an_answer(answer: str, kind: str) -> None:
    assert answer_type(Question("?", (answer,))) == kind


def test_the_length_of_an_answer() -> None:
    assert [answer_length(Question("?", ("w " * n,))) for n in (0, 1, 3, 4, 5, 6)] == [
        "none",
        "1",
        "3",
        "4-5",
        "4-5",
        "6 or more",
    ]
