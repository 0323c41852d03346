"""List the documents of a passage store, and read their passages in order."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.types import Passage

Rows = npt.NDArray[np.int64]
_RECORD_MARK = "::"
"""Separator of a file's path and the id of a record in the file."""


@dataclass(frozen=True, slots=True)
class IndexedDocument:
    """Document of an index; ``Passage`` describes the fields without a description."""

    id: str
    """Id as in ``Passage.document``."""
    path: str
    title: str
    tags: tuple[str, ...]
    date: str
    passages: int
    """Number of passages."""
    first_row: int
    """Row of the first passage in the passage store."""


def format_reference(passage: Passage) -> str:
    """Return a reference to the start of a passage, such as ``/docs/tides.txt#120``.

    The form is ``ID#START``, or ``PATH::ID#START`` for a record of a file. ID is the id of the document, PATH the path
    of its file, and START the offset of the passage in the document's text, in characters.
    """
    is_record = passage.document != passage.path  # other files can have records with the same id
    return f"{passage.path + _RECORD_MARK if is_record else ''}{passage.document}#{passage.start}"


class DocumentList:
    """Documents of a passage store, in the order of their passages.

    The list needs 16 bytes of memory for each document, and reads everything else on demand. If a file of the passages
    is damaged, a method that reads it raises DamagedArtefact.
    """

    def __init__(self, store: PassageStore) -> None:
        """List the documents of ``store`` in one pass over the ids and paths of its passages."""
        self._store = store
        rows = np.setdiff1d(np.arange(len(store)), store.deleted, assume_unique=True)
        starts = store.find_starts(("document", "path"))
        run_of_row = np.searchsorted(starts, rows, side="right")
        is_first = np.diff(run_of_row, prepend=0) > 0
        self._first_rows: Rows = rows[is_first]
        self._counts = np.diff(np.append(np.flatnonzero(is_first), len(rows)))

    def __len__(self) -> int:
        return len(self._first_rows)

    def read(self, first: int, count: int) -> list[IndexedDocument]:
        """Return at most ``count`` documents; the first one has the number ``first``, from 0."""
        part = slice(first, first + count)
        pairs = zip(self._first_rows[part].tolist(), self._counts[part].tolist(), strict=True)
        return [_describe(self._store[row], passages) for row, passages in pairs]

    def find(self, identifier: str) -> list[IndexedDocument]:
        """Return the documents with an id; records of different files can have the same id."""
        numbers = np.flatnonzero(np.isin(self._first_rows, self._store.find_rows([identifier])))
        return [self.read(number, 1)[0] for number in numbers.tolist()]

    def find_reference(self, reference: str) -> tuple[IndexedDocument, int]:
        """Find the document that a reference names, and the offset in its text.

        Args:
            reference: result of ``format_reference``; ``PATH::`` and ``#START`` can be missing.

        Returns:
            The document and the offset in characters, which is 0 without ``#START``.

        Raises:
            BadInput: the reference names no document, or more than one.
        """
        head, _, tail = reference.rpartition("#")
        choices = [(reference, 0)]
        if head and tail.isascii() and tail.isdecimal() and len(tail) < 16:
            choices = [(head, int(tail)), *choices]
        for name, start in choices:
            path, mark, record = name.partition(_RECORD_MARK)
            found = [document for document in self.find(record) if document.path == path] if mark else []
            found = found or self.find(name)
            if len(found) > 1:
                raise BadInput(f"{len(found)} documents have the id {name[:100]!r}: name one as PATH{_RECORD_MARK}ID")
            if found:
                return found[0], start
        raise BadInput(f"there is no document {reference[:100]!r}: search for its id")

    def read_passages(self, document: IndexedDocument) -> list[Passage]:
        """Return the live passages of a document, in the order of its text."""
        rows = self.find_passage_rows(document)
        wanted = set(rows.tolist())
        return [p for p in self._store.read_rows(int(rows[0]), int(rows[-1]) + 1) if p.id in wanted]

    def find_passage_rows(self, document: IndexedDocument) -> Rows:
        """Return the rows of the live passages of a document, in the order of its text."""
        number = int(np.searchsorted(self._first_rows, document.first_row))
        end = self._first_rows[number + 1] if number + 1 < len(self) else len(self._store)
        return np.setdiff1d(np.arange(document.first_row, end), self._store.deleted, assume_unique=True)


def _describe(passage: Passage, passages: int) -> IndexedDocument:
    return IndexedDocument(
        passage.document, passage.path, passage.title, passage.tags, passage.date, passages, passage.id
    )
