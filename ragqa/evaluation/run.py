"""Ask every question, score it, and write the row before the next: what is killed goes on where it was."""

import atexit
import datetime
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from ragqa import __version__, artefacts
from ragqa.artefacts.lock import hold_lock
from ragqa.artefacts.machine import describe_hardware
from ragqa.errors import BadInput
from ragqa.evaluation.coverage import look_through
from ragqa.evaluation.report.store import ROWS, Report, read_rows, write_report
from ragqa.evaluation.rows import Row, Rule, question_digest, score
from ragqa.evaluation.systems import AskedPipeline, System
from ragqa.pipeline import Pipeline
from ragqa.progress import SILENT, Progress
from ragqa.reading.calibration import THRESHOLD
from ragqa.types import Question

DEPTH = 100
"""Hits of a question that are scored for answers (DPR's top-100 accuracy)."""


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
    min_confidence: float | None = None,
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
        k: passages to read; by default the pipeline's own number. A system of another kind says itself how deep it
            looks and what it reads: ``k``, ``depth`` and ``read`` are a pipeline's.
        depth: hits to look for answers in.
        batch: questions asked together. With 1 the times are latencies; with more, shares of a batch's time.
        min_confidence: the threshold at which declining is reported; by default the one below which ``ragqa ask``
            declines, the reader's own.
        read: False to score retrieval alone.
        coverage: look through the whole corpus for the answers and gold passages that no hit holds.
        resume: go on from the rows of a run that was killed; False starts anew. By default so where the pipeline
            was loaded, and so is known by fingerprint: a model in memory may have changed since.
        about: further things to say of the questions in the report: ``source``, ``caution``, ``published``.
        total: how many questions there are, for the progress bar, where they cannot tell.
        progress: told how far it is.

    Raises:
        BadInput: no questions, one that is empty, ``out`` is something else than a report, a full disk, rows of
            another run that did not end.
    """
    if batch < 1:
        raise BadInput(f"batch = {batch}: at least one question must be asked at a time")
    rule = Rule(regex=regex, unicode=unicode)
    system = AskedPipeline(pipeline, k=k, depth=depth, read=read) if isinstance(pipeline, Pipeline) else pipeline
    described = system.describe()
    told: dict[str, Any] = {
        **(about or {}),
        "name": name,
        "split": split,
        "rule": rule.name,
        "corpus": corpus or ", ".join(described.get("sources", [])) or "not known",
        "batch": batch,
        "min_confidence": _threshold(pipeline) if min_confidence is None else min_confidence,
        "date": datetime.date.today().isoformat(),
        "hardware": describe_hardware(),
        "system": described,
    }
    told = _plain(told)
    identity = [__version__, rule.name, batch, describe_hardware(), described]
    resume = system.known if resume is None else resume
    if total is None and isinstance(questions, Sized):
        total = len(questions)
    with _target(out) as target, _workplace(target, identity, resume) as folder:
        _ask(system, questions, folder / ROWS, rule, batch, total or 0, progress)
        passages = getattr(getattr(pipeline, "retriever", None), "passages", None)
        missing = None
        if coverage and passages is not None:
            missing = look_through(passages, read_rows(folder), regex=regex, progress=progress)
        with artefacts.replace_directory(target) as made:
            shutil.copyfile(folder / ROWS, made / ROWS)
            write_report(made, told, missing)
        return Report.load(target)


def _threshold(asked: Pipeline | System) -> float:
    """Of the reader that answers; the usual one of a system that has none of its own."""
    found: float = getattr(getattr(asked, "reader", None), "threshold", THRESHOLD)
    return found


@contextmanager
def _target(out: str | Path | None) -> Iterator[Path]:
    """Where the report goes: ``out``, or a folder that is deleted when the process ends."""
    if out is None:
        temporary = tempfile.mkdtemp(prefix="ragqa-report-")
        atexit.register(shutil.rmtree, temporary, ignore_errors=True)
        out = Path(temporary, "report")
    target = Path(out).resolve()
    artefacts.check_replaceable(target, "report")
    yield target


@contextmanager
def _workplace(target: Path, identity: list[Any], resume: bool) -> Iterator[Path]:
    """The hold_lock folder where rows are written, gone once the block ends well.

    Raises:
        BadInput: there are rows of another run, which are not to be lost.
    """
    folder = target.with_name(f".{target.name}.evaluating")
    with artefacts.report_write_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(target.with_name(f".{target.name}.lock"), wait=False):
        mark, ours = folder / "run.json", json.dumps(identity, sort_keys=True).encode()
        if resume and mark.is_file() and mark.read_bytes() != ours:
            raise BadInput(
                f"{folder} holds the rows of a run of another system, rule or batch that did not end: choose another "
                "--out, or start anew with --restart"
            )
        with artefacts.report_write_errors(target):
            if not (resume and mark.is_file()):
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                mark.write_bytes(ours)
        try:
            yield folder
        except BaseException:
            rows = folder / ROWS
            if not rows.is_file() or not rows.stat().st_size:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder)


def _plain(told: dict[str, Any]) -> dict[str, Any]:
    """The same as text that can be written: a file's name need not be."""
    plain: dict[str, Any] = json.loads(json.dumps(told, ensure_ascii=False).encode("utf-8", "replace"))
    return plain


def _ask(
    system: System,
    questions: Iterable[Question],
    file: Path,
    rule: Rule,
    batch: int,
    total: int,
    progress: Progress,
) -> None:
    """Write the rows that are missing in ``file``."""
    file.touch()
    rest, done = _after_rows(system, iter(questions), file)
    with progress.step("asking", total, "questions", done) as step:
        while asked := list(islice(rest, batch)):
            examined = system.examine(asked)
            lines = [
                score(done + n, question, each, rule).to_json() + "\n"
                for n, (question, each) in enumerate(zip(asked, examined, strict=True))
            ]
            with artefacts.report_write_errors(file), file.open("a", encoding="utf-8") as rows:
                rows.writelines(lines)
            done += len(lines)
            step.at(done)
    system.finish()
    if not done:
        raise BadInput("no questions: there is nothing to score")


def _after_rows(system: System, questions: Iterator[Question], file: Path) -> tuple[Iterator[Question], int]:
    """The questions that have no row yet, and how many have one; rows from a changed question on are cut off.

    Raises:
        BadInput: there are more rows than questions, and they are not to be lost.
    """
    done, size = 0, 0
    pending: list[Question] = []
    with file.open("rb") as rows:
        for line in rows:
            pending = list(islice(questions, 1))
            row = _row(line)
            if not pending and row is not None:
                raise BadInput(
                    f"{file} holds rows of more questions than are asked now: choose another --out, or start anew "
                    "with --restart"
                )
            if not pending or row is None or (row.number, row.digest) != (done, question_digest(pending[0])):
                break
            system.skip(pending[0])
            pending, done, size = [], done + 1, size + len(line)
    with file.open("rb+") as rows:
        rows.truncate(size)
    return chain(pending, questions), done


def _row(line: bytes) -> Row | None:
    """The row of a whole line."""
    try:
        return Row.from_json(line.decode("utf-8")) if line.endswith(b"\n") else None
    except (ValueError, KeyError, TypeError):
        return None
