"""Documents that are sent to an index, one file at a time, and documents that are deleted from it."""

import os
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ragqa import artefacts
from ragqa.artefacts.lock import hold_lock
from ragqa.artefacts.paths import make_absolute
from ragqa.errors import BadInput
from ragqa.indexing.update import NewVersion, UpdateReport, change_index, update_index

MAX_NAME_BYTES = 200
"""Maximum length of a file's name; file systems allow 255, and temporary names are longer."""
_FORBIDDEN = frozenset('/\\:*?"<>|')


@dataclass(frozen=True)
class UploadFolder:
    """Folder beside an index that holds the files which were sent to it."""

    index: Path

    @property
    def path(self) -> Path:
        """Path of the folder: that of the index, with ``.uploads`` at its end."""
        index = make_absolute(self.index)
        return index.with_name(f"{index.name}.uploads")

    def add(self, name: str, content: bytes) -> UpdateReport:
        """Store a file and add its documents to the index; a file of the same name is replaced.

        On an error, the index and the folder stay as they were.

        Args:
            name: name of the file, without folders.
            content: content of the file.

        Raises:
            BadInput: the name is not allowed, the file cannot be read or has no text, or another process changes the
                index.
        """
        check_file_name(name)
        artefacts.peek_manifest(self.index)  # no folder beside something else
        with artefacts.report_write_errors(self.path):
            self.path.mkdir(exist_ok=True)
        target, before = self.path / name, self.path / f".{name}.before"
        with hold_lock(self.path / ".lock", wait=True), artefacts.report_write_errors(target):
            if before.exists():  # an earlier upload was killed
                before.replace(target)
            has_before = target.is_file()
            if has_before:
                os.link(target, before)
            try:
                with artefacts.replace_file(target) as temporary:
                    temporary.write_bytes(content)
                return change_index(self.index, partial(_add_file, target))
            except BaseException:
                target.unlink(missing_ok=True)
                if has_before:
                    before.replace(target)
                raise
            finally:
                before.unlink(missing_ok=True)

    def delete(self, identifier: str, path: str) -> UpdateReport:
        """Delete the documents with an id from the index, and the file if it was sent to the index.

        A file outside of the folder is not deleted.

        Args:
            identifier: id of the documents.
            path: path of their file.

        Raises:
            BadInput: there is no such document, no passage would be left, or another process changes the index.
        """
        report = update_index(self.index, delete=[identifier])
        if identifier == path and Path(path).parent == self.path:
            with suppress(FileNotFoundError):
                Path(path).unlink()
        return report


def _add_file(file: Path, version: NewVersion, lost_ids: set[str]) -> dict[str, int]:
    counts = version.change_documents([file], [], lost_ids, strict=False)
    if not (counts["added"] or counts["replaced"] or counts["unchanged"]):  # it would delete the file of before
        raise BadInput(f"nothing to add in {file}: no documents")
    return counts


def check_file_name(name: str) -> None:
    """Raise BadInput if a name is no plain name of a file, or is a hidden one."""
    is_plain = name.isprintable() and not set(name) & _FORBIDDEN and name == name.strip() and not name.startswith(".")
    if not is_plain or not 0 < len(name.encode("utf-8", "replace")) <= MAX_NAME_BYTES:
        raise BadInput(f"the name {name[:80]!r} is not allowed: name the file as in report.pdf, without folders")
