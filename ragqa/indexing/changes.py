"""Decide which documents of an index an update adds, replaces, leaves unchanged or deletes.

A document is identified by its id and its path, since several files can use the same ids. A new document replaces
documents with the same id in other files, so that a separate file can contain corrections. Documents in the files that
are being added do not replace each other.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ragqa.corpus.sources import Document

DocumentKey = tuple[str, str]
"""Id and path of a document."""
_BATCH_DOCUMENTS = 1000
_BATCH_CHARACTERS = 32 << 20
"""Number of characters at which a batch ends early."""


@dataclass
class DocumentChanges:
    """Documents that were read for an update, grouped by outcome."""

    written_keys: set[DocumentKey] = field(default_factory=set)
    """Documents whose passages were written: new documents, and documents with a new text."""
    unchanged_keys: set[DocumentKey] = field(default_factory=set)
    """Documents with the same text as in the index."""
    left_out_keys: set[DocumentKey] = field(default_factory=set)
    """Documents without passages: empty ones and duplicates."""

    @property
    def all_keys(self) -> set[DocumentKey]:
        """All documents that were read."""
        return self.written_keys | self.unchanged_keys | self.left_out_keys

    def find_removed(
        self, indexed: set[DocumentKey], to_delete: set[DocumentKey]
    ) -> tuple[set[DocumentKey], dict[str, int]]:
        """Return the documents to remove from the index, and the numbers of documents by outcome.

        A changed document is removed, too, because its new text is in new rows.

        Args:
            indexed: all documents in the index that have the id of a document that was read or is to be deleted.
            to_delete: documents that the user wants to delete; none has the id of a document that was read.
        """
        new_ids = {identifier for identifier, _ in self.all_keys - indexed}
        superseded = {key for key in indexed - self.all_keys if key[0] in new_ids}
        removed = (indexed & (self.written_keys | self.left_out_keys | to_delete)) | superseded
        added_ids = {identifier for identifier, _ in self.written_keys - indexed}
        superseded_ids = {identifier for identifier, _ in superseded}
        replaced = {key for key in self.written_keys if key in indexed or key[0] in superseded_ids}
        counts = {
            "added": len(self.written_keys - replaced),
            "replaced": len(replaced),
            "unchanged": len(self.unchanged_keys),
            "deleted": len(
                [key for key in removed - self.written_keys if key not in superseded or key[0] not in added_ids]
            ),
        }
        return removed, counts


def iter_document_batches(documents: Iterator[Document]) -> Iterator[list[Document]]:
    """Yield the documents in batches that are small enough for memory."""
    batch: list[Document] = []
    characters = 0
    for document in documents:
        batch.append(document)
        characters += len(document.text)
        if len(batch) == _BATCH_DOCUMENTS or characters > _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
