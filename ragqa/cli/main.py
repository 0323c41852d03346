"""The ``ragqa`` command: its subcommands, and the messages and exit statuses of errors."""

import sys
from typing import Annotated, Any

import typer

from ragqa import terminal
from ragqa.cli import ask as ask_command
from ragqa.cli import calibrate as calibrate_command
from ragqa.cli import demo as demo_command
from ragqa.cli import evaluate as evaluate_commands
from ragqa.cli import export as export_command
from ragqa.cli import index as index_commands
from ragqa.cli import mcp as mcp_command
from ragqa.cli import serve as serve_command
from ragqa.cli.options import SETTINGS, MultiValueCommand, QuestionGroup
from ragqa.cli.output import BAD, BUG, INTERRUPTED, print_error, print_result
from ragqa.errors import RagqaError
from ragqa.terminal import escape_messages, print_text, print_traceback

_ClickException: Any = typer.BadParameter.__mro__[2]
"""Base class of click's errors; some versions of Typer contain a copy of click, others import click."""

app = typer.Typer(**SETTINGS, cls=QuestionGroup)


def _show_version(is_given: bool) -> None:
    if is_given:
        from ragqa import __version__

        print_result(f"ragqa {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Answer questions from your own documents, with sources."""


app.command(epilog='Example: ragqa ask "When does the lease end?" --index notes.index --in "home/*.pdf"')(
    ask_command.ask
)
app.command(epilog="Example: ragqa index notes/ --out notes.index; again after changes")(index_commands.index)
app.command(cls=MultiValueCommand, epilog="Example: ragqa update notes.index --sync --watch")(index_commands.update)
app.add_typer(evaluate_commands.app, name="eval")
app.command(epilog="Example: ragqa calibrate notes.index --risk 0.05")(calibrate_command.calibrate)
app.command(epilog="Example: ragqa export runs/reader/model --out my-reader")(export_command.export)
app.command(epilog="Example: ragqa serve --index notes=notes.index --port 8000")(serve_command.serve)
app.command(epilog="Example: ragqa mcp --index notes.index, as the command of a server in your agent's settings")(
    mcp_command.mcp
)
app.command(epilog="Example: ragqa demo --rebuild")(demo_command.demo)


def main() -> None:
    """Run the ``ragqa`` command, and exit with a status of ``ragqa.cli.output``.

    An error is printed to stderr as one line, and a bug with its traceback.

    Raises:
        SystemExit: always.
    """
    if sys.stdout is None:
        print_error("standard output is closed: the answer cannot be shown")
        raise SystemExit(BAD)
    escape_messages()
    try:
        status = app(standalone_mode=False)  # else Typer would print errors of usage in four lines
        if status == INTERRUPTED:
            can_resume = {"index", "eval"} & set(sys.argv[1:2])
            print_error("interrupted" + "; run the same command again to continue" * bool(can_resume))
        raise SystemExit(status)
    except _ClickException as error:
        _print_usage_error(error)
        raise SystemExit(BAD) from None
    except (RagqaError, OSError, UnicodeError) as error:
        print_error(str(error))
        raise SystemExit(BAD) from None
    except Exception:  # a bug; Python would exit with 1, the status of a declined answer
        print_traceback()
        raise SystemExit(BUG) from None


def _print_usage_error(error: Any) -> None:
    if type(error).__name__ == "NoArgsIsHelpError":
        print_text(error.format_message(), file=sys.stderr)
        return
    # With python -m, the name of the root command is not ragqa.
    path = error.ctx.command_path.removeprefix(error.ctx.find_root().info_name) if error.ctx else ""
    message = error.format_message().rstrip(".")
    if path == " ask" and "unexpected extra argument" in message:
        message = 'Put the question in quotes: ragqa ask "Who built it?"'
    terminal.print_error(f"ragqa{path}", f"{message}. Try --help.")
