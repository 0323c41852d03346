"""Run the commands in eval: options, expected errors, and the command line as text."""

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ragqa.settings.command_line import get_main_module, parse_config, report_errors

Config = TypeVar("Config")


def run_command(
    main: Callable[[Config], object], ConfigClass: type[Config], description: str | None, *, positional: bool = False
) -> None:
    """Run a command; an expected error ends the process with one line.

    Args:
        main: the command.
        ConfigClass: dataclass whose fields are the options.
        description: text above the options in the help.
        positional: take fields without a default as positional arguments.
    """
    with report_errors(get_main_module()):
        main(parse_config(ConfigClass, description, positional=positional))


def format_command_line() -> str:
    """Return the running command as it is typed in the checkout, with relative paths."""
    return f"python -m {get_main_module()} {shlex.join(map(_make_relative, sys.argv[1:]))}"


def _make_relative(argument: str) -> str:
    path = Path(argument)
    return os.path.relpath(path) if path.is_absolute() and path.exists() else argument
