"""Check manifests and directories of artefacts, which can come from elsewhere.

Checksums reveal accidents, but not attacks: whoever changes an artefact can also write a new manifest.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from ragqa.errors import ArtefactError, DamagedArtefact

MAX_MANIFEST_BYTES = 64 << 20
"""Maximum size of a manifest in bytes; an index of 21 million passages in shards of 8192 needs less than 1 MB."""
MAX_COUNT = 1 << 20
"""Maximum of a vector width, a length in tokens or a search effort in a manifest; real values are far smaller."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CONTENT_ERRORS = (
    *(ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError),
    *(FileNotFoundError, IsADirectoryError, MemoryError, NotADirectoryError, NotImplementedError),
)
"""Errors that the use of wrong values or missing files of an artefact can raise."""


def find_flaw(row: dict[str, Any]) -> str | None:
    """Return a description of the first flaw in a manifest, or None.

    Args:
        row: the fields of ``Manifest``.
    """
    types: dict[str, type] = {"kind": str, "config": dict, "parents": dict, "files": dict, "created_by": str}
    for name, wanted in types.items():
        if not isinstance(row[name], wanted):
            return f"its {name} is of the wrong type"
    if type(row["format"]) is not int:
        return "its format is not a number"
    if not all(isinstance(value, str) for value in row["parents"].values()):
        return "a fingerprint in its parents is not text"
    for name, entry in row["files"].items():
        if not _is_inside(name):
            return f"it names the file {name!r:.100}, which is not inside"
        if not isinstance(entry, dict) or type(entry.get("size")) is not int or entry["size"] < 0:
            return f"the file {name!r:.100} has no size"
        if not isinstance(entry.get("sha256"), str) or not _SHA256.fullmatch(entry["sha256"]):
            return f"the file {name!r:.100} has no checksum"
    return None


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    is_relative = not path.is_absolute() and path.parts and ".." not in path.parts
    return bool(is_relative) and "\0" not in name and path.as_posix() == name


def check_entries(folder: Path) -> None:
    """Check that a directory tree has no pipe, device or socket, whose reading might never end.

    Raises:
        DamagedArtefact: the tree has one, or a folder is missing.
        ArtefactError: a folder cannot be read.
    """
    folders, known = [folder], set()
    try:
        while folders:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir():
                        state = entry.stat()
                        if (state.st_dev, state.st_ino) not in known:  # links can form a cycle
                            known.add((state.st_dev, state.st_ino))
                            folders.append(Path(entry.path))
                    elif not entry.is_file() and os.path.lexists(entry.path):  # a swap may just have removed it
                        raise DamagedArtefact(f"{entry.path} is neither a file nor a folder: make it again")
    except FileNotFoundError as error:
        raise DamagedArtefact(f"{error.filename} is missing; build it again") from error
    except OSError as error:
        raise ArtefactError(f"{error.filename} cannot be read: {error.strerror}") from error


def check_count(value: object, name: str) -> None:
    """Raise ValueError unless ``value`` is a whole number from 1 to ``MAX_COUNT``.

    Args:
        value: value to check.
        name: name of the value in the message.
    """
    if type(value) is not int or not 0 < value <= MAX_COUNT:
        raise ValueError(f"{name} is {value!r:.40}")


@contextmanager
def report_damage(path: str | Path) -> Iterator[None]:
    """Convert errors due to wrong values in an artefact to DamagedArtefact.

    The block must only read artefacts, so that its errors have no other cause.

    Args:
        path: artefact that the message names.

    Raises:
        DamagedArtefact: a value is wrong, or a file is missing.
    """
    try:
        yield
    except _CONTENT_ERRORS as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise DamagedArtefact(f"{path} is damaged: a value is wrong or a file is missing ({reason})") from error
