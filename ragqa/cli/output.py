"""Output and exit statuses of the command: results on stdout, everything else on stderr."""

import os

import typer

from ragqa import terminal

ANSWERED, DECLINED, BAD = 0, 1, 2
BUG = 70
"""Exit status for a bug in ragqa: EX_SOFTWARE of sysexits.h."""
INTERRUPTED, PIPE = 130, 141
"""Exit statuses that a shell reports for a process that SIGINT or SIGPIPE ended."""


def print_result(text: str, *, is_styled: bool = False) -> None:
    """Print a result, so that a full disk or a closed pipe raises an error here.

    Args:
        text: lines of the result.
        is_styled: keep the styles of ``format_bold`` and ``mark_answer``.

    """
    try:
        terminal.print_styled(text) if is_styled else terminal.print_text(text)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python would flush to the closed pipe at exit
        raise typer.Exit(PIPE) from None


def print_error(message: str) -> None:
    """Print one line on stderr."""
    terminal.print_error("ragqa", message)
