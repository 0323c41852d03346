"""Add, delete and replace documents in an index without building it again.

A new version of the index is made beside the old one out of links to its files, which nothing ever writes
into; what is new stands in files of its own:

    passages/00007.arrow      passages that were added          passages/deleted.npy    rows that were deleted
    dense/added-000001.npy    their vectors                     bm25/…                  Tantivy's segments

Then the two change places, at once. Whoever has the old version open keeps it until the next search, which
finds that the manifest is another (``pipeline.open_retriever``). Once a fifth of the rows are deleted or added, the
index is compacted: passages, terms and vectors are written as one build would, and nothing is embedded again.
"""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from ragqa import artefact
from ragqa.artefact import Manifest
from ragqa.corpus.blocks import splitter
from ragqa.corpus.documents import CorpusReport, read_documents
from ragqa.corpus.store import DELETED, PassageStore, PassageWriter
from ragqa.errors import BadInput, Mismatch
from ragqa.locks import locked
from ragqa.progress import SILENT, Progress
from ragqa.retrieval import mips
from ragqa.retrieval.bm25 import BM25
from ragqa.retrieval.vectors import ADDED, CHUNK, VECTORS, open_all
from ragqa.runtime.encoder import load_encoder, tokenizer_folder
from ragqa.runtime.tokens import TextTokenizer
from ragqa.types import Passage

Rows = npt.NDArray[np.int64]

COMPACT_AT = 0.2
"""Share of rows deleted or added, from which on an update compacts."""
_BATCH = 64


@dataclass(frozen=True)
class UpdateReport:
    """What an update did."""

    added: int
    """Documents that are new."""
    replaced: int
    """Documents that were there and are another text now."""
    deleted: int
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
        add: files and folders; a document whose id is in the index already replaces what is there.
        delete: ids of documents, as they are cited; of files, the path.
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
    aside = target.with_name(f".{target.name}.updating")
    with locked(target.with_name(f".{target.name}.lock"), wait=False), artefact.as_bad_input(target):
        manifest = artefact.read(target, "index")
        if manifest.config["engine"] != "tantivy" and manifest.config["retriever"] != "dense":
            raise BadInput(f"{target} holds terms of {manifest.config['engine']}, which cannot be updated: index again")
        try:
            _link(target, aside)
            update = _Update(aside, manifest, device, progress)
            counts = update.apply([Path(path).absolute() for path in add], delete, skip_bad)
            if compact or (compact is None and update.scattered >= COMPACT_AT):
                update.compact()
            update.seal(target)
            artefact.put_in_place(aside, target)
            artefact.vouch(target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
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

    def link(one: str, other: str) -> str:
        try:
            os.link(one, other)
        except OSError:
            shutil.copy2(one, other)
        return other

    shutil.copytree(source, target, copy_function=link, ignore=shutil.ignore_patterns("*.lock", artefact.MANIFEST))


class _Update:
    """A version of an index in the making, in ``folder``."""

    def __init__(self, folder: Path, manifest: Manifest, device: str, progress: Progress) -> None:
        self._folder, self._manifest, self._device, self._progress = folder, manifest, device, progress
        self._config: dict[str, Any] = {"built": manifest.config["passages"], **manifest.config}
        """``built``: rows that were there when the index was last built or compacted."""
        self._store = PassageStore.open(folder / "passages")
        self.report = CorpusReport()
        self.compacted = False

    @property
    def live(self) -> int:
        """Passages that can be found."""
        return self._store.live

    @property
    def scattered(self) -> float:
        """Share of the rows that are deleted, or were added since the index was built."""
        scattered = len(self._store.deleted) + len(self._store) - self._config["built"]
        return scattered / max(1, len(self._store))

    def apply(self, add: Sequence[Path], delete: Sequence[str], skip_bad: bool) -> dict[str, int]:
        """Add, replace and delete; how many documents of each."""
        first = len(self._store)
        new = self._write_passages(add, skip_bad)
        gone_documents = self._known(delete)
        rows = self._store.rows_of([*gone_documents, *new])
        replaced = {p.document for p in self._store.get(rows.tolist())} & new
        self._tombstone(rows)
        self._store = PassageStore.open(self._folder / "passages")
        if not self._store.live:
            raise BadInput("no passage would be left: delete the index instead")
        added = [p for batch in self._store.batches(first) for p in batch] if len(self._store) > first else []
        self._update_terms(rows, added)
        self._update_vectors(added)
        return {
            "added": len(new) - len(replaced),
            "replaced": len(replaced),
            "deleted": len(gone_documents - new),
        }

    def _write_passages(self, add: Sequence[Path], skip_bad: bool) -> set[str]:
        """Append the passages of the documents at ``add``; the ids of these documents.

        A document that comes twice counts as it comes last, as if it had been added twice.
        """
        config, tokenizer = self._config, None
        if not add:
            return set()
        if config["blocks"] == "wordpieces":
            tokenizer = TextTokenizer(tokenizer_folder(config["encoder"]))
        split = splitter(config["blocks"], config["block_size"], tokenizer)
        seen: set[str] = set()
        with PassageWriter(self._folder / "passages", append=True) as writer:
            for document in read_documents(list(add), skip_bad=skip_bad, report=self.report):
                if document.id in seen:
                    raise BadInput(f"two documents to add have the id {document.id}: add them one after the other")
                if writer.add(document, split(document.text, document.body)):
                    seen.add(document.id)
        if not seen and add:
            raise BadInput(f"nothing to add in {', '.join(map(str, add))}")
        return seen

    def _known(self, delete: Sequence[str]) -> set[str]:
        """The ids of the documents to delete, as they stand in the index."""
        found, unknown = set(), []
        for name in delete:
            names = [name, str(Path(name).absolute())]
            rows = self._store.rows_of(names)
            found |= {p.document for p in self._store.get(rows[:1].tolist())}
            if not len(rows):
                unknown.append(name)
        if unknown:
            raise BadInput(f"no document has the id {', '.join(unknown)}: nothing was changed")
        return found

    def _tombstone(self, rows: Rows) -> None:
        file = self._folder / "passages" / DELETED
        aside = file.with_name(f".{DELETED}")
        with aside.open("wb") as target:
            np.save(target, np.union1d(self._store.deleted, rows))
        aside.replace(file)  # not into the file, which is the old version's, too

    def _update_terms(self, deleted: Rows, added: list[Passage]) -> None:
        folder = self._folder / "bm25"
        if folder.is_dir():
            BM25.update(folder, engine=self._config["engine"], deleted=deleted, added=added)

    def _update_vectors(self, added: list[Passage]) -> None:
        folder = self._folder / "dense"
        if not (folder.is_dir() and added):
            return
        encoder = load_encoder(self._config["encoder"], device=self._device)
        if encoder.fingerprint != self._manifest.parents["encoder"]:
            raise Mismatch(
                f"the index was made with encoder {self._manifest.parents['encoder']}, which is {encoder.fingerprint} "
                "now: index it again"
            )
        vectors = []
        with self._progress.step("embedding", len(added), "passages") as step:
            for at in range(0, len(added), _BATCH):
                texts = [passage.titled for passage in added[at : at + _BATCH]]
                vectors.append(encoder.encode(texts).astype(np.float16))
                step.at(at + len(texts))
        number = 1 + sum(1 for _ in folder.glob("added-*.npy"))
        np.save(folder / ADDED.format(number), np.concatenate(vectors))

    def compact(self) -> None:
        """Write passages, terms and vectors as one build would: rows in their order, none deleted."""
        made = self._folder / ".compact"
        kept = np.setdiff1d(np.arange(len(self._store)), self._store.deleted)
        with PassageWriter(made / "passages") as writer:
            for batch in self._store.batches():
                for passage in batch:
                    writer.copy(passage)
        store = PassageStore.open(made / "passages")
        if (self._folder / "bm25").is_dir():
            with self._progress.step("bm25", len(store), "passages") as step:
                BM25.build(store, made / "bm25", engine=self._config["engine"], progress=step.at)
        if (self._folder / "dense").is_dir():
            self._compact_vectors(kept, made / "dense")
        for part in list(made.iterdir()):
            shutil.rmtree(self._folder / part.name)
            part.rename(self._folder / part.name)
        made.rmdir()
        self._store = PassageStore.open(self._folder / "passages")
        self._config["built"] = len(self._store)
        self.compacted = True

    def _compact_vectors(self, kept: Rows, folder: Path) -> None:
        vectors = open_all(self._folder / "dense")
        folder.mkdir()
        with (folder / VECTORS).open("wb") as target:
            header = {"descr": "<f2", "fortran_order": False, "shape": (len(kept), vectors.shape[1])}
            np.lib.format.write_array_header_1_0(target, header)
            for at in range(0, len(kept), CHUNK):
                target.write(vectors[kept[at : at + CHUNK]].astype("<f2").tobytes())
        written = np.load(folder / VECTORS, mmap_mode="r")
        kind = self._config["kind"]
        with self._progress.step(kind, len(kept), "passages") as step:
            mips.build(written, kind, folder, device=self._device, progress=step.at)

    def seal(self, old: Path) -> None:
        """Sign the new version; files that are the old version's keep their checksums."""
        config = {**self._config, "passages": self.live, "rows": len(self._store)}
        parents = {**self._manifest.parents, "corpus": self._store.fingerprint()}
        artefact.seal(self._folder, "index", config, parents, known=_same_files(old, self._folder, self._manifest))


def _same_files(old: Path, new: Path, manifest: Manifest) -> dict[str, dict[str, Any]]:
    """Entries of the old manifest whose files are, by link, the new version's, too."""
    return {
        name: entry
        for name, entry in manifest.files.items()
        if (new / name).is_file() and os.path.samefile(old / name, new / name)
    }


def summary(report: UpdateReport, index: Path, *, as_json: bool = False) -> str:
    """What was done, for people or for machines."""
    if as_json:
        return json.dumps({"index": str(index), **asdict(report)})
    counts = [f"{count} {what}" for what in ("added", "replaced", "deleted") if (count := getattr(report, what))]
    done = ", ".join([*counts, *["compacted"] * report.compacted])
    return f"{done}: {report.passages:,} passages in {index} ({report.seconds:.1f} s)"
