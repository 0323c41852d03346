"""What the commands of this layer share: their own line as it is typed, and errors in one line."""

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from index import command as command_of_jobs


def command() -> str:
    """The command that runs, as it is typed in the checkout."""
    return "python -m " + _module() + " " + shlex.join(_relative(a) for a in sys.argv[1:])


@contextmanager
def one_line() -> Iterator[None]:
    """Whatever is not ours to mend is one line on standard error, with exit status 2; 130 if it was interrupted."""
    with command_of_jobs.one_line(_module()):
        yield


def _module() -> str:
    spec = sys.modules["__main__"].__spec__
    return spec.name if spec else Path(sys.argv[0]).stem


def _relative(argument: str) -> str:
    path = Path(argument)
    return os.path.relpath(path) if path.is_absolute() and path.exists() else argument
