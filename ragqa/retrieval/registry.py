"""The retriever of an index directory, which follows its versions."""

from collections.abc import Callable
from pathlib import Path
from threading import Lock
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from ragqa import artefacts
from ragqa.artefacts import Manifest
from ragqa.corpus.store import PassageStore
from ragqa.errors import ArtefactError, BadInput, DamagedArtefact, Mismatch
from ragqa.retrieval.base import PassageRetriever, Ranker
from ragqa.types import Hit

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ragqa.retrieval.dense import DenseRanker
    from ragqa.runtime.encoder import TextEncoder

    Encoders = dict[str, TextEncoder]
    """Encoders by their names: to load one takes longer than to open an index."""

FUSION = "weighted"
"""How dense retrieval and BM25 are fused where nothing else is said."""
SWAP = 1.0
"""Seconds in which an index that was there and is not may come back: not every file system swaps at once."""

Version = tuple[int, int] | None
"""What tells one version of an artefact from the next; None where there is none."""


class LiveRetriever:
    """The retriever of an index directory, opened again once another version stands in its place.

    An update or a new build changes the directory at once: the next search finds another manifest there.
    """

    def __init__(self, path: Path, load: Callable[[], PassageRetriever]) -> None:
        """Search the index at ``path``, which ``load`` opens."""
        self._path, self._load = path, load
        self._lock = Lock()
        self._now, self._seen = self._open(0.0)

    @property
    def ranker(self) -> Ranker:
        """Of the version that is open."""
        return self._now.ranker

    @property
    def passages(self) -> PassageStore:
        """Of the version that is open."""
        return self._now.passages

    def search(self, questions: list[str], k: int) -> list[list[Hit]]:
        """At most ``k`` hits for each question, best first, of the version that stands there now.

        Raises:
            BadInput: ``k`` is less than 1.
            ArtefactError, Mismatch: what stands there now cannot be searched as what was opened first.
        """
        return self.current().search(questions, k)

    def current(self) -> PassageRetriever:
        """The retriever of the version that stands there now, which keeps to it; raises as ``search`` does."""
        with self._lock:
            if _version(self._path) != self._seen:
                self._now, self._seen = self._open(SWAP)
            return self._now

    def _open(self, patience: float) -> tuple[PassageRetriever, Version]:
        """A retriever, and the version that all of it is of; waits ``patience`` seconds where none stands there."""
        end = monotonic() + patience
        while True:
            seen = _version(self._path)
            try:
                now = self._load()
                if _version(self._path) == seen:  # else it was replaced while it was being opened
                    return now, seen
            except (ArtefactError, OSError):
                if _version(self._path) == seen and (seen is not None or monotonic() >= end):
                    raise
            sleep(0.001)


def _version(path: Path) -> Version:
    """Changes with every version of the artefact at ``path``; None where there is none."""
    try:
        stat = (path / artefacts.MANIFEST).stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns


def open_retriever(
    path: Path,
    wanted: str | None = None,
    *,
    encoder: str | None = None,
    fusion: str | None = None,
    device: str = "cpu",
) -> LiveRetriever:
    """The retriever of the index at ``path``: ``wanted``, or all that it can do.

    ``encoder``, ``fusion``, ``device`` and what is raised: see ``Pipeline.load``.
    """
    path = path.absolute()  # it is opened again, perhaps from elsewhere
    if encoder and Path(encoder).exists():
        encoder = str(Path(encoder).absolute())
    encoders: Encoders = {}
    return LiveRetriever(path, lambda: _open_version(path, wanted, encoder, fusion, device, encoders))


def _open_version(
    path: Path, wanted: str | None, encoder: str | None, fusion: str | None, device: str, encoders: "Encoders"
) -> PassageRetriever:
    manifest = artefacts.read(path, "index")
    config = manifest.config
    can = config["retriever"]
    chosen = wanted or can
    if chosen not in ("dense", "bm25", "hybrid"):
        raise BadInput(f"retriever '{chosen}': choose one of dense, bm25, hybrid")
    if can not in ("hybrid", chosen):
        raise Mismatch(f"{path} was made with --retriever {can} and cannot do {chosen}: index it again")
    store = PassageStore.open(path / "passages")
    if len(store) != _rows(config):
        raise DamagedArtefact(f"{path} holds {len(store)} passages instead of {_rows(config)}: make it again")
    if fusion and chosen != "hybrid":
        raise BadInput(f"fusion {fusion}: there is nothing to fuse in retriever {chosen}")
    deleted = store.deleted

    def dense() -> "DenseRanker":
        return _dense(path, manifest, encoder, device, deleted, encoders)

    if chosen == "dense":
        return PassageRetriever(dense(), store)
    from ragqa.retrieval.bm25 import BM25

    bm25 = BM25.open(path / "bm25", engine=config["engine"])
    if chosen == "bm25":
        return PassageRetriever(bm25, store)
    from ragqa.retrieval.hybrid import Hybrid

    return PassageRetriever(Hybrid(dense(), bm25, fusion=fusion or FUSION), store)


def _rows(config: dict[str, Any]) -> int:
    """Rows of the passage store: those of deleted passages are among them."""
    return int(config.get("rows", config["passages"]))


def _dense(
    path: Path,
    manifest: Manifest,
    name: str | None,
    device: str,
    deleted: "npt.NDArray[np.int64]",
    encoders: "Encoders",
) -> "DenseRanker":
    from ragqa.retrieval.dense import DenseRanker
    from ragqa.retrieval.vectors import mips
    from ragqa.runtime.encoder import load_encoder

    config = manifest.config
    name = name or config["encoder"]
    encoder = encoders.get(name)
    if encoder is None or encoder.fingerprint != manifest.parents["encoder"]:
        encoder = encoders[name] = load_encoder(name, device=device)
    if encoder.fingerprint != manifest.parents["encoder"]:
        raise Mismatch(
            f"{path} was made with another encoder ({manifest.parents['encoder']}) than "
            f"{name} is now ({encoder.fingerprint}): index it again, or name the one it was made with"
        )
    if config["kind"] != "flat" and "search" not in config:
        raise Mismatch(
            f"{path} was made by an earlier ragqa, which kept no effort for kind {config['kind']}: index again"
        )
    effort = mips.Effort.of(config.get("search"))
    index = mips.open_index(path / "dense", config["kind"], effort=effort, device=device, deleted=deleted)
    if len(index) != _rows(config):
        raise DamagedArtefact(f"{path} holds {len(index)} vectors for {_rows(config)} passages: make it again")
    return DenseRanker(encoder, index)
