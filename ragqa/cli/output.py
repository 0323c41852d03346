"""Exit statuses of the command; results are printed to stdout, errors to stderr."""

import os

import typer

from ragqa import terminal

ANSWERED, DECLINED, BAD = 0, 1, 2
"""Exit statuses of success, of a declined question or a threshold that was not found, and of an error."""
BUG = 70
"""Exit status for a bug in ragqa: EX_SOFTWARE of sysexits.h."""
INTERRUPTED, PIPE = 130, 141
"""Exit statuses that a shell reports for a process that SIGINT or SIGPIPE ended."""


def print_result(text: str, *, is_styled: bool = False) -> None:
    """Print a result to stdout, and flush it.

    Args:
        text: lines of the result.
        is_styled: True to keep the styles of ``format_bold`` and ``mark_answer``.

    Raises:
        typer.Exit: stdout is a pipe whose other end is closed.
        OSError: stdout cannot be written, for example because the disk is full.
    """
    try:
        terminal.print_styled(text) if is_styled else terminal.print_text(text)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python would flush to the closed pipe at exit
        raise typer.Exit(PIPE) from None


def print_error(message: str) -> None:
    """Print a message to stderr as one line that begins with ``ragqa:``."""
    terminal.print_error("ragqa", message)
