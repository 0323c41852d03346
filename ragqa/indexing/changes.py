"""Decide which documents of an index an update adds, replaces, leaves unchanged or deletes.

A document is identified by its id and its path, since several files can use the same ids. A new document replaces the
documents with the same id from other files, so that a separate file can contain corrections. The documents of one
update do not replace each other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ragqa.artefacts.paths import make_absolute
from ragqa.corpus.sources import Document, to_document_id

DocumentKey = tuple[str, str]
"""Id and path of a document."""
_BATCH_DOCUMENTS = 1000
_BATCH_CHARACTERS = 32 << 20
"""Number of characters after which a batch ends early."""


@dataclass
class DocumentChanges:
    """Documents that were read for an update, grouped by outcome."""

    written_keys: set[DocumentKey] = field(default_factory=set)
    """Documents whose passages were written: new documents, and documents that differ from those in the index."""
    unchanged_keys: set[DocumentKey] = field(default_factory=set)
    """Documents that are the same as in the index; only their dates can differ."""
    left_out_keys: set[DocumentKey] = field(default_factory=set)
    """Documents that are not indexed, because they are empty or duplicates."""

    @property
    def all_keys(self) -> set[DocumentKey]:
        """All documents that were read."""
        return self.written_keys | self.unchanged_keys | self.left_out_keys

    def find_removed(
        self, indexed: set[DocumentKey], to_delete: set[DocumentKey]
    ) -> tuple[set[DocumentKey], dict[str, int]]:
        """Find the documents whose old rows an update removes, and count documents by outcome.

        The old rows of a changed document are removed, because its new text is in new rows. The outcomes are ``added``,
        ``replaced``, ``unchanged`` and ``deleted``.

        Args:
            indexed: all documents in the index with the id of a document in ``all_keys`` or ``to_delete``.
            to_delete: documents to delete; none has the id of a document that was read.

        Returns:
            The documents whose old rows are removed, and the numbers of documents by outcome.
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


def list_ids(names: Sequence[str]) -> set[str]:
    """Return the ids that names can mean: each name as it is, and as an absolute path."""
    return {to_document_id(form) for name in names for form in (name, str(make_absolute(name)))}


def iter_document_batches(documents: Iterator[Document]) -> Iterator[list[Document]]:
    """Yield batches of at most 1,000 documents; a batch with over 2**25 characters ends early."""
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
