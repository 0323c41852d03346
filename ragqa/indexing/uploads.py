"""Add the files that clients of a server send to an index, and delete documents."""

import os
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ragqa import artefacts
from ragqa.artefacts.lock import hold_lock
from ragqa.artefacts.paths import make_absolute
from ragqa.corpus.formats.base import DUPLICATE_FILE, EMPTY_FILE, READABLE, CorpusReport
from ragqa.errors import BadInput
from ragqa.indexing.changes import DocumentKey
from ragqa.indexing.update import NewVersion, UpdateReport, change_index
from ragqa.terminal import to_one_line

MAX_NAME_BYTES = 200
"""Maximum length of a file's name in bytes: file systems allow 255, and temporary names are longer."""
_FORBIDDEN = frozenset('/\\:*?"<>|')  # the characters that Windows forbids in file names


@dataclass(frozen=True)
class UploadFolder:
    """Folder beside an index with the files that clients sent to the index."""

    index: Path
    """Directory of the index."""

    @property
    def path(self) -> Path:
        """Path of the folder: the path of the index with ``.uploads`` added to its name."""
        index = make_absolute(self.index)
        return index.with_name(f"{index.name}.uploads")

    def add(self, name: str, content: bytes) -> UpdateReport:
        """Store a file in the folder, and add its documents to the index.

        The file replaces a file with the same name. On an error, neither the index nor the files in the folder change.

        Args:
            name: name of the file, without folders.
            content: content of the file.

        Returns:
            The result of the update.

        Raises:
            BadInput: the name is not allowed, the file has no documents, or as for ``change_index``.
            Mismatch, ArtefactError, DamagedArtefact, MissingExtra: as for ``update_index``.
        """
        check_file_name(name)
        artefacts.peek_manifest(self.index)  # so that no folder is made beside a directory that is not an index
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
        """Delete a document from the index, and its file if a client sent the file.

        The file is deleted only if it is in this folder and the document is the whole file. Other documents with the
        same id, in other files, stay.

        Args:
            identifier: id of the document.
            path: path of its file.

        Returns:
            The result of the update.

        Raises:
            BadInput: there is no such document, no passage would be left, or as for ``change_index``.
            Mismatch, ArtefactError, DamagedArtefact, MissingExtra: as for ``update_index``.
        """
        is_upload = identifier == path and Path(path).parent == self.path and self.path.is_dir()
        # Without the lock, an upload of the same name at the same time could lose its file.
        with hold_lock(self.path / ".lock", wait=True) if is_upload else nullcontext():
            report = change_index(self.index, partial(_delete_document, (identifier, path)), delete=[identifier])
            if is_upload:
                Path(path).unlink(missing_ok=True)
        return report


def _add_file(file: Path, version: NewVersion, lost_ids: set[str]) -> dict[str, int]:
    try:
        counts = version.change_documents([file], [], lost_ids, strict=False)
    except BadInput as error:
        raise BadInput(_explain_refusal(file, version.report) or str(error)) from error
    # Without this error, the update would delete the documents of an older file with this name.
    if not (counts["added"] or counts["replaced"] or counts["unchanged"]):
        raise BadInput(_explain_refusal(file, version.report) or f"nothing to add in {file.name}: no documents")
    return counts


def _explain_refusal(file: Path, report: CorpusReport) -> str:
    """Return the reason why a file has no documents, without its folder; empty if unknown."""
    if report.notes:
        return f"nothing to add: {'; '.join(to_one_line(note.replace(str(file), file.name)) for note in report.notes)}"
    if not report.left_out:
        return ""
    is_read = report.left_out.keys() <= {EMPTY_FILE, DUPLICATE_FILE}
    return f"nothing to add in {file.name}: {' and '.join(report.left_out)}{'' if is_read else f'; {READABLE}'}"


def _delete_document(key: DocumentKey, version: NewVersion, lost_ids: set[str]) -> dict[str, int]:
    rows = version.store.find_rows({key[0]})
    is_deleted = [other == key for other in version.read_keys(rows)]
    if any(is_deleted):
        version.change_rows(rows[is_deleted], len(version.store))
    elif key[0] not in lost_ids:
        raise BadInput(f"no document of {key[1]} has the id {key[0]}: nothing was changed")
    return {"added": 0, "replaced": 0, "unchanged": 0, "deleted": int(any(is_deleted))}


def check_file_name(name: str) -> None:
    """Check that a client may give a file this name.

    Raises:
        BadInput: the name is empty or longer than ``MAX_NAME_BYTES``, begins with a dot, has white space at its start
            or end, or contains a character that is unprintable or that Windows forbids.
    """
    is_plain = name.isprintable() and not set(name) & _FORBIDDEN and name == name.strip() and not name.startswith(".")
    if not is_plain or not 0 < len(name.encode("utf-8", "replace")) <= MAX_NAME_BYTES:
        raise BadInput(f"the name {name[:80]!r} is not allowed: name the file as in report.pdf, without folders")
