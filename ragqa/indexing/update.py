"""Update an index: add, delete and replace documents without building the index again.

An update makes a new version of the index from hard links to the old files, which never change, and from new files:

    passages/00007.arrow      added passages                    passages/deleted.npy    deleted rows
    dense/added-000001.npy    their vectors                     bm25/…                  segments of Tantivy
    files.json                table of the files                manifest.json           new manifest

Then the new version replaces the old version in one step. Open pipelines use the old version until their next search,
which notices the new manifest (``ragqa.retrieval.live``). If at least a fifth of the rows was deleted or added since
the last build or compaction, the update compacts the index.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from ragqa import artefacts
from ragqa.artefacts import Manifest, npy
from ragqa.artefacts.paths import find_local_model, make_absolute
from ragqa.corpus import hub
from ragqa.corpus.passages import make_passages, split_document
from ragqa.corpus.sources import CorpusReport, to_document_id
from ragqa.corpus.store import DELETED, PassageStore, PassageWriter
from ragqa.errors import BadInput, DamagedArtefact, Mismatch
from ragqa.indexing.build import open_splitter
from ragqa.indexing.changes import DocumentChanges, DocumentKey, iter_document_batches, list_ids
from ragqa.indexing.compact import compact_index
from ragqa.indexing.file_table import FileScan, read_table, write_table
from ragqa.indexing.read_progress import read_with_progress
from ragqa.indexing.update_folder import link_files, open_update_folder, read_deleted, record_deleted
from ragqa.progress import SILENT, Progress
from ragqa.retrieval.bm25 import BM25
from ragqa.retrieval.registry import TERMS_FOLDER, VECTORS_FOLDER, RetrieverKind, TermEngine
from ragqa.retrieval.vectors.store import ADDED_FILE, open_vectors
from ragqa.runtime.encoder import load_encoder
from ragqa.types import Passage

Rows = npt.NDArray[np.int64]
"""Row numbers of passages."""
NewDocuments = dict[DocumentKey, list[Passage]]
"""Passages of new and changed documents, by document."""

COMPACT_AT = 0.2
"""Minimum share of deleted and added rows at which an update compacts the index."""
_EMBED_BATCH = 64
"""Number of passages that are embedded at a time."""
_SMALL = 1000
"""Number of rows below which the next update rewrites the last file of added rows, so that there are fewer files."""


@dataclass(frozen=True)
class UpdateReport:
    """Result of an update: numbers of documents by outcome, and the new state of the index."""

    added: int
    """Number of new documents that replace none."""
    replaced: int
    """Number of documents that replace one in the index."""
    unchanged: int
    """Number of documents that were read and are in the index already."""
    deleted: int
    """Number of removed documents, including documents whose new version is empty or a duplicate."""
    passages: int
    """Number of passages in the index after the update."""
    compacted: bool
    """True if the update compacted the index."""
    seconds: float
    """Duration of the update in seconds."""
    corpus: CorpusReport = field(default_factory=CorpusReport)
    """Report on the documents that were read."""


def update_index(
    index: str | Path,
    *,
    add: Sequence[str | Path] = (),
    delete: Sequence[str] = (),
    strict: bool = False,
    compact: bool | None = None,
    device: str = "cpu",
    progress: Progress = SILENT,
) -> UpdateReport:
    """Add, replace and delete documents of an index; on an error, the index does not change.

    Args:
        index: directory of the index, which other processes can search at the same time.
        add: files and folders; their documents replace documents with the same id.
        delete: ids of documents as in citations, or paths of files that are one document. All documents with such an id
            are deleted.
        strict: True to stop at the first malformed file or record instead of leaving it out.
        compact: True to compact the index, False not to; by default, the update compacts the index if at least a fifth
            of its rows was deleted or added since the last build or compaction.
        device: device of torch encoders and FAISS.
        progress: receiver of progress reports.

    Returns:
        The result of the update.

    Raises:
        BadInput: there is nothing to do, an id is unknown or is both added and deleted, ``add`` has no documents, no
            passage would be left, another process changes the index, the disk is full, or the index uses Lucene; with
            ``strict``, a file cannot be read.
        BadLine: with ``strict``, a record of a file is malformed.
        Mismatch: the encoder has changed since the index was built, or a newer version of ragqa wrote the index.
        ArtefactError: the directory is not an index, or the encoder does not exist.
        DamagedArtefact: a file of the index or of the encoder is damaged.
        MissingExtra: the engine of the index or of its encoder, or a reader of a file, is not installed.
    """
    if isinstance(add, str | Path) or isinstance(delete, str):
        raise BadInput("add and delete must be lists")
    if not (add or delete or compact):
        raise BadInput("nothing to do: name documents to add or to delete, or sync folders (--sync)")

    def change(version: "NewVersion", lost_ids: set[str]) -> dict[str, int]:
        return version.change_documents([hub.make_absolute(path) for path in add], delete, lost_ids, strict)

    return change_index(index, change, delete=delete, compact=compact, device=device, progress=progress)


def change_index(
    index: str | Path,
    change: Callable[["NewVersion", set[str]], dict[str, int]],
    *,
    delete: Sequence[str] = (),
    compact: bool | None = None,
    device: str = "cpu",
    progress: Progress = SILENT,
) -> UpdateReport:
    """Replace an index by a changed version in one step; an error leaves it unchanged.

    Args:
        index: directory of the index.
        change: function that changes the new version, and returns the numbers of documents by outcome: ``added``,
            ``replaced``, ``unchanged`` and ``deleted``. Its second argument is the set of ids that an interrupted run
            of the same update deleted.
        delete: ids or paths of the documents that ``change`` deletes. They are recorded, so that the next run knows
            them if this run is killed.
        compact: as for ``update_index``.
        device: device of torch encoders and FAISS.
        progress: receiver of progress reports.

    Returns:
        The result of the update.

    Raises:
        BadInput: another process changes the index, the disk is full, or the index uses Lucene; also as for ``change``.
        Mismatch, ArtefactError, DamagedArtefact, MissingExtra: as for ``update_index``.
    """
    start = perf_counter()
    with open_update_folder(index) as (target, manifest, work):
        engine = manifest.config["engine"]
        if RetrieverKind(manifest.config["retriever"]).needs_terms and not TermEngine(engine).can_update:
            raise BadInput(f"{target} holds terms of {engine}, which cannot be updated: index again")
        version = NewVersion(link_files(target, work), manifest, device, progress)
        lost_ids = read_deleted(work, manifest)
        counts = change(version, lost_ids)
        if compact or (compact is None and version.scattered_share >= COMPACT_AT):
            version.compact()
        if version.is_changed:
            changed = version.write_manifest(target)
            record_deleted(work, {manifest.fingerprint: lost_ids, changed: lost_ids | list_ids(delete)})
            artefacts.swap_into_place(version.folder, target)
        artefacts.mark_checked(target)
    return UpdateReport(
        **counts,
        passages=version.store.live_count,
        compacted=version.is_compacted,
        seconds=round(perf_counter() - start, 3),
        corpus=version.report,
    )


class NewVersion:
    """New version of an index, which begins as hard links to the files of the old version.

    Methods raise the errors of ``update_index`` if a file of the index or its encoder is missing or damaged.

    Args:
        folder: directory of the new version.
        manifest: manifest of the old version.
        device: device of torch encoders and FAISS.
        progress: receiver of progress reports.
    """

    def __init__(self, folder: Path, manifest: Manifest, device: str, progress: Progress) -> None:
        self.folder, self._old, self._device, self._progress = folder, manifest, device, progress
        self.config: dict[str, Any] = {"built": manifest.config["passages"], **manifest.config}
        """Configuration; its ``built`` is the number of rows at the last build or compaction."""
        self.store = PassageStore.open(folder / "passages")
        """Passages of the version; ``change_rows`` and ``compact`` open them again."""
        self.report = CorpusReport()
        """Report on the documents that were read."""
        self.is_changed = self.is_compacted = False

    @property
    def scattered_share(self) -> float:
        """Share of the rows that were deleted or added since the last build or compaction."""
        scattered = len(self.store.deleted) + len(self.store) - self.config["built"]
        return scattered / max(1, len(self.store))

    def change_documents(
        self, add: Sequence[Path], delete: Sequence[str], lost_ids: set[str], strict: bool
    ) -> dict[str, int]:
        """Add, replace and delete documents; return the numbers of documents by outcome.

        Args:
            add: files and folders to read.
            delete: ids or paths of documents.
            lost_ids: ids that an interrupted run of the same update deleted; ``delete`` can name them.
            strict: True to stop at the first malformed file or record instead of leaving it out.

        Raises:
            BadInput: a document is unknown, or both added and deleted; there is no document to add, or no passage would
                be left.
            BadLine, MissingExtra: as for ``read_documents``.
        """
        first_added = len(self.store)
        to_delete = self._find_documents(delete, lost_ids)
        scan = FileScan(add)
        changes = self.write_passages(add, strict) if add else DocumentChanges()
        states = scan.finish(scan.files, [path for _, path in changes.left_out_keys])
        if both := sorted(list_ids(delete) & {identifier for identifier, _ in changes.all_keys}):
            raise BadInput(
                f"{', '.join(both[:3])} would be both added and deleted: leave it out of one of them; "
                "nothing was changed"
            )
        rows = self.store.find_rows({identifier for identifier, _ in changes.all_keys | to_delete})
        keys = self.read_keys(rows)
        removed, counts = changes.find_removed(set(keys), to_delete)
        if add and not (changes.written_keys or changes.unchanged_keys or removed - to_delete):
            problems = "; ".join(line.strip() for line in self.report.describe_problems())
            raise BadInput(f"nothing to add in {', '.join(map(str, add))}: {problems or 'no documents'}")
        if removed or changes.written_keys:
            self.change_rows(rows[[key in removed for key in keys]], first_added)
            write_table(self.folder, read_table(self.folder) | states)
        return counts

    def read_keys(self, rows: Rows) -> list[DocumentKey]:
        """Return the id and path of the document of each row."""
        return [(passage.document, passage.path) for passage in self.store.get(rows.tolist())]

    def _find_documents(self, names: Sequence[str], lost_ids: set[str]) -> set[DocumentKey]:
        documents = set(self.read_keys(self.store.find_rows(list_ids(names))))
        known = {identifier for identifier, _ in documents} | lost_ids
        if unknown := [name for name in dict.fromkeys(names) if not list_ids([name]) & known]:
            # A relative path names a file below the working directory, which may not be the one that the user means.
            shown = [f"{name} (as a path: {make_absolute(name)})" if os.sep in name else name for name in unknown]
            raise BadInput(f"no document has the id {', '.join(map(to_document_id, shown))}: nothing was changed")
        return documents

    def write_passages(
        self,
        add: Sequence[Path],
        strict: bool,
        find_duplicates: Callable[[NewDocuments], set[DocumentKey]] = lambda documents: set(),
    ) -> DocumentChanges:
        """Write the passages of new and changed documents; return all read documents by outcome.

        Args:
            add: files and folders to read.
            strict: True to stop at the first malformed file or record instead of leaving it out.
            find_duplicates: function that returns the duplicates among new and changed documents, which are left out.

        Raises:
            BadInput, BadLine, MissingExtra: as for ``read_documents``.
        """
        changes = DocumentChanges()
        blocks, size, encoder = (self.config[name] for name in ("blocks", "block_size", "encoder"))
        has_vectors = (self.folder / VECTORS_FOLDER).is_dir()
        name = find_local_model(encoder) if has_vectors or blocks == "wordpieces" else encoder
        split = open_splitter(blocks, size, name, has_vectors=has_vectors)
        documents = read_with_progress(
            add,
            self._progress,
            self.report,
            strict=strict,
            ocr=self.config.get("ocr", False),
            on_left_out=lambda document: changes.left_out_keys.add((document.id, document.path)),
        )
        file, first_row = self._choose_file()
        with PassageWriter(self.folder / "passages", first_file=file) as writer:
            for passage in self.store.get(range(first_row, len(self.store))):
                writer.add_passage(passage)
            for batch in iter_document_batches(documents):
                indexed = self._read_undated({document.id for document in batch})
                new: NewDocuments = {}
                for document in batch:
                    key = (document.id, document.path)
                    passages = list(make_passages(document, split_document(document, split)))
                    if not passages:
                        changes.left_out_keys.add(key)
                    elif indexed.get(key) == [replace(passage, date="") for passage in passages]:
                        changes.unchanged_keys.add(key)
                    else:
                        new[key] = passages
                duplicates = find_duplicates(new)
                for key in sorted(duplicates):
                    self.report.count_duplicate(*key)
                self.report.documents -= len(duplicates)
                changes.left_out_keys |= duplicates
                changes.written_keys |= new.keys() - duplicates
                for passage in chain.from_iterable(new[key] for key in new if key not in duplicates):
                    writer.add_passage(passage)
        # If the user names a file twice, its documents are also duplicates of themselves.
        changes.left_out_keys -= changes.written_keys | changes.unchanged_keys
        return changes

    def _choose_file(self) -> tuple[int, int]:
        """Return the number and first row of the file to write: a small last file or a new file."""
        number, first_row = self.store.last_file
        is_small = first_row >= self.config["built"] and len(self.store) - first_row < _SMALL
        return (number, first_row) if is_small else (number + 1, len(self.store))

    def _read_undated(self, ids: set[str]) -> dict[DocumentKey, list[Passage]]:
        passages: dict[DocumentKey, list[Passage]] = {}  # no date: a new date alone needs no new vectors
        for passage in self.store.get(self.store.find_rows(ids).tolist()):
            passages.setdefault((passage.document, passage.path), []).append(replace(passage, id=0, date=""))
        return passages

    def change_rows(self, deleted: Rows, first_added: int) -> None:
        """Delete the rows ``deleted``; add terms and vectors of the rows from ``first_added`` on.

        Raises:
            BadInput: no passage would be left.
        """
        _replace_array(self.folder / "passages" / DELETED, np.union1d(self.store.deleted, deleted))
        self.store = PassageStore.open(self.folder / "passages")
        if not self.store.live_count:
            raise BadInput("no passage would be left, so nothing was changed: delete the index instead")
        added = [passage for batch in self.store.iter_batches(first_added) for passage in batch]
        terms = self.folder / TERMS_FOLDER
        if terms.is_dir():
            BM25.update(terms, engine=self.config["engine"], deleted=deleted, added=added)
        if added and (self.folder / VECTORS_FOLDER).is_dir():
            self._add_vectors(added, first_added)
        self.is_changed = True

    def _add_vectors(self, added: list[Passage], first_added: int) -> None:
        folder, expected_encoder = self.folder / VECTORS_FOLDER, self._old.parents["encoder"]
        encoder = load_encoder(find_local_model(self.config["encoder"]), device=self._device)
        if encoder.fingerprint != expected_encoder:
            raise Mismatch(
                f"the index was made with encoder {expected_encoder}, but the encoder is now {encoder.fingerprint}: "
                "index again"
            )
        if (shape := open_vectors(folder).shape) != (first_added, encoder.width):
            raise DamagedArtefact(
                f"{folder} holds vectors of the shape {shape} for {first_added} passages and an encoder of width "
                f"{encoder.width}: index again"
            )
        files = sorted(folder.glob("added-*.npy"))
        is_small = bool(files) and len(npy.load_array(files[-1], is_mapped=True)) < _SMALL
        vectors = [npy.load_array(files.pop())] if is_small else []
        with self._progress.step("embedding", len(added), "passages") as step:
            for first in range(0, len(added), _EMBED_BATCH):
                texts = [passage.titled_text for passage in added[first : first + _EMBED_BATCH]]
                vectors.append(encoder.encode(texts).astype(np.float16))
                step.advance_to(first + len(texts))
        _replace_array(folder / ADDED_FILE.format(len(files) + 1), np.concatenate(vectors))

    def compact(self) -> None:
        """Rewrite the index without its deleted rows; errors are as for ``compact_index``."""
        encoder = self._old.parents.get("encoder")
        self.config |= compact_index(self.folder, self.config, encoder, device=self._device, progress=self._progress)
        self.store = PassageStore.open(self.folder / "passages")
        self.is_changed = self.is_compacted = True

    def write_manifest(self, old: Path) -> str:
        """Write the manifest and return its fingerprint.

        Args:
            old: directory of the old version; the checksums of files that are hard links to it are not computed again.
        """
        config = {**self.config, "passages": self.store.live_count, "rows": len(self.store)}
        shared = {
            name: entry
            for name, entry in self._old.files.items()
            if (self.folder / name).is_file() and os.path.samefile(old / name, self.folder / name)
        }
        passages = {Path(name).name: entry["sha256"] for name, entry in shared.items() if name.startswith("passages/")}
        parents = {
            "origin": self._old.fingerprint,
            **self._old.parents,
            "corpus": self.store.compute_fingerprint(passages),
        }
        return artefacts.write_manifest(self.folder, "index", config, parents, known=shared).fingerprint


def _replace_array(file: Path, array: npt.NDArray[Any]) -> None:
    # The old version can share ``file`` by a hard link, and must not change.
    with artefacts.replace_file(file) as temporary, temporary.open("wb") as stream:
        np.save(stream, array)
