"""Table of the files of an index, by which a sync finds the files to read again.

The file ``files.json`` has the form ``{"PATH": [SIZE, MODIFIED, IS_PARTIAL], …}``; see ``FileState``.
"""

import json
import os
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from stat import S_ISREG

from ragqa import artefacts
from ragqa.corpus import hub
from ragqa.corpus.sources import to_document_id
from ragqa.corpus.walk import walk_files

TABLE = "files.json"
_UNKNOWN = -1
"""Time of modification of a file that must be read again."""
_CLOCK_TICK_NS = 10_000_000
"""Longest step between modification times of files in Linux, in nanoseconds (10 ms)."""


@dataclass(frozen=True, slots=True)
class FileState:
    """State of a file when it was read."""

    size: int
    """Size in bytes."""
    modified: int
    """Time of the last modification in nanoseconds since 1970; -1 if the file must be read again."""
    is_partial: bool = False
    """True if a document was left out as empty or duplicate; a sync reads the file again when other files change."""


class FileScan:
    """Regular files under some paths, with their states before they are read."""

    def __init__(self, paths: Sequence[Path], on_error: Callable[[OSError], object] = lambda error: None) -> None:
        """List the regular files under ``paths``, and read their states.

        Args:
            paths: files and folders; names of data sets of the hub are left out.
            on_error: function called with the error if a folder cannot be listed.
        """
        self.files: dict[str, Path] = {}
        """Files by their paths as an index stores them (``to_document_id``)."""
        self.states: dict[str, FileState] = {}
        """States of the files by the same paths."""
        self._start = time.time_ns()
        for file in walk_files([path for path in paths if not hub.is_hub_name(path)], on_error):
            if state := _read_state(file):
                name = to_document_id(str(file))
                self.files[name], self.states[name] = file, state

    def finish(self, names: Iterable[str], left_out: Iterable[str]) -> dict[str, FileState]:
        """Return the states, by path, of files that have been read since the scan.

        A file that changed after the scan, or just before it, is marked as to be read again.

        Args:
            names: paths of the files, keys of ``files``.
            left_out: paths of documents that were left out.
        """
        partial = {find_owner(path, self.files) for path in left_out}
        states = {}
        for name in names:
            state = self.states[name]
            is_settled = _read_state(self.files[name]) == state and state.modified < self._start - _CLOCK_TICK_NS
            modified = state.modified if is_settled else _UNKNOWN
            states[name] = replace(state, modified=modified, is_partial=name in partial)
        return states


def find_owner(path: str, files: Container[str]) -> str | None:
    """Return the file that contains the document at a path; None if ``files`` has none.

    Args:
        path: path of the document, which is a file or a member of an archive.
        files: paths of the files.
    """
    while path not in files:
        parent = os.path.dirname(path)
        if parent == path:
            return None
        path = parent
    return path


def read_table(index: Path) -> dict[str, FileState]:
    """Return the states of an index's files by path; empty if there is no readable table."""
    try:
        rows = json.loads((index / TABLE).read_text())
        return {name: FileState(*row) for name, row in rows.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def write_table(index: Path, states: Mapping[str, FileState]) -> None:
    """Write the table of the files of an index in one step.

    Args:
        index: directory of the index.
        states: states of the files by path.
    """
    artefacts.write_text_whole(index / TABLE, json.dumps({name: astuple(state) for name, state in states.items()}))


def _read_state(file: Path) -> FileState | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    if not S_ISREG(stat.st_mode):
        return None
    # The time of a file does not change when it becomes readable; with an unknown time, a sync reads it then.
    return FileState(stat.st_size, stat.st_mtime_ns if os.access(file, os.R_OK) else _UNKNOWN)
