"""Shared parts of the commands in eval: run one, report its errors in one line, and write its command line as text."""

import os
import shlex
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

from ragqa.settings import command_line as settings

Config = TypeVar("Config")


def command_line() -> str:
    """Return the command that runs, as it is typed in the checkout, with relative paths."""
    return f"python -m {_main_module()} {shlex.join(map(_make_relative, sys.argv[1:]))}"


def report_errors() -> AbstractContextManager[None]:
    """Print an expected error as one line on standard error and exit with status 2, or 130 after an interrupt."""
    return settings.report_errors(_main_module())


def run_command(main: Callable[[Config], object], ConfigClass: type[Config], description: str | None) -> None:
    """Call ``main`` with the options of the command line; an expected error ends the process with one line."""
    with report_errors():
        main(settings.parse_config(ConfigClass, description))


def _main_module() -> str:
    spec = sys.modules["__main__"].__spec__
    return spec.name if spec else Path(sys.argv[0]).stem


def _make_relative(argument: str) -> str:
    path = Path(argument)
    return os.path.relpath(path) if path.is_absolute() and path.exists() else argument
