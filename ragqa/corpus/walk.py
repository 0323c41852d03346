"""The files under what a user named, always in the same order."""

import errno
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ragqa.artefacts import is_artefact
from ragqa.corpus import hub
from ragqa.errors import BadInput

_SAVED, _SPLITS = "state.json", "dataset_dict.json"
"""What ``save_to_disk`` of ``datasets`` writes beside the data, of one split and of several."""


def walk_files(paths: Sequence[Path], on_error: Callable[[OSError], object]) -> Iterator[Path]:
    """Files in the order of ``paths``, those of a folder sorted by name, before its folders.

    Hidden files and folders, and ragqa's own directories, are left out, unless named in ``paths`` themselves;
    links to folders are not followed. Of a data set that ``datasets`` saved only its data is given, and a name on
    the hub as it is. ``on_error`` is called with what went wrong when a folder cannot be listed.
    """
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for folder, folders, files in os.walk(path, onerror=on_error):
            seen = (name for name in folders if not name.startswith("."))
            folders[:] = sorted(name for name in seen if not is_artefact(Path(folder, name)))
            yield from _data(Path(folder), sorted(name for name in files if not name.startswith(".")), on_error)


def _data(folder: Path, files: list[str], on_error: Callable[[OSError], object]) -> Iterator[Path]:
    """The files of a folder; of a saved data set those that it names: what ``map`` cached lies beside them."""
    if _SPLITS in files:
        files.remove(_SPLITS)
    try:
        names = [str(part["filename"]) for part in json.loads((folder / _SAVED).read_bytes())["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError):  # no data set
        names = files
    for name in names:
        if name in files:
            yield folder / name
        else:
            on_error(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder / name)))


def check_paths(paths: Sequence[Path]) -> None:
    """Raise BadInput naming the first path that is neither a file nor a folder."""
    for path in paths:
        if hub.is_hub(path):
            hub.check(path)
            continue
        try:
            if path.is_file() or path.is_dir():
                continue
            what = "neither a file nor a folder" if path.exists() else "no such file or folder"
        except OSError as error:  # a folder above it that may not be entered
            what = f"cannot be read: {error.strerror}"
        raise BadInput(f"{path}: {what}")


def get_file_size(path: Path) -> int:
    """Bytes of a file; 0 where that cannot be found out."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
