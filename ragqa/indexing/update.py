"""Update an index: add, delete and replace documents without building the index again.

An update makes a new version of the index from hard links to the old files. A shared file is never changed; new data is
written to new files:

    passages/00007.arrow      added passages                    passages/deleted.npy    deleted rows
    dense/added-000001.npy    their vectors                     bm25/…                  segments of Tantivy

Then the new version replaces the old version in one step. Open pipelines use the old version until their next search,
which notices the new manifest (``ragqa.retrieval.live``). When a fifth of the rows are deleted or added, the update
compacts the index.
"""

import errno
import json
import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from ragqa import artefacts
from ragqa.artefacts import Manifest, npy
from ragqa.artefacts.lock import hold_lock
from ragqa.artefacts.orphans import DELETED_IDS, UPDATE_FOLDER, check_update_path, get_update_path, own_directory
from ragqa.artefacts.paths import find_local_model, make_absolute
from ragqa.corpus import hub
from ragqa.corpus.sources import CorpusReport, read_documents, to_document_id
from ragqa.corpus.store import DELETED, PassageStore, PassageWriter
from ragqa.errors import BadInput, DamagedArtefact, Mismatch
from ragqa.indexing.build import open_splitter
from ragqa.indexing.changes import DocumentChanges, DocumentKey, iter_document_batches
from ragqa.indexing.compact import compact_index
from ragqa.progress import SILENT, Progress
from ragqa.retrieval.bm25 import BM25
from ragqa.retrieval.registry import TERMS_FOLDER, VECTORS_FOLDER, RetrieverKind, TermEngine
from ragqa.retrieval.vectors.store import ADDED_FILE, open_vectors
from ragqa.runtime.encoder import load_encoder
from ragqa.types import Passage

Rows = npt.NDArray[np.int64]

COMPACT_AT = 0.2
"""Share of deleted or added rows at which an update compacts the index."""
_EMBED_BATCH = 64
"""Number of passages that are embedded at a time."""
_SMALL = 1000
"""Number of rows below which a file of added passages is merged with the next, for fewer files."""


@dataclass(frozen=True)
class UpdateReport:
    """Result of an update: numbers of documents by outcome, and the new state of the index."""

    added: int
    replaced: int
    unchanged: int
    """Number of documents to add that were in the index already."""
    deleted: int
    """Number of removed documents, including added documents that are now empty or duplicates."""
    passages: int
    """Number of passages in the index after the update."""
    compacted: bool
    seconds: float
    corpus: CorpusReport = field(default_factory=CorpusReport)
    """Report on the documents that were read."""


def update_index(
    index: str | Path,
    *,
    add: Sequence[str | Path] = (),
    delete: Sequence[str] = (),
    skip_bad: bool = False,
    compact: bool | None = None,
    device: str = "cpu",
    progress: Progress = SILENT,
) -> UpdateReport:
    """Change the documents of an index; on an error, the index stays as it was.

    Args:
        index: directory of the index, which other processes can search at the same time.
        add: files and folders; their documents replace documents of the same id.
        delete: ids of documents as they are cited, or paths of files; all documents with this id are deleted.
        skip_bad: skip and count malformed records instead of stopping.
        compact: True to compact the index; by default, an update compacts if a fifth of the rows are deleted or added.
        device: device of torch encoders and FAISS.
        progress: receiver of progress reports.

    Returns:
        The result of the update.

    Raises:
        BadInput: an id is unknown or is both added and deleted, a file cannot be read, there is nothing to do, the
            disk is full, or the index uses Lucene.
        Mismatch: another encoder made the index.
        ArtefactError: the directory is not an index, or is damaged.
    """
    start = perf_counter()
    if isinstance(add, str | Path) or isinstance(delete, str):
        raise BadInput("add and delete must be lists")
    if not (add or delete or compact):
        raise BadInput("nothing to do: name documents to add or to delete")
    target = Path(index).resolve()
    if not target.parent.is_dir():
        artefacts.peek_manifest(target)  # raises the error of a missing index
    with artefacts.report_write_errors(target), hold_lock(target.with_name(f".{target.name}.lock"), wait=False):
        work = get_update_path(target)
        artefacts.sweep_orphans(target, keep=work)
        manifest = artefacts.read_manifest(target, "index")
        engine = manifest.config["engine"]
        if RetrieverKind(manifest.config["retriever"]).needs_terms and not TermEngine(engine).can_update:
            raise BadInput(f"{target} holds terms of {engine}, which cannot be updated: index again")
        artefacts.check_replaceable(target, "index")  # find errors before the work
        check_update_path(work)
        with own_directory(work):
            try:
                version = _NewVersion(_link_files(target, work), manifest, device, progress)
                lost_ids = _read_deleted(work, manifest)
                counts = version.change_documents([hub.make_absolute(path) for path in add], delete, lost_ids, skip_bad)
                if compact or (compact is None and version.scattered_share >= COMPACT_AT):
                    version.compact()
                if version.is_changed:
                    changed = version.write_manifest(target)
                    _record_deleted(work, {manifest.fingerprint: lost_ids, changed: lost_ids | _list_ids(delete)})
                    artefacts.swap_into_place(version.folder, target)
                artefacts.mark_checked(target)
            except Exception:  # not after an interrupt: the next update reads the work directory
                shutil.rmtree(work, ignore_errors=True)
                raise
            shutil.rmtree(work, ignore_errors=True)
    return UpdateReport(
        **counts,
        passages=version.store.live_count,
        compacted=version.is_compacted,
        seconds=round(perf_counter() - start, 3),
        corpus=version.report,
    )


def _read_deleted(work: Path, version: Manifest) -> set[str]:
    """Return the ids that an update to ``version`` deleted, if it was killed after its swap.

    A killed update prints no report, so its user runs it again. Then these ids are unknown, but not an error.
    """
    try:
        return set(json.loads((work / DELETED_IDS).read_text())[version.fingerprint])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return set()


def _record_deleted(work: Path, deleted: dict[str, set[str]]) -> None:
    """Write the deleted ids of each version, by fingerprint."""
    rows = {fingerprint: sorted(ids) for fingerprint, ids in deleted.items()}
    artefacts.write_text_whole(work / DELETED_IDS, json.dumps(rows))


def _list_ids(names: Sequence[str]) -> set[str]:
    """Return the ids of the documents with these names, or in the files at these paths."""
    return {to_document_id(form) for name in names for form in (name, str(make_absolute(name)))}


def _link_files(source: Path, work: Path) -> Path:
    """Copy an index to ``work`` by hard links, without manifest and locks; return the copy."""
    target = work / UPDATE_FOLDER
    shutil.rmtree(target, ignore_errors=True)  # a killed update may have left this folder
    for folder, _, files in os.walk(source):
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
        copy = target / Path(folder).relative_to(source)
        copy.mkdir()
        copy.chmod(stat.S_IMODE(os.stat(folder).st_mode))
        for name in files:
            if name != artefacts.MANIFEST and not name.endswith(".lock"):
                artefacts.link_file(Path(folder, name), copy / name)
    return target


class _NewVersion:
    """New version of an index, which begins as hard links to the files of the old version."""

    def __init__(self, folder: Path, manifest: Manifest, device: str, progress: Progress) -> None:
        self.folder, self._old, self._device, self._progress = folder, manifest, device, progress
        self._config: dict[str, Any] = {"built": manifest.config["passages"], **manifest.config}
        """Configuration; its ``built`` is the number of rows at the last build or compaction."""
        self.store = PassageStore.open(folder / "passages")
        self.report = CorpusReport()
        self.is_changed = self.is_compacted = False

    @property
    def scattered_share(self) -> float:
        """Share of the rows that were deleted or added since the last build or compaction."""
        scattered = len(self.store.deleted) + len(self.store) - self._config["built"]
        return scattered / max(1, len(self.store))

    def change_documents(
        self, add: Sequence[Path], delete: Sequence[str], lost_ids: set[str], skip_bad: bool
    ) -> dict[str, int]:
        """Add, replace and delete documents; return the numbers of documents by outcome.

        Args:
            add: files and folders to read.
            delete: ids or paths of documents.
            lost_ids: ids that an interrupted run of the same update deleted; they can be missing.
            skip_bad: skip malformed records.

        Raises:
            BadInput: a document is unknown, or both added and deleted, or there is none to add.
        """
        first_added = len(self.store)
        to_delete = self._find_documents(delete, lost_ids)
        changes = self._write_passages(add, skip_bad) if add else DocumentChanges()
        if both := sorted(_list_ids(delete) & {identifier for identifier, _ in changes.all_keys}):
            raise BadInput(
                f"{', '.join(both[:3])} would be both added and deleted: leave it out of one of them; "
                "nothing was changed"
            )
        rows = self.store.find_rows({identifier for identifier, _ in changes.all_keys | to_delete})
        keys = self._read_keys(rows)
        removed, counts = changes.find_removed(set(keys), to_delete)
        if add and not (changes.written_keys or changes.unchanged_keys or removed - to_delete):
            problems = "; ".join(line.strip() for line in self.report.describe_problems())
            raise BadInput(f"nothing to add in {', '.join(map(str, add))}: {problems or 'no documents'}")
        if removed or changes.written_keys:
            self._change_rows(rows[[key in removed for key in keys]], first_added)
        return counts

    def _read_keys(self, rows: Rows) -> list[DocumentKey]:
        return [(passage.document, passage.path) for passage in self.store.get(rows.tolist())]

    def _find_documents(self, names: Sequence[str], lost_ids: set[str]) -> set[DocumentKey]:
        """Return the documents with these ids or paths.

        Raises:
            BadInput: a name is unknown, and not in ``lost_ids``.
        """
        documents = set(self._read_keys(self.store.find_rows(_list_ids(names))))
        known = {identifier for identifier, _ in documents} | lost_ids
        if unknown := [name for name in dict.fromkeys(names) if not _list_ids([name]) & known]:
            # A path means a file of the working directory, which may not be the one that the user has in mind.
            shown = [f"{name} (as a path: {make_absolute(name)})" if os.sep in name else name for name in unknown]
            raise BadInput(f"no document has the id {', '.join(map(to_document_id, shown))}: nothing was changed")
        return documents

    def _write_passages(self, add: Sequence[Path], skip_bad: bool) -> DocumentChanges:
        """Write the passages of the new and changed documents in ``add``."""
        changes = DocumentChanges()
        blocks, size, encoder = (self._config[name] for name in ("blocks", "block_size", "encoder"))
        has_vectors = (self.folder / VECTORS_FOLDER).is_dir()
        needs_tokenizer = has_vectors or blocks == "wordpieces"
        name = find_local_model(encoder) if needs_tokenizer else encoder
        split = open_splitter(blocks, size, name, has_vectors=has_vectors)
        documents = read_documents(
            add,
            skip_bad=skip_bad,
            report=self.report,
            on_left_out=lambda document: changes.left_out_keys.add((document.id, document.path)),
        )
        file, first_row = self._choose_file()
        with PassageWriter(self.folder / "passages", first_file=file) as writer:
            for passage in self.store.get(range(first_row, len(self.store))):
                writer.add_passage(passage)
            for batch in iter_document_batches(documents):
                indexed = self._read_blocks({document.id for document in batch})
                for document in batch:
                    key, spans = (document.id, document.path), list(split(document.text, document.body))
                    blocks = [(document.title, start, end, document.text[start:end]) for start, end in spans]
                    if not blocks:
                        changes.left_out_keys.add(key)
                    elif indexed.get(key) == blocks:
                        changes.unchanged_keys.add(key)
                    else:
                        changes.written_keys.add(key)
                        writer.add_document(document, spans)
        # If a file is named twice, its documents are duplicates of themselves.
        changes.left_out_keys -= changes.written_keys | changes.unchanged_keys
        return changes

    def _choose_file(self) -> tuple[int, int]:
        """Return the number and the first row of the file to write: a small last file or a new file."""
        number, first_row = self.store.last_file
        is_small = first_row >= self._config["built"] and len(self.store) - first_row < _SMALL
        return (number, first_row) if is_small else (number + 1, len(self.store))

    def _read_blocks(self, ids: set[str]) -> dict[DocumentKey, list[tuple[str, int, int, str]]]:
        """Return the title, span and text of every passage of the documents with these ids."""
        blocks: dict[DocumentKey, list[tuple[str, int, int, str]]] = {}
        for p in self.store.get(self.store.find_rows(ids).tolist()):
            blocks.setdefault((p.document, p.path), []).append((p.title, p.start, p.end, p.text))
        return blocks

    def _change_rows(self, deleted: Rows, first_added: int) -> None:
        """Delete rows from the terms and vectors, and add the rows from ``first_added`` on."""
        _replace_array(self.folder / "passages" / DELETED, np.union1d(self.store.deleted, deleted))
        self.store = PassageStore.open(self.folder / "passages")
        if not self.store.live_count:
            raise BadInput("no passage would be left: delete the index instead")
        added = [passage for batch in self.store.iter_batches(first_added) for passage in batch]
        terms = self.folder / TERMS_FOLDER
        if terms.is_dir():
            BM25.update(terms, engine=self._config["engine"], deleted=deleted, added=added)
        if added and (self.folder / VECTORS_FOLDER).is_dir():
            self._add_vectors(added, first_added)
        self.is_changed = True

    def _add_vectors(self, added: list[Passage], first_added: int) -> None:
        """Embed the added passages and write their vectors, together with a small last file."""
        folder, expected_encoder = self.folder / VECTORS_FOLDER, self._old.parents["encoder"]
        encoder = load_encoder(find_local_model(self._config["encoder"]), device=self._device)
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
        """Rewrite passages, terms and vectors without the deleted rows."""
        encoder = self._old.parents.get("encoder")
        self._config |= compact_index(self.folder, self._config, encoder, device=self._device, progress=self._progress)
        self.store = PassageStore.open(self.folder / "passages")
        self.is_changed = self.is_compacted = True

    def write_manifest(self, old: Path) -> str:
        """Write the manifest and return its fingerprint.

        Files that are shared with the version in ``old`` keep their checksums.
        """
        config = {**self._config, "passages": self.store.live_count, "rows": len(self.store)}
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
