"""What the commands of this layer share: their own command line as text, errors in one line, checks of options."""

import argparse
import os
import shlex
import sys
from contextlib import AbstractContextManager
from pathlib import Path

from ragqa.cli import config
from ragqa.errors import BadInput


def command_line() -> str:
    """Return the command that runs, as it is typed in the checkout, with relative paths."""
    return f"python -m {_main_module()} {shlex.join(map(_make_relative, sys.argv[1:]))}"


def report_errors() -> AbstractContextManager[None]:
    """Print an expected error as one line on standard error and exit with status 2, or 130 after an interrupt."""
    return config.report_errors(_main_module())


def check_counts(args: argparse.Namespace, *names: str) -> None:
    """Raise BadInput, before hours are spent, if ``--out`` is a directory or an option of ``names`` is less than 1."""
    wrong = [name for name in names if getattr(args, name) is not None and getattr(args, name) < 1]
    if wrong:
        options = ", ".join(f"{'-' * min(2, len(name))}{name} {getattr(args, name)}" for name in wrong)
        raise BadInput(f"{options}: 1 or more")
    if args.out is not None and args.out.is_dir():
        raise BadInput(f"--out {args.out} is a directory: name a file")


def _main_module() -> str:
    spec = sys.modules["__main__"].__spec__
    return spec.name if spec else Path(sys.argv[0]).stem


def _make_relative(argument: str) -> str:
    path = Path(argument)
    return os.path.relpath(path) if path.is_absolute() and path.exists() else argument
