"""Find the files under the paths that a user names, always in the same order."""

import errno
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ragqa import artefacts
from ragqa.artefacts.paths import resolve_input_file
from ragqa.corpus import hub
from ragqa.errors import BadInput

_STATE_FILE, _SPLITS_FILE = "state.json", "dataset_dict.json"
"""Files that ``datasets`` writes beside the data of a split, and beside the folders of several splits."""
_MAX_STATE_BYTES = 16 << 20
"""Maximum size of a ``state.json`` that is read; 16 MiB hold the names of 100,000 data files."""


def walk_files(paths: Sequence[Path], on_error: Callable[[OSError], object]) -> Iterator[Path]:
    """Yield the files under ``paths`` in order; the files of a folder precede its subfolders.

    Hidden files and folders, backups of editors, and directories that ragqa wrote are left out, unless ``paths`` names
    them. A link to a folder is yielded like a file. For a data set that ``datasets`` saved, only the data files are
    yielded. A path that is not a folder, such as a name on the hub, is yielded unchanged.

    Args:
        paths: files, folders and names of data sets on the hub.
        on_error: function called with the error if a folder cannot be listed or a file of a saved data set is missing.
    """
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        pending = [path]  # a stack and not os.walk, which fails on folders that are nested 1,000 deep
        while pending:
            folder = pending.pop()
            try:
                folders, files = _list_visible(folder)
                pending += [path for path in reversed(folders) if not artefacts.is_artefact(path)]
            except OSError as error:
                on_error(error)
                continue
            yield from _select_files(folder, files, on_error)


def is_ignored(name: str) -> bool:
    """Return True for the base name of a hidden file or folder, or of an editor's backup file."""
    return name.startswith(".") or name.endswith(("~", ".swp"))


def _list_visible(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the visible folders and the names of visible files, sorted; links count as files."""
    folders, files = [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_ignored(entry.name):
                continue
            try:
                is_folder = entry.is_dir()
            except OSError:  # a link into a folder without permission to enter
                is_folder = False
            if is_folder and not entry.is_symlink():
                folders.append(folder / entry.name)
            else:
                files.append(entry.name)
    return sorted(folders), sorted(files)


def _select_files(folder: Path, files: list[str], on_error: Callable[[OSError], object]) -> Iterator[Path]:
    """Yield the files of a folder; in a saved data set, only the data files that it lists."""
    # A saved data set can also have files that cache results of its method ``map``.
    if _SPLITS_FILE in files:
        files.remove(_SPLITS_FILE)
    state = folder / _STATE_FILE
    try:
        if not state.is_file() or state.stat().st_size > _MAX_STATE_BYTES:  # a pipe could block forever
            raise ValueError
        names = [str(part["filename"]) for part in json.loads(resolve_input_file(state).read_bytes())["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # not a saved data set
        names = files
    for name in names:
        if name in files:
            yield folder / name
        else:
            on_error(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder / name)))


def check_paths(paths: Sequence[Path]) -> None:
    """Check that each path is a file, a folder or a well-formed name of a data set on the hub.

    Raises:
        BadInput: a path is none of these, cannot be reached, or belongs to an artefact; the message names the path.
    """
    for path in paths:
        if hub.is_hub_name(path):
            hub.parse_name(path)
            continue
        try:
            if not (path.is_file() or path.is_dir()):
                problem = "neither a file nor a folder" if path.exists() else "no such file or folder"
            elif kind := artefacts.find_owner_kind(path):
                raise BadInput(f"{path} is, or is part of, a ragqa {kind}: name the documents instead")
            else:
                continue
        except OSError as error:  # no permission to enter a parent folder
            problem = f"cannot be read: {error.strerror}"
        raise BadInput(f"{path}: {problem}")


def get_file_size(path: Path) -> int:
    """Return the size of a file in bytes; 0 if it cannot be determined."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
