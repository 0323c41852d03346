"""What the commands of this layer share: their own line as it is typed, and errors in one line."""

import argparse
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ragqa.cli import config as command_of_jobs
from ragqa.errors import BadInput


def command() -> str:
    """The command that runs, as it is typed in the checkout."""
    return "python -m " + _module() + " " + shlex.join(_relative(a) for a in sys.argv[1:])


@contextmanager
def one_line() -> Iterator[None]:
    """Whatever is not ours to mend is one line on standard error, with exit status 2; 130 if it was interrupted."""
    with command_of_jobs.report_errors(_module()):
        yield


def _module() -> str:
    spec = sys.modules["__main__"].__spec__
    return spec.name if spec else Path(sys.argv[0]).stem


def _relative(argument: str) -> str:
    path = Path(argument)
    return os.path.relpath(path) if path.is_absolute() and path.exists() else argument


def check(args: argparse.Namespace, *counts: str) -> None:
    """Raise BadInput, before hours are spent, where ``--out`` is a directory or an option of ``counts`` less than 1."""
    wrong = [name for name in counts if getattr(args, name) is not None and getattr(args, name) < 1]
    if wrong:
        told = ", ".join(f"{'-' * min(2, len(name))}{name} {getattr(args, name)}" for name in wrong)
        raise BadInput(f"{told}: 1 or more")
    if args.out is not None and args.out.is_dir():
        raise BadInput(f"--out {args.out} is a directory: name a file")
