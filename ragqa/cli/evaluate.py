"""``ragqa eval``: question files, reports and comparisons as the command line takes and prints them."""

import json
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ragqa import artefacts
from ragqa.errors import BadInput
from ragqa.evaluation import Report, evaluate
from ragqa.evaluation.compare import compare
from ragqa.evaluation.report.page import comparison_page
from ragqa.evaluation.report.summary import comparison_summary, summary
from ragqa.evaluation.rows import Rule
from ragqa.evaluation.systems import Predictions, System
from ragqa.pipeline import Pipeline
from ragqa.progress import Bars
from ragqa.questions import drawn, is_squad, read_questions
from ragqa.reading.base import Decoding
from ragqa.types import Question

DEMO = "demo"
"""In place of a question file: the demo's own."""
_GENERATOR = b'name="generator" content="ragqa'
"""By which a page of ours is known."""


def score_file(
    file: Path,
    index: Path | None,
    *,
    predictions: Path | None,
    out: Path | None,
    rule: str | None,
    limit: int | None,
    pipeline: dict[str, Any],
    decoding: dict[str, Any],
    k: int | None,
    depth: int,
    split: str,
    read: bool,
    restart: bool,
    **options: Any,
) -> Report:
    """Evaluate a pipeline, or predictions, on the questions of ``file``; further options as of ``evaluate``.

    Raises:
        BadInput: a line is not a question (all are looked at before the first is asked), an unknown rule,
            neither an index nor predictions, or both, options of a pipeline with predictions.
    """
    progress = Bars()
    name = file.name
    if str(file) == DEMO:
        from ragqa.artefacts.paths import demo_dir
        from ragqa.demo import demo_index

        file, name = demo_dir() / "questions.jsonl", "demo questions"
        if index is None and predictions is None:
            index = demo_index(progress=progress)
            options["corpus"] = options["corpus"] or "demo encyclopedia"
    if (index is None) == (predictions is None):
        raise BadInput("give --index DIR to ask, or --predictions FILE to score what another system said")
    scoring = _rule(rule, file)
    total = sum(1 for _ in read_questions(file))
    questions: Iterable[Question] = read_questions(file)
    part = split
    if limit is not None and limit < total:
        part = f"{limit:,} of {split or 'them'}, drawn by chance"
        questions, total = drawn(questions, total, limit), limit
    asked: Pipeline | System
    if predictions is not None:
        _refuse({**pipeline, **decoding, "k": k})
        asked = Predictions(predictions, depth=depth, read=read, all_asked=limit is None)
    else:
        assert index is not None
        settings = {**pipeline, "device": pipeline["device"] or "cpu"}
        asked = Pipeline.load(index, decoding=Decoding.from_options(**decoding), **settings)
        if asked.note:
            print(f"ragqa: {asked.note}", file=sys.stderr)
    return evaluate(
        asked,
        questions,
        out=out or Path(f"{_stem(name)}-{_stem((index or predictions or file).resolve().name)}.report"),
        name=name,
        split=part,
        regex=scoring.regex,
        unicode=scoring.unicode,
        k=k,
        depth=depth,
        read=read,
        resume=False if restart else None,
        about={"command": f"ragqa {shlex.join(sys.argv[1:])}"},
        total=total,
        progress=progress,
        **options,
    )


def _refuse(given: dict[str, Any]) -> None:
    """Options that say something of a pipeline say nothing of predictions."""
    options = [name.replace("_", "-") for name, value in given.items() if value is not None]
    named = [f"--{name}" if len(name) > 1 else f"-{name}" for name in options]
    if named:
        raise BadInput(f"{', '.join(named)} cannot change predictions that were made already: leave it out")


def _rule(name: str | None, file: Path) -> Rule:
    """The rule of this name; without one SQuAD's for its own files, else that of NQ-open."""
    if name is None:
        name = "squad" if is_squad(file) else "nq"
    try:
        return Rule.named(name)
    except KeyError:
        raise BadInput(f"rule '{name}': choose one of nq, squad, regex") from None


def _stem(name: str) -> str:
    """A file's or index's name without what says its kind."""
    known = {".xz", ".gz", ".json", ".jsonl", ".ndjson", ".tsv", ".csv", ".index", ".pipeline"}
    while (suffix := Path(name).suffix.lower()) in known:
        name = name[: -len(suffix)]
    return name.replace(" ", "-") or "questions"


def shown(report: Report, *, as_json: bool = False) -> str:
    """The figures, for people or for machines."""
    if as_json:
        return json.dumps({"report": str(report.path), **report.figures}, ensure_ascii=False)
    return f"{summary(report)}\n\nreport: {report.path / 'report.html'}"


def compared(a: Path, b: Path, html: Path | None, *, as_json: bool = False) -> str:
    """Two reports side by side; written as a page, too, if ``html`` is given.

    Raises:
        BadInput: ``html`` is something else than a page of ragqa's, or cannot be written.
    """
    both = compare(Report.load(a), Report.load(b))
    text = json.dumps(both.figures, ensure_ascii=False) if as_json else comparison_summary(both)
    if html is None:
        return text
    _write_page(html, comparison_page(both))
    return text if as_json else f"{text}\n\npage: {html}"


def _write_page(file: Path, page: str) -> None:
    in_report = (file.parent / artefacts.MANIFEST).exists()
    if in_report or (file.exists() and not (file.is_file() and _GENERATOR in file.read_bytes()[:2000])):
        raise BadInput(f"{file} is not a page of a comparison: choose another place for --html")
    aside = file.with_name(f".{file.name}.writing")
    try:
        with artefacts.report_write_errors(file):
            aside.write_text(page, encoding="utf-8")
            aside.replace(file)
    finally:
        aside.unlink(missing_ok=True)
