"""Evaluation of a system on a set of questions, with a report."""

import atexit
import datetime
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from ragqa import __version__, artefacts
from ragqa.artefacts.lock import hold_lock
from ragqa.artefacts.machine import describe_hardware
from ragqa.errors import BadInput
from ragqa.evaluation.corpus_coverage import find_missing
from ragqa.evaluation.evaluated_systems import EvaluatedPipeline, System
from ragqa.evaluation.report.store import ROWS, Report, read_rows
from ragqa.evaluation.report.write import write_report
from ragqa.evaluation.rows import Row, Rule, digest_question, score_result
from ragqa.pipeline import Pipeline
from ragqa.progress import SILENT, Progress
from ragqa.reading.calibration import THRESHOLD
from ragqa.types import Question

RUN_FILE = "run.json"
"""File that identifies an unfinished run, beside the rows of the run."""
DEPTH = 100
"""Default number of hits to search for gold answers (top-100 accuracy of DPR)."""


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """Settings of an evaluation, and the labels of its report.

    Raises:
        BadInput: ``batch`` is less than 1.
    """

    name: str = "questions"
    """Name of the question set."""
    split: str = ""
    """Split of the data set: dev, test or another name."""
    corpus: str | None = None
    """Name of the corpus; None for the names of its files, if they are known."""
    regex: bool = False
    """True if gold answers are patterns (CuratedTREC)."""
    unicode: Literal["NFD"] | None = "NFD"
    """Normal form for exact match: ``NFD`` (ORQA, NQ-open) or None (SQuAD, DPR)."""
    k: int | None = None
    """Number of passages to read for each question; None for the pipeline's own number.

    ``k``, ``depth`` and ``read`` apply only to a ``Pipeline``; other systems have their own values.
    """
    depth: int = DEPTH
    """Number of hits of each question that are searched for gold answers."""
    batch: int = 1
    """Number of questions answered together; above 1, times are shares of a batch, not response times."""
    min_confidence: float | None = None
    """Confidence below which the report counts answers as declined; None for the system's own threshold."""
    read: bool = True
    """True to answer the questions; False to score retrieval alone."""
    coverage: bool = True
    """True to search the whole corpus for answers, gold passages and gold documents that are not among the hits."""
    resume: bool | None = None
    """True to continue an interrupted run from its rows, False to start again.

    None continues the run if ``System.is_identified`` is True. A pipeline that was not loaded from directories may have
    changed since the run.
    """
    about: Mapping[str, Any] = field(default_factory=dict)
    """Additional facts for the report, such as ``source`` and ``caution``."""

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise BadInput(f"batch = {self.batch}: at least one question must be asked at a time")

    @property
    def rule(self) -> Rule:
        """Scoring rule."""
        return Rule(regex=self.regex, unicode=self.unicode)


def evaluate(
    pipeline: Pipeline | System,
    questions: Iterable[Question],
    settings: EvaluationSettings | None = None,
    *,
    out: str | Path | None = None,
    progress: Progress = SILENT,
    **changes: Any,
) -> Report:
    """Ask a pipeline questions, score its answers, and write a report.

    Answers of any confidence count; the report also shows the scores with answers below the threshold declined. Scores
    are shares from 0 to 1.

    Args:
        pipeline: the pipeline to ask, or another system, for example ``Predictions``.
        questions: questions with gold answers, read one by one.
        settings: settings of the evaluation; None for ``EvaluationSettings()``.
        out: directory of the report; None for a temporary one, which is deleted when the process ends. An interrupted
            run leaves its rows next to this directory (see ``EvaluationSettings.resume``).
        progress: receiver of the numbers of answered questions and of searched passages.
        changes: fields of ``settings`` to change, for example ``k=5``.

    Returns:
        The report, loaded from ``out``.

    Raises:
        BadInput: there are no questions, a question is empty or cannot be scored, a setting is out of range, ``out``
            exists and is not a report, the disk is full, another evaluation is writing to ``out``, or the rows of
            another unfinished run would be lost.
        Mismatch: predictions in a file do not fit the questions.
        RemoteError: a server, or a shard of a served index, did not answer.
        RagqaError: another error of ``pipeline``.
    """
    settings = replace(settings or EvaluationSettings(), **changes)
    if isinstance(pipeline, Pipeline):
        system: System = EvaluatedPipeline(pipeline, k=settings.k, depth=settings.depth, read=settings.read)
    else:
        system = pipeline
    about = _describe_run(pipeline, system, settings)
    identity = [__version__, settings.rule.name, settings.batch, about["hardware"], system.describe()]
    resume = system.is_identified if settings.resume is None else settings.resume
    target = _find_directory(out)
    with _open_workspace(target, identity, resume) as folder:
        _ask_all(system, questions, folder / ROWS, settings, progress)
        passages = getattr(getattr(pipeline, "retriever", None), "passages", None)
        missing = None
        if settings.coverage and passages is not None:
            missing = find_missing(passages, read_rows(folder), regex=settings.regex, progress=progress)
        with artefacts.replace_directory(target) as report:
            shutil.copyfile(folder / ROWS, report / ROWS)
            write_report(report, about, missing)
        return Report.load(target)


def _describe_run(pipeline: Pipeline | System, system: System, settings: EvaluationSettings) -> dict[str, Any]:
    """Return the description of a run; characters that are not valid UTF-8 are replaced."""
    description = system.describe()
    threshold = settings.min_confidence
    if threshold is None:
        owner = pipeline if isinstance(pipeline, Pipeline) else getattr(pipeline, "reader", None)
        threshold = getattr(owner, "threshold", THRESHOLD)
    about = {
        **settings.about,
        "name": settings.name,
        "split": settings.split,
        "rule": settings.rule.name,
        "corpus": settings.corpus or ", ".join(description.get("sources", [])) or "not known",
        "batch": settings.batch,
        "min_confidence": threshold,
        "date": datetime.date.today().isoformat(),
        "hardware": describe_hardware(),
        "system": description,
    }
    valid: dict[str, Any] = json.loads(json.dumps(about, ensure_ascii=False).encode("utf-8", "replace"))
    return valid


def _find_directory(out: str | Path | None) -> Path:
    if out is None:
        temporary = tempfile.mkdtemp(prefix="ragqa-report-")
        atexit.register(shutil.rmtree, temporary, ignore_errors=True)
        out = Path(temporary, "report")
    target = Path(out).resolve()
    artefacts.check_replaceable(target, "report")
    return target


@contextmanager
def _open_workspace(target: Path, identity: list[Any], resume: bool) -> Iterator[Path]:
    """Yield the locked folder for the rows of a run.

    The folder is deleted at the end of the block. If the block raises an error, a folder with rows is kept.
    """
    folder = target.with_name(f".{target.name}.evaluating")
    with artefacts.report_write_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(target.with_name(f".{target.name}.lock"), wait=False):
        artefacts.check_work_directory(folder, (RUN_FILE, ROWS))
        marker, content = folder / RUN_FILE, json.dumps(identity, sort_keys=True).encode()
        if resume and marker.is_file() and marker.read_bytes() != content:
            raise BadInput(
                f"{folder} holds the rows of a run of another system, rule or batch that did not end: choose another "
                "--out, or start again with --restart"
            )
        with artefacts.report_write_errors(target):
            if not (resume and marker.is_file()):
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                marker.write_bytes(content)
        try:
            yield folder
        except BaseException:
            rows = folder / ROWS
            if not rows.is_file() or not rows.stat().st_size:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder)


def _ask_all(
    system: System, questions: Iterable[Question], file: Path, settings: EvaluationSettings, progress: Progress
) -> None:
    total = len(questions) if isinstance(questions, Sized) else 0
    file.touch()
    rest, done = _skip_finished(system, iter(questions), file)
    with progress.step("asking", total, "questions", done) as step:
        while batch := list(islice(rest, settings.batch)):
            results = system.answer_batch(batch)
            lines = [
                score_result(done + n, question, result, settings.rule).to_json() + "\n"
                for n, (question, result) in enumerate(zip(batch, results, strict=True))
            ]
            with artefacts.report_write_errors(file), file.open("a", encoding="utf-8") as rows:
                rows.writelines(lines)
            done += len(lines)
            step.advance_to(done)
    system.finish()
    if not done:
        raise BadInput("no questions: there is nothing to score")


def _skip_finished(system: System, questions: Iterator[Question], file: Path) -> tuple[Iterator[Question], int]:
    """Return the questions that have no row yet, and the number of rows.

    The file is truncated before the first row that is incomplete, or whose question has changed.
    """
    done, size = 0, 0
    pending: list[Question] = []
    with file.open("rb") as rows:
        for line in rows:
            pending = list(islice(questions, 1))
            row = _parse_row(line)
            if not pending and row is not None:
                raise BadInput(
                    f"{file} holds rows of more questions than are asked now: choose another --out, or start again "
                    "with --restart"
                )
            if not pending or row is None or (row.number, row.digest) != (done, digest_question(pending[0])):
                break
            system.skip(pending[0])
            pending, done, size = [], done + 1, size + len(line)
    with file.open("rb+") as rows:
        rows.truncate(size)
    return chain(pending, questions), done


def _parse_row(line: bytes) -> Row | None:
    try:
        return Row.from_json(line.decode("utf-8")) if line.endswith(b"\n") else None
    except (ValueError, KeyError, TypeError):
        return None
