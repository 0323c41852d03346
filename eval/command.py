"""What the commands of this layer share: their own line as it is typed, and errors in one line."""

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ragqa.errors import RagqaError


def command() -> str:
    """The command that runs, as it is typed in the checkout."""
    return "python -m " + _module() + " " + shlex.join(_relative(a) for a in sys.argv[1:])


@contextmanager
def one_line() -> Iterator[None]:
    """Whatever is not ours to mend is one line on standard error, with exit status 2; 130 if it was interrupted."""
    try:
        yield
    except (RagqaError, OSError) as error:
        print(f"{_module()}: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print(f"{_module()}: interrupted; the same command goes on where it was", file=sys.stderr)
        raise SystemExit(130) from None


def _module() -> str:
    spec = sys.modules["__main__"].__spec__
    return spec.name if spec else Path(sys.argv[0]).stem


def _relative(argument: str) -> str:
    path = Path(argument)
    return os.path.relpath(path) if path.is_absolute() and path.exists() else argument
