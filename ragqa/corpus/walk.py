"""Files under the paths that a user named, always in the same order."""

import errno
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ragqa.artefacts import is_artefact
from ragqa.corpus import hub
from ragqa.errors import BadInput

_STATE_FILE, _SPLITS_FILE = "state.json", "dataset_dict.json"
"""Files that ``save_to_disk`` of ``datasets`` adds to the data of one split and of several."""


def walk_files(paths: Sequence[Path], on_error: Callable[[OSError], object]) -> Iterator[Path]:
    """Yield files in the order of ``paths``; of a folder first files, then folders, sorted.

    Hidden files and folders, and directories that ragqa wrote, are left out, unless ``paths`` names them. Links to
    folders are not followed. Of a data set that ``datasets`` saved only the data files are yielded. A name of the hub
    is yielded as it is.

    Args:
        paths: files, folders and names of the hub.
        on_error: called with the error when a folder cannot be listed or a file of a saved data set is missing.
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
    """Yield the files of a folder; of a saved data set only those that it lists."""
    # The method ``map`` of a data set caches further files there.
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
        BadInput: one is not; the message names the first.
    """
    for path in paths:
        if hub.is_hub_name(path):
            hub.parse_name(path)
            continue
        try:
            if path.is_file() or path.is_dir():
                continue
            problem = "neither a file nor a folder" if path.exists() else "no such file or folder"
        except OSError as error:  # a parent folder may not be entered
            problem = f"cannot be read: {error.strerror}"
        raise BadInput(f"{path}: {problem}")


def get_file_size(path: Path) -> int:
    """Return the size of a file in bytes; 0 where it cannot be determined."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
