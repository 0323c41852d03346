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

from ragqa.corpus.documents import Document
from ragqa.corpus.store import PassageStore, PassageWriter
from ragqa.errors import BadInput, BadLine, DamagedArtefact, Mismatch
from ragqa.evaluation import Report, evaluate
from ragqa.evaluation.compare import compare
from ragqa.evaluation.coverage import not_in_corpus
from ragqa.evaluation.kinds import answer_length, answer_type, question_word
from ragqa.evaluation.rows import Row
from ragqa.evaluation.summary import comparison_summary, summary
from ragqa.evaluation.systems import Predictions
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


def test_every_figure_counted_by_hand(tmp_path: Path) -> None:
    """Five questions have answers; the first stands there twice and counts twice."""
    report = evaluate(pipeline(), QUESTIONS, out=tmp_path / "r", name="five", corpus="hand-made", depth=3)
    figures = report.figures
    assert report.em == pytest.approx(2 / 5)
    assert report.f1 == pytest.approx((1 + 0 + 2 / 3 + 0 + 1) / 5)
    recall = {k: interval["value"] for k, interval in figures["answer_recall"].items()}
    assert recall == pytest.approx({"1": 3 / 5, "2": 3 / 5})
    assert figures["coverage_bound"] == {"corpus": None, "retrieved": 4 / 5}
    assert figures["gold_passage"]["questions"] == 2
    assert figures["gold_passage"]["mrr"] == pytest.approx((1 + 1 / 3) / 2)
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


def test_a_row_says_what_was_found_and_said(tmp_path: Path) -> None:
    first, second, *_, nobody = evaluate(pipeline(), QUESTIONS, out=tmp_path / "r", depth=3).rows()
    assert (first.prediction, first.em, first.f1, first.loss) == ("ada holm.", True, 1.0, "right")
    assert (first.rank, first.gold_rank, first.gold_known, first.read) == (1, 1, True, 2)
    assert [(hit.passage, hit.has_answer) for hit in first.hits] == [(0, True), (1, False), (2, False)]
    assert first.cited is not None and (first.cited.rank, first.cited.start, first.cited.end) == (1, 0, 1)
    assert first.holding is None  # it is the one that is cited
    assert second.loss == "not read" and second.rank == second.gold_rank == 3
    assert second.holding is not None and second.holding.text == "Bo came second."
    assert nobody.loss == "unanswerable" and not nobody.em
    assert first.retrieve_seconds is not None and first.retrieve_seconds >= 0


def test_predictions_are_those_of_ask(tmp_path: Path) -> None:
    asked = [question.text for question in QUESTIONS]
    rows = evaluate(pipeline(), QUESTIONS, out=tmp_path / "r").rows()
    assert [row.prediction for row in rows] == [answer.text for answer in pipeline().ask(asked)]


def test_what_is_read_is_what_asking_for_k_finds(tmp_path: Path) -> None:
    """An approximate index finds better passages when it is asked for more; they must not be read."""

    class Approximate(Found):
        def search(self, questions: list[str], k: int) -> list[list[Hit]]:
            return [hits("x") if k == 1 else hits("Ada Holm", "x") for _ in questions]

    (row,) = evaluate(Pipeline(Approximate({}), Said(SAID), k=1), QUESTIONS[:1], out=tmp_path / "r").rows()
    assert row.rank == 1 and row.cited is not None and row.cited.text == "x"


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
        "1 of 3 questions have a gold answer that is no valid pattern, which counts as wrong"
    ]
    assert "answer type" not in report.figures["breakdown"]


def test_the_unicode_rule_is_an_option(tmp_path: Path) -> None:
    """After NFD a lone á loses its a to the article rule."""
    said = Said({"who is first?": ("á", 0.5)})
    for unicode, right in (("NFD", False), (None, True)):
        question = Question("who is first?", ("á",) if unicode is None else ("a\u0301 b",))
        report = evaluate(Pipeline(Found(FOUND), said, k=1), [question], out=tmp_path / "r", unicode=unicode)  # type: ignore[arg-type]
        assert report.em == right


def test_retrieval_alone(tmp_path: Path) -> None:
    report = evaluate(pipeline(), QUESTIONS, out=tmp_path / "r", read=False, depth=3)
    assert report.em is None and report.figures["loss"] is None and report.figures["confidence"] is None
    assert report.figures["answer_recall"]["1"]["value"] == pytest.approx(3 / 5)
    assert "\nexact match" not in summary(report)


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
def test_a_broken_run_goes_on_where_it_was(tmp_path: Path, after: int) -> None:
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


def test_rows_of_other_questions_rules_or_systems_are_not_taken(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        evaluate(broken(3), QUESTIONS, out=tmp_path / "r", resume=True)
    changed = [QUESTIONS[0], replace(QUESTIONS[1], answers=("nobody",)), *QUESTIONS[2:]]
    assert [row.em for row in evaluate(pipeline(), changed, out=tmp_path / "r", resume=True).rows()][:2] == [True, True]
    with pytest.raises(Interrupted):
        evaluate(broken(3), QUESTIONS, out=tmp_path / "r", resume=True)
    second = pipeline()
    evaluate(second, QUESTIONS, out=tmp_path / "r", regex=True, resume=True)
    assert isinstance(second.retriever, Found) and ("who is first?", 2) in second.retriever.asked


def test_a_model_in_memory_may_have_changed(tmp_path: Path) -> None:
    """So rows of an earlier run are taken only from a pipeline that is known by fingerprint, or on request."""
    with pytest.raises(Interrupted):
        evaluate(broken(3), QUESTIONS, out=tmp_path / "r")
    second = pipeline()
    evaluate(second, QUESTIONS, out=tmp_path / "r")
    assert isinstance(second.retriever, Found) and ("who is first?", 2) in second.retriever.asked


SLOW_RUN = """
import sys, time
sys.path.insert(0, {tests!r})
from test_evaluation import FOUND, QUESTIONS, SAID, Found, Said
from ragqa import Pipeline
from ragqa.evaluation import evaluate

class Slow(Said):
    def read(self, questions, hits):
        time.sleep(0.02)
        return super().read(questions, hits)

evaluate(Pipeline(Found(FOUND), Slow(SAID), k=2), QUESTIONS * 10, out={out!r}, resume=True)
"""


def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    code = SLOW_RUN.format(tests=str(Path(__file__).parent), out=str(tmp_path / "r"))
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
def test_numbers_that_make_no_sense(tmp_path: Path, options: dict, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        evaluate(pipeline(), QUESTIONS, out=tmp_path / "r", **options)


def test_nothing_to_ask_and_nowhere_to_write(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no questions"):
        evaluate(pipeline(), [], out=tmp_path / "r")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("kept")
    with pytest.raises(BadInput, match="not a ragqa report"):
        evaluate(pipeline(), QUESTIONS, out=tmp_path / "precious")
    assert (tmp_path / "precious" / "file").read_text() == "kept"
    with pytest.raises(BadInput, match="question is empty"):
        evaluate(pipeline(), [Question(" ")], out=tmp_path / "r")


def test_a_report_without_a_place_is_kept_while_the_process_lives() -> None:
    report = evaluate(pipeline(), QUESTIONS)
    assert len(list(report.rows())) == len(QUESTIONS)


def test_a_damaged_report_is_named(tmp_path: Path) -> None:
    evaluate(pipeline(), QUESTIONS, out=tmp_path / "r")
    file = tmp_path / "r" / "rows.jsonl"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(DamagedArtefact, match=r"rows\.jsonl is damaged"):
        Report.load(tmp_path / "r")


def test_a_report_can_be_made_anew_from_its_rows(tmp_path: Path) -> None:
    report = evaluate(pipeline(), QUESTIONS, out=tmp_path / "r", name="five")
    assert report.renew().figures == report.figures


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
    assert report.figures["warnings"] == ["1 of 5 questions got no prediction, which counts as wrong"]
    assert report.figures["answer_recall"] == {} and report.figures["loss"] is None
    assert report.figures["confidence"] is None and report.figures["seconds"] is None
    assert "answer recall" not in summary(report)


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
        ([{"prediction": 7}, {}], BadLine, "p.jsonl:1: not a prediction"),
        ([[], {}], BadLine, "p.jsonl:1: not a prediction"),
        ([{"prediction": "a", "ctxs": [{}]}, {}], BadLine, "p.jsonl:1: not a prediction"),
    ],
)
def test_predictions_that_do_not_fit(tmp_path: Path, rows: list, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        evaluate(Predictions(write(tmp_path / "p.jsonl", *rows), depth=9), QUESTIONS[:2], out=tmp_path / "r")


@pytest.mark.parametrize(("name", "text"), [("p.json", "{"), ("p.json", "[]"), ("p.txt", ""), ("q.jsonl", None)])
def test_files_that_are_no_predictions(tmp_path: Path, name: str, text: str | None) -> None:
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
    assert "exact match" in comparison_summary(both)
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
            writer.add(Document(str(n), "title", text, "path"), [(0, len(text))])
    return PassageStore.open(folder)


WORDS = st.text(alphabet="ab ÁáΣςσ.-\u0301\u00a0é", min_size=0, max_size=8)


@given(texts=st.lists(WORDS, min_size=1, max_size=8), answers=st.lists(st.lists(WORDS, max_size=3), max_size=6))
@settings(deadline=None, max_examples=60)
@pytest.mark.parametrize("regex", [False, True])
def test_what_the_corpus_lacks_is_what_no_passage_has(
    tmp_path_factory: pytest.TempPathFactory, regex: bool, texts: list[str], answers: list[list[str]]
) -> None:
    wanted = [(number, tuple(each)) for number, each in enumerate(answers)]
    expected = {n for n, each in wanted if not any(has_answer(text, each, regex=regex) for text in texts)}
    assert not_in_corpus(store(tmp_path_factory.mktemp("store"), texts), wanted, regex=regex) == expected


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
