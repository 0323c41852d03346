"""Ask every question, score it, and write the row before the next: what is killed goes on where it was."""

import datetime
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from ragqa import artefact
from ragqa.errors import BadInput
from ragqa.evaluation.coverage import not_in_corpus
from ragqa.evaluation.report import ROWS, Report, read_rows, write_report
from ragqa.evaluation.rows import Row, Rule, score
from ragqa.evaluation.systems import AskedPipeline, System
from ragqa.locks import locked
from ragqa.machine import hardware
from ragqa.pipeline import Pipeline
from ragqa.progress import SILENT, Progress
from ragqa.types import Question

DEPTH = 100
"""Hits of a question that are scored for answers (DPR's top-100 accuracy)."""
MIN_CONFIDENCE = 0.2
"""Below it ``ragqa ask`` declines."""


def evaluate(
    pipeline: Pipeline | System,
    questions: Iterable[Question],
    *,
    out: str | Path | None = None,
    name: str = "questions",
    split: str = "",
    corpus: str | None = None,
    regex: bool = False,
    unicode: Literal["NFD"] | None = "NFD",
    k: int | None = None,
    depth: int = DEPTH,
    batch: int = 1,
    min_confidence: float = MIN_CONFIDENCE,
    read: bool = True,
    coverage: bool = True,
    resume: bool | None = None,
    about: Mapping[str, Any] | None = None,
    total: int | None = None,
    progress: Progress = SILENT,
) -> Report:
    """Ask ``questions`` one after the other, and report how right the answers are.

    Every question is answered, however unsure the pipeline is; what declining would do is part of the
    report. Scores are shares in [0, 1].

    Args:
        pipeline: what is asked; or ``Predictions`` of another system.
        questions: consumed one by one; nothing of them is kept in memory but numbers.
        out: directory of the report. A killed run leaves its rows beside it and goes on from them when it
            is started again with the same pipeline and scoring (see ``resume``). Without it the report lies in a
            temporary directory, which goes when the process ends.
        name: what the questions are called in the report.
        split: which part of a data set they are.
        corpus: what the passages are called; by default the names of the files they were made of.
        regex: gold answers are patterns (CuratedTREC).
        unicode: of exact match: ``NFD`` (ORQA, NQ-open) or None (SQuAD, DPR).
        k: passages to read; by default the pipeline's own number.
        depth: hits to look for answers in.
        batch: questions asked together. With 1 the times are latencies; with more, shares of a batch's time.
        min_confidence: the threshold at which declining is reported.
        read: False to score retrieval alone.
        coverage: look through the whole corpus for the answers that no hit holds.
        resume: go on from the rows of a run that was killed. By default only where the pipeline was loaded,
            and so is known by fingerprint: a model in memory may have changed since.
        about: further things to say of the questions in the report: ``source``, ``caution``, ``published``.
        total: how many questions there are, for the progress bar, where they cannot tell.
        progress: told how far it is.

    Raises:
        BadInput: no questions, one that is empty, ``out`` is something else than a report, a full disk.
    """
    if batch < 1:
        raise BadInput(f"batch = {batch}: at least one question must be asked at a time")
    rule = Rule(regex=regex, unicode=unicode)
    # A system of another kind says itself how deep it looks and what it reads.
    system = AskedPipeline(pipeline, k=k, depth=depth, read=read) if isinstance(pipeline, Pipeline) else pipeline
    described = system.describe()
    told: dict[str, Any] = {
        **(about or {}),
        "name": name,
        "split": split,
        "rule": rule.name,
        "corpus": corpus or ", ".join(described.get("sources", [])) or "not known",
        "batch": batch,
        "min_confidence": min_confidence,
        "date": datetime.date.today().isoformat(),
        "hardware": hardware(),
        "system": described,
    }
    if resume is None:
        resume = system.known
    if total is None and isinstance(questions, Sized):
        total = len(questions)
    identity = [rule.name, described]
    with (
        _target(out) as target,
        artefact.as_bad_input(target),
        _workplace(target, identity if resume else None) as folder,
    ):
        if not _ask(system, questions, folder / ROWS, rule, batch, total or 0, progress):
            raise BadInput("no questions: there is nothing to score")
        passages = getattr(getattr(pipeline, "retriever", None), "passages", None)
        missing = None
        if coverage and passages is not None:
            # Held are numbers and answers of the questions without a hit that holds an answer, nothing else.
            wanted = [(r.number, r.answers) for r in read_rows(folder) if r.answers and r.rank is None]
            missing = not_in_corpus(passages, wanted, regex=regex, progress=progress)
        write_report(folder, told, missing)
        artefact.put_in_place(folder, target)
        return Report.load(target)


@contextmanager
def _target(out: str | Path | None) -> Iterator[Path]:
    if out is not None:
        target = Path(out).resolve()
        artefact.check_replaceable(target, "report")
        yield target
    else:
        yield Path(tempfile.mkdtemp(prefix="ragqa-report-")) / "report"


@contextmanager
def _workplace(target: Path, identity: list[Any] | None) -> Iterator[Path]:
    """The locked folder where rows are written; emptied if another system or rule began it, or None does."""
    folder = target.with_name(f".{target.name}.evaluating")
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.with_name(f".{target.name}.lock"), wait=False):
        mark, ours = folder / "run.json", json.dumps(identity, sort_keys=True)
        if identity is None or not mark.is_file() or mark.read_text() != ours:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            mark.write_text(ours)
        yield folder


def _ask(
    system: System,
    questions: Iterable[Question],
    file: Path,
    rule: Rule,
    batch: int,
    total: int,
    progress: Progress,
) -> int:
    """Write the rows that are missing in ``file``; the number of all rows."""
    file.touch()
    rest, done = _after_rows(system, iter(questions), file)
    with progress.step("asking", total, "questions", done) as step, file.open("a", encoding="utf-8") as rows:
        while asked := list(islice(rest, batch)):
            for question, examined in zip(asked, system.examine(asked), strict=True):
                rows.write(score(done, question, examined, rule).to_json() + "\n")
                done += 1
            rows.flush()
            step.at(done)
    return done


def _after_rows(system: System, questions: Iterator[Question], file: Path) -> tuple[Iterator[Question], int]:
    """The questions that have no row yet, and how many have one; what does not belong to them is cut off."""
    done, size = 0, 0
    pending: list[Question] = []
    with file.open("rb") as rows:
        for line in rows:
            pending = list(islice(questions, 1))
            if not pending or not _is_row_of(line, done, pending[0]):
                break
            system.skip(pending)
            pending, done, size = [], done + 1, size + len(line)
    with file.open("rb+") as rows:
        rows.truncate(size)
    return chain(pending, questions), done


def _is_row_of(line: bytes, number: int, question: Question) -> bool:
    try:
        row = Row.from_json(line.decode("utf-8"))
    except (ValueError, KeyError, TypeError):
        return False
    return line.endswith(b"\n") and (row.number, row.asked) == (
        number,
        Question(question.text, question.answers, question.id),
    )
