"""Evaluation runs that are interrupted, repeated or damaged."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ragqa.errors import BadInput
from ragqa.evaluation import Report, evaluate
from ragqa.pipeline import Pipeline
from ragqa.types import Answer, Hit
from tests.helpers.evaluation import (
    ANSWERS,
    HITS,
    QUESTIONS,
    FixedReader,
    FixedRetriever,
    drop_times,
    make_pipeline,
    write_store,
)

pytestmark = pytest.mark.usefixtures("without_plots")


class Interrupted(Exception):
    pass


def make_interrupted_pipeline(after: int) -> Pipeline:
    class InterruptedReader(FixedReader):
        left = after

        def read(self, questions: list[str], make_hits: list[list[Hit]]) -> list[Answer]:
            self.left -= 1
            if self.left < 0:
                raise Interrupted
            return super().read(questions, make_hits)

    return Pipeline(FixedRetriever(HITS), InterruptedReader(ANSWERS), k=2)


@pytest.mark.parametrize("after", [0, 1, 4])
def test_an_interrupted_run_is_resumed(tmp_path: Path, after: int) -> None:
    whole = evaluate(make_pipeline(), QUESTIONS, out=tmp_path / "whole")
    with pytest.raises(Interrupted):
        evaluate(make_interrupted_pipeline(after), QUESTIONS, out=tmp_path / "r", resume=True)
    assert not (tmp_path / "r").exists()
    second = make_pipeline()
    report = evaluate(second, iter(QUESTIONS), out=tmp_path / "r", resume=True)
    assert drop_times(report) == drop_times(whole)
    assert isinstance(second.retriever, FixedRetriever)
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
    ids=["cut", "incomplete", "renumbered", "blank lines"],
)
def test_questions_with_damaged_rows_are_asked_again(tmp_path: Path, spoil) -> None:
    whole = evaluate(make_pipeline(), QUESTIONS, out=tmp_path / "whole")
    with pytest.raises(Interrupted):
        evaluate(make_interrupted_pipeline(3), QUESTIONS, out=tmp_path / "r", resume=True)
    rows = tmp_path / ".r.evaluating" / "rows.jsonl"
    rows.write_text(spoil(rows.read_text()))
    assert drop_times(evaluate(make_pipeline(), QUESTIONS, out=tmp_path / "r", resume=True)) == drop_times(whole)


@pytest.mark.parametrize(
    "changed",
    [{"answers": ("nobody",)}, {"id": "q7"}, {"passages": ("x",)}, {"documents": ("d1",)}],
    ids=lambda change: next(iter(change)),
)
def test_rows_are_rebuilt_from_the_first_changed_question(tmp_path: Path, changed: dict) -> None:
    with pytest.raises(Interrupted):
        evaluate(make_interrupted_pipeline(3), QUESTIONS, out=tmp_path / "r", resume=True)
    questions = [QUESTIONS[0], replace(QUESTIONS[1], **changed), *QUESTIONS[2:]]
    second = make_pipeline()
    report = evaluate(second, questions, out=tmp_path / "r", resume=True)
    assert drop_times(report) == drop_times(evaluate(make_pipeline(), questions, out=tmp_path / "whole"))
    assert isinstance(second.retriever, FixedRetriever) and second.retriever.asked[0][0] == "who is second?"


@pytest.mark.parametrize("other", [{"regex": True}, {"unicode": None}, {"batch": 2}, {"k": 1}, {"depth": 7}])
def test_rows_of_another_run_are_neither_reused_nor_deleted(tmp_path: Path, other: dict) -> None:
    with pytest.raises(Interrupted):
        evaluate(make_interrupted_pipeline(3), QUESTIONS, out=tmp_path / "r", resume=True)
    rows = (tmp_path / ".r.evaluating" / "rows.jsonl").read_bytes()
    with pytest.raises(BadInput, match=r"holds the rows of a run of another system, rule or batch"):
        evaluate(make_pipeline(), QUESTIONS, out=tmp_path / "r", resume=True, **other)
    with pytest.raises(BadInput, match="holds the rows"):
        evaluate(
            Pipeline(FixedRetriever(HITS), FixedReader(ANSWERS, "other"), k=2),
            QUESTIONS,
            out=tmp_path / "r",
            resume=True,
        )
    with pytest.raises(BadInput, match="rows of more questions than are asked now"):
        evaluate(make_pipeline(), QUESTIONS[:2], out=tmp_path / "r", resume=True)
    assert (tmp_path / ".r.evaluating" / "rows.jsonl").read_bytes() == rows
    evaluate(make_pipeline(), QUESTIONS[:2], out=tmp_path / "r", resume=False, **other)


def test_two_runs_into_one_directory_are_refused(tmp_path: Path) -> None:
    class NestedReader(FixedReader):
        def read(self, questions: list[str], make_hits: list[list[Hit]]) -> list[Answer]:
            with pytest.raises(BadInput, match="another process is at work"):
                evaluate(make_pipeline(), QUESTIONS, out=tmp_path / "r")
            return super().read(questions, make_hits)

    evaluate(Pipeline(FixedRetriever(HITS), NestedReader(ANSWERS), k=2), QUESTIONS[:1], out=tmp_path / "r")


@pytest.mark.parametrize("where", ["write_report", "find_missing", "Report"])
def test_a_run_interrupted_while_reporting_asks_no_question_again(tmp_path: Path, where: str, monkeypatch) -> None:
    """Interrupted after the last question, a run leaves a whole report or none."""
    import ragqa.evaluation.run as module

    def stop(*arguments: object, **options: object) -> None:
        raise Interrupted

    texts = write_store(tmp_path / "store", ["Ada Holm"])
    first, second = make_pipeline(), make_pipeline()
    for each in (first, second):
        each.retriever.passages = texts  # type: ignore[attr-defined]
    with monkeypatch.context() as patched, pytest.raises(Interrupted):
        patched.setattr(module, where, type("Stop", (), {"load": stop}) if where == "Report" else stop)
        evaluate(first, QUESTIONS, out=tmp_path / "r", resume=True)
    assert (tmp_path / "r").exists() == (where == "Report")
    report = evaluate(second, QUESTIONS, out=tmp_path / "r", resume=True)
    assert isinstance(second.retriever, FixedRetriever) and second.retriever.asked == []
    assert drop_times(report) == drop_times(evaluate(make_pipeline(), QUESTIONS, out=tmp_path / "whole"))


def test_rows_of_a_pipeline_in_memory_are_not_reused_by_default(tmp_path: Path) -> None:
    """Rows are reused only for a pipeline with a fingerprint, or on request."""
    with pytest.raises(Interrupted):
        evaluate(make_interrupted_pipeline(3), QUESTIONS, out=tmp_path / "r")
    second = make_pipeline()
    evaluate(second, QUESTIONS, out=tmp_path / "r")
    assert isinstance(second.retriever, FixedRetriever) and ("who is first?", 2) in second.retriever.asked


SLOW_RUN = """
import sys, time
sys.path[:0] = [{tests!r}, {tests!r} + "/tests"]
from tests.helpers.evaluation import ANSWERS, HITS, QUESTIONS, FixedReader, FixedRetriever
from ragqa import Pipeline
from ragqa.evaluation import evaluate

class Slow(FixedReader):
    def read(self, questions, hits):
        time.sleep(0.02)
        return super().read(questions, hits)

evaluate(Pipeline(FixedRetriever(HITS), Slow(ANSWERS), k=2), QUESTIONS * 10, out={out!r}, resume=True)
"""


def test_a_killed_process_loses_no_row(tmp_path: Path) -> None:
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
    assert drop_times(Report.load(tmp_path / "r")) == drop_times(
        evaluate(make_pipeline(), QUESTIONS * 10, out=tmp_path / "whole")
    )
