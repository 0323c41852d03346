"""One version of an index, made from a snapshot of the weights, by whoever encodes."""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from ragqa import artefacts
from ragqa.artefacts.lock import hold_lock
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput, DamagedArtefact, Mismatch
from ragqa.indexing.build import encode_sample_questions
from ragqa.indexing.embed import (
    EmbeddingShard,
    embed_shard,
    find_damaged_files,
    open_shards,
    prepare_shard_folder,
    read_shard_record,
    split_into_shards,
)
from ragqa.questions import read_questions
from ragqa.retrieval.registry import VECTORS_ARTEFACT
from ragqa.retrieval.vectors import mips
from ragqa.retrieval.vectors.kinds import IndexKind
from ragqa.retrieval.vectors.store import Vectors, chunks
from ragqa.runtime.encoder import TextEncoder, load_encoder


class Embeds(Protocol):
    """Makes vectors of passages, here or elsewhere."""

    def load(self, snapshot: Path) -> str:
        """Take up the weights in ``snapshot``; fingerprint of the encoder."""
        ...

    def embed(self, folder: Path, parts: list[EmbeddingShard]) -> None:
        """Write these shards into ``folder``, a ``workplace``, with the weights that were loaded last."""
        ...


class Encoding:
    """Encodes in this process."""

    def __init__(self, store: PassageStore, device: str) -> None:
        self._store, self._device = store, device
        self._encoder: TextEncoder | None = None

    def load(self, snapshot: Path) -> str:
        """See ``Embeds``."""
        self._encoder = _load(snapshot, self._device)
        return self._encoder.fingerprint

    def embed(self, folder: Path, parts: list[EmbeddingShard]) -> None:
        """See ``Embeds``."""
        assert self._encoder is not None
        for part in parts:
            embed_shard(self._store, self._encoder, folder, part)


def _load(snapshot: Path, device: str) -> TextEncoder:
    """In the precision of the recipes: where bfloat16 is faster it is so by 1.6 to 1.8 times, 98 % of the 20 best
    alike."""
    import torch

    from ragqa.training import precision

    with torch.random.fork_rng(devices=[]):  # to load a model must not change the steps of the one in training
        return load_encoder(snapshot, device=device, precision=precision.choose_precision(device))


@dataclass(frozen=True)
class Plan:
    """What every version of a run has in common."""

    corpus: Path
    """Index directory whose passages are embedded."""
    fingerprint: str
    """Of its passages."""
    work: Path
    kind: str
    shard_rows: int
    recall: float = mips.RECALL
    """Of the 20 best, for a kind that is not exact."""
    questions: Path | None = None
    """Sample on which that is tried; without it queries are made up."""

    @classmethod
    def of(cls, corpus: Path, work: Path, kind: str, shard_rows: int, recall: float, questions: Path | None) -> "Plan":
        """Raises BadInput, ArtefactError, DamagedArtefact or MissingExtra for what cannot come to a good end."""
        mips.check(kind, "cpu")
        if not 0 < recall <= 1:
            raise BadInput(f"recall = {recall}: a share above 0 and up to 1 is needed")
        questions = None if kind == IndexKind.FLAT or questions is None else Path(questions).resolve()
        if questions is not None and not sum(1 for _ in read_questions(questions)):
            raise BadInput(f"no questions in {questions}")
        if shard_rows < 1:
            raise BadInput(f"shard_rows = {shard_rows}: a shard has at least one row")
        corpus, work = Path(corpus).resolve(), Path(work).resolve()
        with artefacts.report_write_errors(work):
            work.mkdir(parents=True, exist_ok=True)
        fingerprint = artefacts.read_manifest(corpus, "index").parents["corpus"]
        return cls(corpus, fingerprint, work, kind, shard_rows, recall, questions)

    def passages(self) -> PassageStore:
        """Raises Mismatch where ``corpus`` has been updated since the run began."""
        if artefacts.peek_manifest(self.corpus).parents["corpus"] != self.fingerprint:
            raise Mismatch(f"{self.corpus} holds other passages than when training began: train on a copy of it")
        return PassageStore.open(self.corpus / "passages")

    def snapshot(self, step: int) -> Path:
        """Folder of the weights of ``step``."""
        return self.work / f"snapshot-{step:08d}"

    def index(self, step: int) -> Path:
        """Folder of the index made with them."""
        return self.work / f"index-{step:08d}"

    def making(self, step: int) -> Path:
        """Folder in which it is made."""
        return self.work / f".index-{step:08d}.making"


@dataclass(frozen=True)
class Made:
    """What the making of a version took, in seconds, of the attempt that came to its end."""

    embedding: float
    building: float


def make_version(plan: Plan, step: int, embeds: Embeds, clock: Callable[[], float] = perf_counter) -> Made:
    """Make ``plan.index(step)`` from ``plan.snapshot(step)``; shards that are whole are not made again.

    Whatever is killed on the way, it can be called again; two who make one version do so one after the other.

    Raises:
        BadInput: a file cannot be written.
        ArtefactError, DamagedArtefact, Mismatch: snapshot or corpus are damaged, or others than they were.
    """
    target, making = plan.index(step), plan.making(step)
    with artefacts.report_write_errors(making), hold_lock(making.with_suffix(".lock"), wait=True):
        began = clock()
        artefacts.read_manifest(plan.corpus, "index")  # costs nothing unless a file has changed
        rows, encoder = len(plan.passages()), embeds.load(plan.snapshot(step))
        parents = {"corpus": plan.fingerprint, "encoder": encoder}
        if not (target.exists() and artefacts.peek_manifest(target).parents == parents):  # else killed after the rename
            _claim(making, {**parents, "shard_rows": plan.shard_rows})
            _embed(making / "shards", split_into_shards(rows, plan.shard_rows), encoder, embeds)
            embedded = clock()
            config = {"step": step, "rows": rows, **_build(plan, step, making)}
            config["seconds"] = asdict(Made(round(embedded - began, 3), round(clock() - embedded, 3)))
            artefacts.write_manifest(making / "made", VECTORS_ARTEFACT, config, parents)
            artefacts.swap_into_place(making / "made", target)
        shutil.rmtree(making, ignore_errors=True)
        return Made(**artefacts.peek_manifest(target).config["seconds"])


def _build(plan: Plan, step: int, making: Path) -> dict[str, Any]:
    """The index of the shards into ``making/made``; what its manifest says of it."""
    made = making / "made"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    vectors = open_shards(making / "shards", len(plan.passages()))
    _check_filled(vectors)
    tuned = mips.build(vectors, plan.kind, made, recall=plan.recall, queries=_queries(plan, step))
    return {"kind": plan.kind, "search": tuned and tuned.as_dict(), "width": vectors.shape[1]}


def _queries(plan: Plan, step: int) -> np.ndarray | None:
    """The sample questions as the weights of ``step`` encode them."""
    return (
        None if plan.questions is None else encode_sample_questions(plan.questions, _load(plan.snapshot(step), "cpu"))
    )


def _claim(making: Path, identity: dict[str, Any]) -> None:
    """See that ``making`` holds shards of these passages and weights, or none."""
    mark, ours = making / "begun.json", json.dumps(identity, sort_keys=True)
    if not mark.is_file() or mark.read_text() != ours:
        shutil.rmtree(making, ignore_errors=True)
        (making / "shards").mkdir(parents=True)
        mark.write_text(ours)


def _embed(folder: Path, parts: list[EmbeddingShard], encoder: str, embeds: Embeds) -> None:
    """All shards into ``folder``; those whose bytes are not what was written are made once more.

    An actor that outlives its coordinator loses what it has half-written when the next one begins, and what it
    writes whole after that is what the next one would have written.
    """
    with prepare_shard_folder(folder):
        embeds.embed(folder, [part for part in parts if not read_shard_record(folder, part, encoder)])
        if bad := _damaged(folder, parts, encoder):
            embeds.embed(folder, bad)
            if bad := _damaged(folder, parts, encoder):
                raise DamagedArtefact(f"{folder / bad[0].vectors} is not as it was written: look at the disk")


def _damaged(folder: Path, parts: list[EmbeddingShard], encoder: str) -> list[EmbeddingShard]:
    known = {part: read_shard_record(folder, part, encoder) for part in parts}
    bad = set(find_damaged_files(folder, [record for record in known.values() if record]))
    lost = [part for part, record in known.items() if not record or folder / part.vectors in bad]
    for part in lost:
        (folder / part.record).unlink(missing_ok=True)
    return lost


def _check_filled(vectors: Vectors) -> None:
    for chunk, done in chunks(vectors):
        filled = chunk.any(axis=1)
        if not filled.all():
            row = done - len(chunk) + int(filled.argmin())
            raise DamagedArtefact(f"the vector of passage {row} is zero: the weights are broken")


def line(error: Exception) -> str:
    """What an error says, in one line."""
    return " ".join(str(error).split())[:500] or type(error).__name__
