"""The ``ragqa`` command: parse, one library call, print."""

import io
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from ragqa.cli import evaluate as evaluate_commands
from ragqa.cli import index as index_commands
from ragqa.cli.options import (
    READER_DEFAULT,
    SETTINGS,
    MultiValueCommand,
    PipelineOptions,
    QuestionGroup,
    add_pipeline_options,
)
from ragqa.cli.output import ANSWERED, BAD, BUG, DECLINED, INTERRUPTED, complain, say
from ragqa.errors import BadInput, RagqaError

app = typer.Typer(**SETTINGS, cls=QuestionGroup)


def _show_version(is_given: bool) -> None:
    if is_given:
        from ragqa import __version__

        say(f"ragqa {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Answer questions from your own documents, with sources."""


@app.command(epilog='Example: ragqa ask "Who built the first reflecting telescope?"')
@add_pipeline_options
def ask(
    pipeline_options: PipelineOptions,
    question: Annotated[
        str | None, typer.Argument(help="Question; without one, each line of standard input, or a prompt.")
    ] = None,
    min_confidence: Annotated[
        float | None, typer.Option(min=0, max=1, help=f"Decline answers below this confidence.{READER_DEFAULT}")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Answer a question from an index; without --index, from the demo encyclopedia."""
    from ragqa.cli import ask as asking

    place = pipeline_options.find_index()
    if place is None:
        from ragqa.demo import demo_index
        from ragqa.progress import Bars

        place = demo_index(progress=Bars())
    pipeline = pipeline_options.load_pipeline(place)
    format_result = asking.format_json if as_json else asking.format_text
    if question is not None:
        answer = asking.ask_one(pipeline, question, min_confidence, format_result)
        raise typer.Exit(DECLINED if answer.text is None else ANSWERED)
    if sys.stdin is None:
        raise BadInput("no question, and no standard input to read questions from")
    if sys.stdin.isatty():
        asking.prompt(pipeline, min_confidence, format_result)
        return
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="surrogateescape")  # with a byte order mark, or without
    questions = (line.rstrip("\r\n") for line in sys.stdin if line.strip())
    refused = 0
    for result in asking.ask_many(pipeline, questions, min_confidence):
        say(format_result(result))
        refused += isinstance(result, asking.Refusal)
    if refused:
        complain(f"{refused} of the questions could not be asked")
        raise typer.Exit(BAD)


app.command(epilog="Example: ragqa index notes/ --out notes.index")(index_commands.index)
app.command(cls=MultiValueCommand, epilog="Example: ragqa update notes.index --add notes/new.md --delete notes/old.md")(
    index_commands.update
)
app.add_typer(evaluate_commands.app, name="eval")


@app.command(epilog="Example: ragqa export runs/reader/model --out my-reader")
def export(
    source: Annotated[str, typer.Argument(help="Directory of a trained encoder or reader, or a hub name.")],
    out: Annotated[Path, typer.Option(help="Directory of the export.")],
    share: Annotated[Path | None, typer.Option(help="Export whose file of equal word embeddings is shared.")] = None,
    card: Annotated[Path | None, typer.Option(help="Model card (Markdown) to add to the export.")] = None,
) -> None:
    """Export a trained encoder or reader to 8-bit ONNX, which runs without torch."""
    from ragqa.runtime.export import export as export_model

    manifest = export_model(source, out, share=share, card=card)
    size = sum(file["size"] for file in manifest.files.values()) / 1e6
    say(f"{manifest.kind} {manifest.fingerprint} in {out}: {size:.1f} MB")


@app.command(epilog="Example: ragqa demo --rebuild")
def demo(
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Build the index again.")] = False,
) -> None:
    """Build the index of the demo encyclopedia and show where it is."""
    from ragqa.artefacts.paths import get_demo_dir
    from ragqa.demo import demo_index
    from ragqa.progress import Bars

    target = demo_index(rebuild=rebuild, progress=Bars())
    say(f"index      {target}")
    say(f"articles   {get_demo_dir() / 'articles'}")
    say(f"questions  {get_demo_dir() / 'questions.jsonl'}")


def main() -> None:
    """Ask, index or evaluate from the command line; errors are one line on stderr."""
    if sys.stdout is None:
        complain("standard output is closed: the answer cannot be shown")
        raise SystemExit(BAD)
    try:
        app()
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            can_resume = {"index", "eval"} & set(sys.argv[1:2])
            complain("interrupted" + "; run the same command again to continue" * bool(can_resume))
        raise
    except (RagqaError, OSError, UnicodeError) as error:
        complain(str(error))
        raise SystemExit(BAD) from None
    except Exception:  # a bug: Python's own status for it, 1, would be read as declined
        traceback.print_exc()
        raise SystemExit(BUG) from None
