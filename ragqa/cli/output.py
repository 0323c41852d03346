"""Output and exit statuses of the command: results on stdout, everything else on stderr."""

import os
import sys

import typer

ANSWERED, DECLINED, BAD = 0, 1, 2
BUG = 70
"""Exit status for a bug in ragqa: EX_SOFTWARE of sysexits.h."""
INTERRUPTED, PIPE = 130, 141
"""Exit statuses that a shell reports for a process that SIGINT or SIGPIPE ended."""


def print_result(line: str) -> None:
    """Print a result and flush it, so that a full disk or a closed pipe raises an error here."""
    try:
        print(line.encode("utf-8", "replace").decode("utf-8"), flush=True)  # the name of a file can be invalid text
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python would flush to the closed pipe at exit
        raise typer.Exit(PIPE) from None


def print_error(message: str) -> None:
    """Print one line on stderr."""
    print(f"ragqa: {' '.join(message.split())}", file=sys.stderr)
