"""Run the commands of eval with their options, and format the command line."""

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ragqa.settings.command_line import get_main_module, parse_config, report_errors

Config = TypeVar("Config")


def run_command(main: Callable[[Config], object], ConfigClass: type[Config], description: str | None) -> None:
    """Run a command with the options of the command line.

    A RagqaError or OSError is printed as one line, and the process exits with status 2.

    Args:
        main: function that takes the settings and runs the command.
        ConfigClass: dataclass whose fields are the options.
        description: text above the options in the help.
    """
    with report_errors(get_main_module()):
        main(parse_config(ConfigClass, description))


def format_command_line() -> str:
    """Return the command line of this process; absolute paths that exist become relative."""
    return f"python -m {get_main_module()} {shlex.join(map(_make_relative, sys.argv[1:]))}"


def _make_relative(argument: str) -> str:
    path = Path(argument)
    return os.path.relpath(path) if path.is_absolute() and path.exists() else argument
