"""Find the files under the paths that a user names, always in the same order."""

import errno
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ragqa.artefacts import is_artefact
from ragqa.corpus import hub
from ragqa.errors import BadInput

_STATE_FILE, _SPLITS_FILE = "state.json", "dataset_dict.json"
"""Files that ``datasets`` writes next to the data of one split, and of several splits."""


def walk_files(paths: Sequence[Path], on_error: Callable[[OSError], object]) -> Iterator[Path]:
    """Yield the files under ``paths`` in order; the files of a folder precede its subfolders.

    Hidden files and folders, and directories that ragqa wrote, are left out, unless ``paths`` names them. Links to
    folders are not followed. In a data set saved by ``datasets``, only the data files count. Names of the hub are
    yielded unchanged.

    Args:
        paths: files, folders and names of the hub.
        on_error: function called with the error if a folder cannot be listed or a file of a saved data set is missing.
    """
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for folder, folders, files in os.walk(path, onerror=on_error):
            visible = (name for name in folders if not name.startswith("."))
            folders[:] = sorted(name for name in visible if not is_artefact(Path(folder, name)))
            yield from _select_files(Path(folder), sorted(name for name in files if not name.startswith(".")), on_error)


def _select_files(folder: Path, files: list[str], on_error: Callable[[OSError], object]) -> Iterator[Path]:
    """Yield the files of a folder; in a saved data set, only the data files that it lists."""
    # A saved data set can have further files: caches of its method ``map``.
    if _SPLITS_FILE in files:
        files.remove(_SPLITS_FILE)
    try:
        names = [str(part["filename"]) for part in json.loads((folder / _STATE_FILE).read_bytes())["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError):  # not a saved data set
        names = files
    for name in names:
        if name in files:
            yield folder / name
        else:
            on_error(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder / name)))


def check_paths(paths: Sequence[Path]) -> None:
    """Check that each path is a file, a folder or a well-formed name of the hub.

    Raises:
        BadInput: a path is none of these; the message names the first such path.
    """
    for path in paths:
        if hub.is_hub_name(path):
            hub.parse_name(path)
            continue
        try:
            if path.is_file() or path.is_dir():
                continue
            problem = "neither a file nor a folder" if path.exists() else "no such file or folder"
        except OSError as error:  # no permission to enter a parent folder
            problem = f"cannot be read: {error.strerror}"
        raise BadInput(f"{path}: {problem}")


def get_file_size(path: Path) -> int:
    """Return the size of a file in bytes; 0 if it cannot be determined."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
