"""Output and exit statuses of the command: results on stdout, everything else on stderr."""

import os
import sys

import typer

ANSWERED, DECLINED, BAD = 0, 1, 2
BUG = 70
"""EX_SOFTWARE of sysexits.h."""
INTERRUPTED, PIPE = 130, 141
"""Statuses a shell reports for a process ended by SIGINT or SIGPIPE."""


def print_result(line: str) -> None:
    """Print a result at once, so that a full disk or a closed pipe is noticed here."""
    try:
        print(line.encode("utf-8", "replace").decode("utf-8"), flush=True)  # a file's name need not be valid text
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody reads any more: Python must not flush at exit
        raise typer.Exit(PIPE) from None


def print_error(message: str) -> None:
    """Print one line on stderr."""
    print(f"ragqa: {' '.join(message.split())}", file=sys.stderr)
