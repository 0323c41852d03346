"""Add, delete and replace documents in an index without building it again.

A new version of the index is made beside the old one out of links to its files, which nothing ever writes
into; what is new stands in files of its own:

    passages/00007.arrow      passages that were added          passages/deleted.npy    rows that were deleted
    dense/added-000001.npy    their vectors                     bm25/…                  Tantivy's segments

Then the two change places, at once. Whoever has the old version open keeps it until the next search, which
finds that the manifest is another (``retrieval.open_retriever``). Once a fifth of the rows are deleted or added,
the index is compacted: passages, terms and vectors are written as one build would, and nothing is embedded again.

A document is known by its id and its path, since files may number their records alike. One that is not in the index
replaces those that bear its id in other files, but for files that are added, too: so corrections can come in a file
of their own.
"""

import errno
import json
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from ragqa import artefacts
from ragqa.artefacts import Manifest, npy
from ragqa.artefacts.lock import hold_lock
from ragqa.artefacts.paths import make_absolute
from ragqa.corpus import hub
from ragqa.corpus.blocks import make_splitter
from ragqa.corpus.sources import CorpusReport, Document, read_documents, to_document_id
from ragqa.corpus.store import DELETED, PassageStore, PassageWriter
from ragqa.errors import BadInput, Mismatch, RagqaError
from ragqa.indexing.build import encode_sample_questions
from ragqa.progress import SILENT, Progress
from ragqa.retrieval.bm25 import BM25
from ragqa.retrieval.registry import TERMS_FOLDER, VECTORS_FOLDER, RetrieverKind, TermEngine
from ragqa.retrieval.vectors import mips
from ragqa.retrieval.vectors.arrays import SelectedVectors
from ragqa.retrieval.vectors.kinds import IndexKind
from ragqa.retrieval.vectors.store import ADDED_FILE, open_vectors
from ragqa.runtime.encoder import load_encoder, tokenizer_folder
from ragqa.runtime.tokens import TextTokenizer
from ragqa.types import Passage

Rows = npt.NDArray[np.int64]
Name = tuple[str, str]
"""Id and path of a document."""

COMPACT_AT = 0.2
"""Share of rows deleted or added, from which on an update compacts."""
_BATCH = 64
_SMALL = 1000
"""Rows of an added file, from which on the next update begins another: many small files would be open at once."""
_DOCUMENTS = 1000
_CHARACTERS = 32 << 20
"""Documents that are compared with those of the index at a time, or characters of theirs."""


@dataclass(frozen=True)
class UpdateReport:
    """What an update did."""

    added: int
    """Documents that are new."""
    replaced: int
    """Documents that were there and are another text now."""
    unchanged: int
    """Documents to add that are there already."""
    deleted: int
    """Documents that are gone; those to add that are empty now, or another's double, are among them."""
    passages: int
    """Passages of the index afterwards."""
    compacted: bool
    seconds: float
    corpus: CorpusReport = field(default_factory=CorpusReport)


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
    """Change the documents of the index in the directory ``index``; nothing changes unless all of it does.

    Args:
        index: an index directory. Other processes may search it meanwhile and see the change at their next search.
        add: files and folders; a document that is in the index already replaces what is there.
        delete: ids of documents, as they are cited; of files, the path. All documents with such an id are deleted.
        skip_bad: skip and count malformed records.
        compact: write everything anew; by default once a fifth of the rows are deleted or added.
        device: where torch encoders and FAISS run.
        progress: told how far it is.

    Raises:
        BadInput: an id that is not there, an unreadable file, nothing to do, a full disk, an index of Lucene's.
        Mismatch: the encoder is not the one the index was made with.
        ArtefactError, DamagedArtefact: no index, or not whole.
    """
    began = perf_counter()
    if isinstance(add, str | Path) or isinstance(delete, str):
        raise BadInput("add and delete must be lists")
    if not (add or delete or compact):
        raise BadInput("nothing to do: name what to add or to delete")
    target = Path(index).resolve()
    if not target.parent.is_dir():
        artefacts.peek_manifest(target)  # says so
    aside = target.with_name(f".{target.name}.updating")
    with artefacts.report_write_errors(target), hold_lock(target.with_name(f".{target.name}.lock"), wait=False):
        artefacts.restore_interrupted_swap(target)
        manifest = artefacts.read_manifest(target, "index")
        if (
            RetrieverKind(manifest.config["retriever"]).needs_terms
            and not TermEngine(manifest.config["engine"]).can_update
        ):
            raise BadInput(f"{target} holds terms of {manifest.config['engine']}, which cannot be updated: index again")
        try:
            _link(target, aside)
            update = _Update(aside, manifest, device, progress)
            counts = update.apply([hub.make_absolute(path) for path in add], delete, skip_bad)
            if compact or (compact is None and update.scattered >= COMPACT_AT):
                update.compact()
            if update.changed:
                update.seal(target)
                artefacts.swap_into_place(aside, target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        artefacts.mark_checked(target)
    return UpdateReport(
        **counts,
        passages=update.live,
        compacted=update.compacted,
        seconds=round(perf_counter() - began, 3),
        corpus=update.report,
    )


def _link(source: Path, target: Path) -> None:
    """``target`` as a copy of ``source`` by hard links, or by copies where there are none."""
    shutil.rmtree(target, ignore_errors=True)
    for folder, _, files in os.walk(source):
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
        copy = target / Path(folder).relative_to(source)
        copy.mkdir()
        copy.chmod(stat.S_IMODE(os.stat(folder).st_mode))
        for name in files:
            if name != artefacts.MANIFEST and not name.endswith(".lock"):
                try:
                    os.link(Path(folder, name), copy / name)
                except OSError:
                    shutil.copy2(Path(folder, name), copy / name)


class _Update:
    """A version of an index in the making, in ``folder``."""

    def __init__(self, folder: Path, manifest: Manifest, device: str, progress: Progress) -> None:
        self._folder, self._manifest, self._device, self._progress = folder, manifest, device, progress
        self._config: dict[str, Any] = {"built": manifest.config["passages"], **manifest.config}
        """``built``: rows that were there when the index was last built or compacted."""
        self._store = PassageStore.open(folder / "passages")
        self.report = CorpusReport()
        self.changed = self.compacted = False

    @property
    def live(self) -> int:
        """Passages that can be found."""
        return self._store.live_count

    @property
    def scattered(self) -> float:
        """Share of the rows that are deleted, or were added since the index was built."""
        scattered = len(self._store.deleted) + len(self._store) - self._config["built"]
        return scattered / max(1, len(self._store))

    def apply(self, add: Sequence[Path], delete: Sequence[str], skip_bad: bool) -> dict[str, int]:
        """Add, replace and delete; how many documents of each."""
        first = len(self._store)
        asked = self._known(delete)
        read = self._append(add, skip_bad) if add else _Read()
        rows = self._store.find_rows({identifier for identifier, _ in read.all | asked})
        names = [(p.document, p.path) for p in self._store.get(rows.tolist())]
        gone, counts = read.effect(set(names), asked)
        if add and not (read.written or read.unchanged or gone - asked):
            left_out = "; ".join(line.strip() for line in self.report.describe_problems())
            raise BadInput(f"nothing to add in {', '.join(map(str, add))}: {left_out or 'no documents'}")
        if gone or read.written:
            self._change(rows[[name in gone for name in names]], first)
        return counts

    def _change(self, deleted: Rows, first: int) -> None:
        """Delete rows; those from ``first`` on, whose passages are written, become part of the index."""
        _save(self._folder / "passages" / DELETED, np.union1d(self._store.deleted, deleted))
        self._store = PassageStore.open(self._folder / "passages")
        if not self._store.live_count:
            raise BadInput("no passage would be left: delete the index instead")
        added = [passage for batch in self._store.iter_batches(first) for passage in batch]
        self._update_terms(deleted, added)
        self._update_vectors(added)
        self.changed = True

    def _append(self, add: Sequence[Path], skip_bad: bool) -> "_Read":
        """Write the passages of those documents at ``add`` that are not in the index as they are."""
        config, tokenizer, read = self._config, None, _Read()
        if config["blocks"] == "wordpieces":
            tokenizer = TextTokenizer(tokenizer_folder(config["encoder"]))
        split = make_splitter(config["blocks"], config["block_size"], tokenizer)
        documents = read_documents(
            add,
            skip_bad=skip_bad,
            report=self.report,
            on_left_out=lambda document: read.left_out.add((document.id, document.path)),
        )
        number, first = self._tail()
        with PassageWriter(self._folder / "passages", first_file=number) as writer:
            for passage in self._store.get(range(first, len(self._store))):
                writer.add_passage(passage)
            for some in _batched(documents):
                there = self._blocks({document.id for document in some})
                for document in some:
                    name, spans = (document.id, document.path), list(split(document.text, document.body))
                    new = [(document.title, start, end, document.text[start:end]) for start, end in spans]
                    kind = read.left_out if not new else read.unchanged if there.get(name) == new else read.written
                    kind.add(name)
                    if kind is read.written:
                        writer.add_document(document, spans)
        read.left_out -= read.written | read.unchanged  # a file that was named twice
        return read

    def _tail(self) -> tuple[int, int]:
        """Number and first row of the file that passages are added to: the last one's if it was added and is small."""
        number, first = self._store.last_file
        small = first >= self._config["built"] and len(self._store) - first < _SMALL
        return (number, first) if small else (number + 1, len(self._store))

    def _blocks(self, identifiers: set[str]) -> dict[Name, list[tuple[str, int, int, str]]]:
        """Title, span and text of all passages of the documents with these ids."""
        found: dict[Name, list[tuple[str, int, int, str]]] = {}
        for p in self._store.get(self._store.find_rows(identifiers).tolist()):
            found.setdefault((p.document, p.path), []).append((p.title, p.start, p.end, p.text))
        return found

    def _known(self, delete: Sequence[str]) -> set[Name]:
        """The documents to delete."""
        meant = {name: {to_document_id(name), to_document_id(str(make_absolute(name)))} for name in delete}
        rows = self._store.find_rows(set().union(*meant.values()))
        found = {(p.document, p.path) for p in self._store.get(rows.tolist())}
        there = {identifier for identifier, _ in found}
        if unknown := [to_document_id(name) for name in meant if not meant[name] & there]:
            raise BadInput(f"no document has the id {', '.join(unknown)}: nothing was changed")
        return found

    def _update_terms(self, deleted: Rows, added: list[Passage]) -> None:
        folder = self._folder / TERMS_FOLDER
        if folder.is_dir():
            BM25.update(folder, engine=self._config["engine"], deleted=deleted, added=added)

    def _update_vectors(self, added: list[Passage]) -> None:
        folder = self._folder / VECTORS_FOLDER
        if not (folder.is_dir() and added):
            return
        encoder = load_encoder(self._config["encoder"], device=self._device)
        if encoder.fingerprint != self._manifest.parents["encoder"]:
            raise Mismatch(
                f"the index was made with encoder {self._manifest.parents['encoder']}, which is {encoder.fingerprint} "
                "now: index it again"
            )
        files = sorted(folder.glob("added-*.npy"))
        vectors = (
            [npy.load_array(files.pop())] if files and len(npy.load_array(files[-1], mapped=True)) < _SMALL else []
        )
        with self._progress.step("embedding", len(added), "passages") as step:
            for at in range(0, len(added), _BATCH):
                texts = [passage.titled for passage in added[at : at + _BATCH]]
                vectors.append(encoder.encode(texts).astype(np.float16))
                step.advance_to(at + len(texts))
        _save(folder / ADDED_FILE.format(len(files) + 1), np.concatenate(vectors))

    def compact(self) -> None:
        """Write passages, terms and vectors as one build would: rows in their order, none deleted."""
        made = self._folder / ".compact"
        kept = np.setdiff1d(np.arange(len(self._store)), self._store.deleted)
        with PassageWriter(made / "passages") as writer:
            for batch in self._store.iter_batches():
                for passage in batch:
                    writer.add_passage(passage)
        store = PassageStore.open(made / "passages")
        if (self._folder / TERMS_FOLDER).is_dir():
            with self._progress.step(RetrieverKind.BM25, len(store), "passages") as step:
                BM25.build(store, made / TERMS_FOLDER, engine=self._config["engine"], progress=step.advance_to)
        if (self._folder / VECTORS_FOLDER).is_dir():
            self._compact_vectors(kept, made / VECTORS_FOLDER)
        for part in list(made.iterdir()):
            shutil.rmtree(self._folder / part.name)
            part.rename(self._folder / part.name)
        made.rmdir()
        self._store = PassageStore.open(self._folder / "passages")
        self._config["built"] = len(self._store)
        self.changed = self.compacted = True

    def _compact_vectors(self, kept: Rows, folder: Path) -> None:
        vectors = SelectedVectors(open_vectors(self._folder / VECTORS_FOLDER), kept)
        folder.mkdir()
        tuned = mips.build(
            vectors,
            self._config["kind"],
            folder,
            device=self._device,
            recall=self._config.get("recall", mips.RECALL),
            queries=self._queries(),
            progress=self._progress,
        )
        self._config["search"] = tuned and tuned.as_dict()

    def _queries(self) -> npt.NDArray[np.float32] | None:
        """The questions that the index was tuned on; None where they or the encoder are not as they were any more."""
        file = self._config.get("questions")
        if not file or self._config["kind"] == IndexKind.FLAT:
            return None
        try:
            encoder = load_encoder(self._config["encoder"], device=self._device)
            same = encoder.fingerprint == self._manifest.parents["encoder"]
            return encode_sample_questions(file, encoder) if same else None
        except (RagqaError, OSError):  # documents are to be changed: that must not fail for want of questions
            return None

    def seal(self, old: Path) -> None:
        """Sign the new version; files that are the old version's keep their checksums."""
        config = {**self._config, "passages": self.live, "rows": len(self._store)}
        known = _same_files(old, self._folder, self._manifest)
        passages = {Path(name).name: entry["sha256"] for name, entry in known.items() if name.startswith("passages/")}
        old_parents = {"origin": self._manifest.fingerprint, **self._manifest.parents}
        parents = {**old_parents, "corpus": self._store.fingerprint(passages)}
        artefacts.write_manifest(self._folder, "index", config, parents, known=known)


@dataclass
class _Read:
    """What became of the documents to add."""

    written: set[Name] = field(default_factory=set)
    unchanged: set[Name] = field(default_factory=set)
    left_out: set[Name] = field(default_factory=set)

    @property
    def all(self) -> set[Name]:
        return self.written | self.unchanged | self.left_out

    def effect(self, there: set[Name], asked: set[Name]) -> tuple[set[Name], dict[str, int]]:
        """Of the documents that are ``there``, those that have to go; how many were added, replaced and so on.

        Those that somebody ``asked`` to delete are among the former, unless they are to be added as they are.
        """
        new = {identifier for identifier, _ in self.all - there}
        orphans = {name for name in there - self.all if name[0] in new}
        gone = (there & (self.written | self.left_out | (asked - self.unchanged))) | orphans
        heirs = {identifier for identifier, _ in self.written - there}
        ids_gone = {identifier for identifier, _ in orphans}
        replaced = {name for name in self.written if name in there or name[0] in ids_gone}
        counts = {
            "added": len(self.written - replaced),
            "replaced": len(replaced),
            "unchanged": len(self.unchanged),
            "deleted": len([name for name in gone - self.written if name not in orphans or name[0] not in heirs]),
        }
        return gone, counts


def _batched(documents: Iterator[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    characters = 0
    for document in documents:
        batch.append(document)
        characters += len(document.text)
        if len(batch) == _DOCUMENTS or characters > _CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _save(file: Path, array: npt.NDArray[Any]) -> None:
    """Write an array aside and rename it, not into ``file``: that may be the old version's, too."""
    aside = file.with_name(f".{file.name}")
    with aside.open("wb") as target:
        np.save(target, array)
    aside.replace(file)


def _same_files(old: Path, new: Path, manifest: Manifest) -> dict[str, dict[str, Any]]:
    """Entries of the old manifest whose files are, by link, the new version's, too."""
    return {
        name: entry
        for name, entry in manifest.files.items()
        if (new / name).is_file() and os.path.samefile(old / name, new / name)
    }


def format_summary(report: UpdateReport, index: Path, *, as_json: bool = False) -> str:
    """What was done, for people or for machines."""
    if as_json:
        return json.dumps({"index": str(index), **asdict(report)})
    kinds = ("added", "replaced", "unchanged", "deleted")
    counts = [f"{count} {what}" for what in kinds if (count := getattr(report, what))]
    done = ", ".join([*counts, *["compacted"] * report.compacted])
    passages = f"{report.passages:,} passage{'s' * (report.passages != 1)}"
    line = f"{done}: {passages} in {index} ({report.seconds:.1f} s)"
    return "\n".join([line, *report.corpus.describe_problems()])
