"""``ragqa eval``: score question files, compare reports, rebuild a report's page."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ragqa.cli.options import (
    SETTINGS,
    THRESHOLD_DEFAULT,
    DefaultCommandGroup,
    FiguresAsJsonOption,
    PipelineOptions,
    add_pipeline_options,
)
from ragqa.cli.output import print_result
from ragqa.errors import BadInput
from ragqa.terminal import to_json, to_one_line

if TYPE_CHECKING:
    from ragqa.evaluation import EvaluationSettings, Report
    from ragqa.evaluation.evaluated_systems import Predictions, System
    from ragqa.evaluation.rows import Rule
    from ragqa.pipeline import Pipeline

DEMO = "demo"
"""Argument that stands for the demo's question file."""
_GENERATOR = b'name="generator" content="ragqa'
"""Tag in every page that ragqa writes; ragqa overwrites only pages with this tag."""
_EXAMPLE = "Example: ragqa eval questions.jsonl --index notes.index --out notes.report"

app = typer.Typer(
    **SETTINGS,
    cls=DefaultCommandGroup,
    help="Score a pipeline on questions with known answers; `ragqa eval questions --help` lists the options.",
    epilog=_EXAMPLE,
)


@app.command("questions", epilog=_EXAMPLE)
@add_pipeline_options
def score(
    pipeline_options: PipelineOptions,
    questions: Annotated[Path, typer.Argument(help="File of questions: JSON lines, DPR's TSV or SQuAD; or 'demo'.")],
    predictions: Annotated[
        Path | None, typer.Option(help="Score another system's answers in this file instead of an index.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory of the report.  [default: QUESTIONS-INDEX.report]")
    ] = None,
    rule: Annotated[
        str | None, typer.Option(help="Scoring rule: nq (Unicode NFD), squad or regex.  [default: nq; squad for SQuAD]")
    ] = None,
    depth: Annotated[int, typer.Option(min=1, help="Number of hits to search for answers.")] = 100,
    batch: Annotated[int, typer.Option(min=1, help="Number of questions to ask together.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="Ask only this many questions, drawn at random.")] = None,
    corpus: Annotated[str | None, typer.Option(help="Name of the corpus in the report.")] = None,
    split: Annotated[str, typer.Option(help="Split of the data set, such as dev or test.")] = "",
    min_confidence: Annotated[
        float | None,
        typer.Option(min=0, max=1, help=f"Report the effect of declining below this confidence.{THRESHOLD_DEFAULT}"),
    ] = None,
    no_read: Annotated[bool, typer.Option("--no-read", help="Score retrieval alone.")] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Discard the rows of an interrupted run.")] = False,
    no_coverage: Annotated[bool, typer.Option("--no-coverage", help="Do not search the corpus for answers.")] = False,
    as_json: FiguresAsJsonOption = False,
) -> None:
    """Ask the questions and score the answers (default command); an interrupted run continues."""
    from ragqa.artefacts.paths import get_demo_dir
    from ragqa.demo import demo_index
    from ragqa.evaluation import EvaluationSettings, evaluate
    from ragqa.evaluation.question_set import QuestionSet
    from ragqa.progress import Bars

    index, is_demo = pipeline_options.find_index(), str(questions) == DEMO
    file, name = (get_demo_dir() / "questions.jsonl", "demo questions") if is_demo else (questions, None)
    question_set = QuestionSet.from_file(file, name=name, split=split).sample(limit)
    if is_demo and index is None and predictions is None:
        index, corpus = demo_index(progress=Bars()), corpus or "demo encyclopedia"
    scoring = _choose_rule(rule, questions)
    settings = EvaluationSettings(
        name=question_set.name,
        split=question_set.split,
        corpus=corpus,
        regex=scoring.regex,
        unicode=scoring.unicode,
        k=pipeline_options.k,
        depth=depth,
        batch=batch,
        min_confidence=min_confidence,
        read=not no_read,
        coverage=not no_coverage,
        resume=False if restart else None,
        about={"command": f"ragqa {shlex.join(sys.argv[1:])}"},
    )
    system: Pipeline | System
    if index is not None and predictions is None:
        system = pipeline_options.load_pipeline(index)
    elif predictions is not None and index is None:
        system = _open_predictions(predictions, settings, pipeline_options, is_complete=limit is None)
        system.check_ids(question_set)
    else:
        raise BadInput("give --index DIR to ask, or --predictions FILE to score another system's answers")
    if out is None:
        system_name = _strip_suffixes((index or predictions or questions).resolve().name)
        out = Path(f"{_strip_suffixes(question_set.name)}-{system_name}.report")
    print_result(_format_report(evaluate(system, question_set, settings, out=out, progress=Bars()), as_json=as_json))


@app.command(epilog="Example: ragqa eval compare bm25.report hybrid.report --html both.html")
def compare(
    first: Annotated[Path, typer.Argument(help="Directory of a report.")],
    second: Annotated[Path, typer.Argument(help="Directory of a report on the same questions.")],
    html: Annotated[Path | None, typer.Option(help="HTML page to write, with both reports side by side.")] = None,
    as_json: FiguresAsJsonOption = False,
) -> None:
    """Compare two reports: differences of the scores, confidence intervals and p-values."""
    from ragqa import artefacts
    from ragqa.evaluation import Report
    from ragqa.evaluation.compare import compare as compare_reports
    from ragqa.evaluation.report.page import render_comparison_page
    from ragqa.evaluation.report.summary import format_comparison

    comparison = compare_reports(Report.load(first), Report.load(second))
    with artefacts.report_damage(f"{first} or {second}"):
        text = to_json(comparison.figures) if as_json else format_comparison(comparison)
        page = None if html is None else render_comparison_page(comparison)
    if html is not None and page is not None:
        _write_page(html, page)
        text += "" if as_json else f"\n\npage: {html}"
    print_result(text)


@app.command("page", epilog="Example: ragqa eval page notes.report")
def rebuild_page(report: Annotated[Path, typer.Argument(help="Directory of a report.")]) -> None:
    """Rebuild the figures and the page of a report, for example to add plots (extra 'eval')."""
    from ragqa.evaluation import rebuild_report

    print_result(_format_report(rebuild_report(report)))


def _open_predictions(
    file: Path, settings: "EvaluationSettings", pipeline_options: PipelineOptions, *, is_complete: bool
) -> "Predictions":
    from ragqa.evaluation.evaluated_systems import Predictions

    given = [name for name, value in vars(pipeline_options).items() if value is not None]
    if names := [name.strip("_").replace("_", "-") for name in given]:
        options = ", ".join(f"--{name}" if len(name) > 1 else f"-{name}" for name in names)
        raise BadInput(f"{options} cannot change the predictions in {file}: leave out {options}")
    return Predictions(file, depth=settings.depth, read=settings.read, is_complete=is_complete)


def _choose_rule(name: str | None, file: Path) -> "Rule":
    from ragqa.evaluation.rows import Rule
    from ragqa.question_files import is_squad

    try:
        return Rule.from_name(name or ("squad" if is_squad(file) else "nq"))
    except KeyError:
        raise BadInput(f"rule '{name}': choose one of nq, squad, regex") from None


def _strip_suffixes(name: str) -> str:
    known = {".xz", ".gz", ".json", ".jsonl", ".ndjson", ".tsv", ".csv", ".index", ".pipeline"}
    while (suffix := Path(name).suffix.lower()) in known:
        name = name[: -len(suffix)]
    return name.replace(" ", "-") or "questions"


def _format_report(report: "Report", *, as_json: bool = False) -> str:
    from ragqa.evaluation.report.summary import format_summary

    if as_json:
        return to_json({"report": str(report.path), **report.figures})
    return f"{format_summary(report)}\n\nreport: {to_one_line(str(report.path / 'report.html'))}"


def _write_page(file: Path, page: str) -> None:
    """Write the page of a comparison; raise BadInput rather than overwrite any other file."""
    from ragqa import artefacts

    in_report = (file.parent / artefacts.MANIFEST).exists()
    if in_report or (file.exists() and not (file.is_file() and _GENERATOR in file.read_bytes()[:2000])):
        raise BadInput(f"{file} is not a page of a comparison: choose another place for --html")
    with artefacts.report_write_errors(file):
        artefacts.write_text_whole(file, page)
