"""Build a version of a refreshed index from a snapshot of the weights."""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, Protocol

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
from ragqa.question_files import read_questions
from ragqa.retrieval.vectors import mips
from ragqa.retrieval.vectors.arrays import Vectors, iter_chunks
from ragqa.retrieval.vectors.index_kinds import DEFAULT_KIND, DEFAULT_RECALL, FlatEngine, IndexKind
from ragqa.runtime.encoder import TextEncoder, load_encoder


@dataclass(frozen=True, kw_only=True)
class RefreshSettings:
    """Settings of an index that is refreshed during training."""

    kind: str = DEFAULT_KIND
    """Kind of the index, a value of ``IndexKind``."""
    recall: float = DEFAULT_RECALL
    """Share of the 20 nearest passages that a kind other than flat must find."""
    questions: Path | None = None
    """File of questions to measure recall; by default queries are made from the passages."""
    search_device: str = "cpu"
    """Device on which the index is searched."""
    engine: str = FlatEngine.AUTO
    """Engine that searches an index of kind flat."""
    max_staleness: int | None = None
    """Maximum number of steps since the weights of the index; None sets no limit."""
    shard_rows: int = 4096
    """Rows of a shard; an actor that dies loses its unfinished shard."""

    def __post_init__(self) -> None:
        """Raise BadInput for values out of range, or MissingExtra if the kind needs FAISS."""
        mips.check_kind(self.kind, "cpu")
        if not 0 < self.recall <= 1:
            raise BadInput(f"recall = {self.recall}: a share above 0 and up to 1 is needed")
        if self.shard_rows < 1:
            raise BadInput(f"shard_rows = {self.shard_rows}: a shard has at least one row")


@dataclass(frozen=True)
class VersionPlan:
    """Inputs and folders that all versions of a run share."""

    corpus: Path
    """Index directory whose passages are embedded."""
    fingerprint: str
    """Fingerprint of the passages at the start of the run."""
    work: Path
    """Directory of the versions."""
    settings: RefreshSettings

    def open_passages(self) -> PassageStore:
        """Open the passages; raise Mismatch if ``corpus`` was updated since the run began."""
        if artefacts.peek_manifest(self.corpus).parents["corpus"] != self.fingerprint:
            raise Mismatch(f"the passages of {self.corpus} have changed since training began: train on a copy of it")
        return PassageStore.open(self.corpus / "passages")

    def get_snapshot_folder(self, step: int) -> Path:
        """Return the folder of the weights of ``step``."""
        return self.work / f"snapshot-{step:08d}"

    def get_index_folder(self, step: int) -> Path:
        """Return the folder of the index made from the weights of ``step``."""
        return self.work / f"index-{step:08d}"

    def get_build_folder(self, step: int) -> Path:
        """Return the folder in which the index of ``step`` is built."""
        return self.work / f".index-{step:08d}.making"


def plan_versions(corpus: Path, work: Path, settings: RefreshSettings) -> VersionPlan:
    """Check the inputs of a refreshed index, create ``work``, and return the plan.

    Args:
        corpus: index directory whose passages are embedded.
        work: directory of the versions.
        settings: settings of the index.

    Raises:
        BadInput: the file of questions is empty or cannot be read, or ``work`` cannot be written.
        ArtefactError, DamagedArtefact: ``corpus`` is not a complete index.
    """
    questions = settings.questions
    questions = None if settings.kind == IndexKind.FLAT or questions is None else Path(questions).resolve()
    if questions is not None and not sum(1 for _ in read_questions(questions)):
        raise BadInput(f"no questions in {questions}")
    corpus, work = Path(corpus).resolve(), Path(work).resolve()
    with artefacts.report_write_errors(work):
        work.mkdir(parents=True, exist_ok=True)
    fingerprint = artefacts.read_manifest(corpus, "index").parents["corpus"]
    return VersionPlan(corpus, fingerprint, work, replace(settings, questions=questions))


class PassageEmbedder(Protocol):
    """Embedder of passages, in this process or elsewhere."""

    def load(self, snapshot: Path) -> str:
        """Load the weights in ``snapshot`` and return the encoder's fingerprint."""

    def embed(self, folder: Path, shards: list[EmbeddingShard]) -> None:
        """Embed ``shards`` with the last loaded weights, and write them into ``folder``.

        Call this method inside ``prepare_shard_folder(folder)``.
        """


class LocalEmbedder(PassageEmbedder):
    """Embedder of passages in this process."""

    def __init__(self, store: PassageStore, device: str) -> None:
        self._store, self._device = store, device

    def load(self, snapshot: Path) -> str:
        """Load the weights in ``snapshot`` and return the encoder's fingerprint."""
        self._encoder = _load_encoder(snapshot, self._device)
        return self._encoder.fingerprint

    def embed(self, folder: Path, shards: list[EmbeddingShard]) -> None:
        """Embed ``shards`` with the last loaded weights, and write them into ``folder``."""
        for shard in shards:
            embed_shard(self._store, self._encoder, folder, shard)


def _load_encoder(snapshot: Path, device: str) -> TextEncoder:
    """Load an encoder in the precision of training.

    On machines with fast bfloat16, the encoder is 1.6 to 1.8 times as fast in bfloat16 as in float32, and 98 % of the
    20 nearest passages are the same.
    """
    import torch

    from ragqa.training import precision

    with torch.random.fork_rng(devices=[]):  # loading draws random numbers, which must not change the training steps
        return load_encoder(snapshot, device=device, precision=precision.choose_precision(device))


class BuildSeconds(NamedTuple):
    """Wall times of the attempt that built a version."""

    embedding: float
    """Seconds to embed the passages."""
    building: float
    """Seconds to build the index from the vectors."""


def make_version(plan: VersionPlan, step: int, embedder: PassageEmbedder) -> BuildSeconds:
    """Build the index of ``step`` from its snapshot, and return the build times.

    After a kill, another call continues: finished shards are not embedded again. Processes that build the same version
    wait for each other.

    Args:
        plan: inputs and folders of the run.
        step: training step of the weights.
        embedder: embedder of the passages.

    Raises:
        BadInput: a file cannot be written, or the questions cannot be read.
        ArtefactError, DamagedArtefact: the snapshot or the corpus is missing or damaged, or the weights are broken.
        Mismatch: the passages have changed since the run began.
        RefreshFailed: an actor of ``embedder`` failed, or too many actors died.
    """
    target, folder = plan.get_index_folder(step), plan.get_build_folder(step)
    with artefacts.report_write_errors(folder), hold_lock(folder.with_suffix(".lock"), wait=True):
        start = perf_counter()
        artefacts.read_manifest(plan.corpus, "index")  # cheap unless a file has changed
        rows, encoder = len(plan.open_passages()), embedder.load(plan.get_snapshot_folder(step))
        parents = {"corpus": plan.fingerprint, "encoder": encoder}
        # After a kill between the rename and the end, the finished version is not built again.
        if not (target.exists() and artefacts.peek_manifest(target).parents == parents):
            _claim_folder(folder, {**parents, "shard_rows": plan.settings.shard_rows})
            shards = split_into_shards(rows, plan.settings.shard_rows)
            _embed_shards(folder / "shards", shards, encoder, embedder)
            embedded = perf_counter()
            config = {"step": step, "rows": rows, **_build_index(plan, step, folder)}
            seconds = BuildSeconds(round(embedded - start, 3), round(perf_counter() - embedded, 3))
            config["seconds"] = seconds._asdict()
            artefacts.write_manifest(folder / "made", artefacts.VECTORS_ARTEFACT, config, parents)
            artefacts.swap_into_place(folder / "made", target)
        shutil.rmtree(folder, ignore_errors=True)
        return BuildSeconds(**artefacts.peek_manifest(target).config["seconds"])


def _build_index(plan: VersionPlan, step: int, folder: Path) -> dict[str, Any]:
    """Build an index in ``folder/made`` from ``folder/shards``; return its manifest entries."""
    result, settings = folder / "made", plan.settings
    shutil.rmtree(result, ignore_errors=True)
    result.mkdir()
    vectors = open_shards(folder / "shards", len(plan.open_passages()))
    _check_not_zero(vectors)
    queries = None
    if settings.questions is not None:
        queries = encode_sample_questions(settings.questions, _load_encoder(plan.get_snapshot_folder(step), "cpu"))
    tuned = mips.build(vectors, settings.kind, result, recall=settings.recall, queries=queries)
    return {"kind": settings.kind, "search": tuned and tuned.as_dict(), "width": vectors.shape[1]}


def _claim_folder(folder: Path, identity: dict[str, Any]) -> None:
    """Empty ``folder`` unless its shards were made with ``identity``."""
    mark, expected = folder / "begun.json", json.dumps(identity, sort_keys=True)
    if not mark.is_file() or mark.read_text() != expected:
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "shards").mkdir(parents=True)
        mark.write_text(expected)


def _embed_shards(folder: Path, shards: list[EmbeddingShard], encoder: str, embedder: PassageEmbedder) -> None:
    """Embed all missing and damaged shards into ``folder``.

    An actor can outlive its coordinator. The next coordinator deletes the actor's partial files. A shard that the actor
    still finishes does no harm: its file is the same as the file of the next actor.
    """
    with prepare_shard_folder(folder):
        embedder.embed(folder, [shard for shard in shards if not read_shard_record(folder, shard, encoder)])
        if bad := _drop_damaged(folder, shards, encoder):
            embedder.embed(folder, bad)
            if bad := _drop_damaged(folder, shards, encoder):
                raise DamagedArtefact(
                    f"{folder / bad[0].vectors_file} has changed since it was written: check the disk"
                )


def _drop_damaged(folder: Path, shards: list[EmbeddingShard], encoder: str) -> list[EmbeddingShard]:
    """Delete the records of damaged shards; return the missing and the damaged shards."""
    records = {shard: read_shard_record(folder, shard, encoder) for shard in shards}
    damaged = set(find_damaged_files(folder, [record for record in records.values() if record]))
    bad = [shard for shard, record in records.items() if not record or folder / shard.vectors_file in damaged]
    for shard in bad:
        (folder / shard.record_file).unlink(missing_ok=True)
    return bad


def _check_not_zero(vectors: Vectors) -> None:
    for chunk, done in iter_chunks(vectors):
        nonzero = chunk.any(axis=1)
        if not nonzero.all():
            row = done - len(chunk) + int(nonzero.argmin())
            raise DamagedArtefact(f"the vector of passage {row} is zero: the weights are broken")


def describe_error(error: Exception) -> str:
    """Return an error's message as one line of at most 500 characters, or else its class name."""
    return " ".join(str(error).split())[:500] or type(error).__name__
