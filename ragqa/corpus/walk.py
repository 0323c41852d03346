"""The files under what a user named, always in the same order."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ragqa.artefact import is_artefact
from ragqa.errors import BadInput


def walk(paths: Sequence[Path], on_error: Callable[[OSError], object]) -> Iterator[Path]:
    """Files in the order of ``paths``, those of a folder sorted by name, before its folders.

    Hidden files and folders, and ragqa's own directories, are left out, unless named in ``paths`` themselves;
    links to folders are not followed. ``on_error`` is called with what went wrong when a folder cannot be listed.
    """
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for folder, folders, files in os.walk(path, onerror=on_error):
            seen = (name for name in folders if not name.startswith("."))
            folders[:] = sorted(name for name in seen if not is_artefact(Path(folder, name)))
            yield from (Path(folder, name) for name in sorted(files) if not name.startswith("."))


def check_paths(paths: Sequence[Path]) -> None:
    """Raise BadInput naming the first path that is neither a file nor a folder."""
    for path in paths:
        try:
            if path.is_file() or path.is_dir():
                continue
            what = "neither a file nor a folder" if path.exists() else "no such file or folder"
        except OSError as error:  # a folder above it that may not be entered
            what = f"cannot be read: {error.strerror}"
        raise BadInput(f"{path}: {what}")


def size_of(path: Path) -> int:
    """Bytes of a file; 0 where that cannot be found out."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
