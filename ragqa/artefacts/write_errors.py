"""Convert system errors to BadInput with a one-line message while an artefact is written."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ragqa.errors import BadInput


@contextmanager
def report_write_errors(path: Path) -> Iterator[None]:
    """Convert system errors to BadInput while the block writes ``path``.

    Args:
        path: file or directory that the block writes.

    Raises:
        BadInput: ``path`` cannot be written, for example because the disk is full, or another file that the block uses
            cannot be read or written.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        if _is_elsewhere(error.filename, path):
            raise BadInput(f"cannot use {error.filename}: {reason}; {path} was not changed") from error
        raise BadInput(f"cannot write {path}: {reason}; nothing was changed") from error
    except Exception as error:
        # safetensors wraps OSError in its own class. sys.modules gives the class without importing safetensors.
        if not isinstance(error, getattr(sys.modules.get("safetensors"), "SafetensorError", ())):
            raise
        raise BadInput(f"cannot write {path}: {error}; nothing was changed") from error


def _is_elsewhere(name: object, path: Path) -> bool:
    """Return True if ``name`` is a file outside ``path``, and not one of its parent folders.

    The temporary folder that becomes ``path`` counts as ``path``.
    """
    if not isinstance(name, str) or Path(name) in path.parents:
        return False
    return not name.startswith((str(path), str(path.with_name(f".{path.name}."))))
