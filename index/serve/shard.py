"""One shard of a served collection: an index directory, searched by a replica of its own."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from ragqa import artefacts
from ragqa.errors import RagqaError
from ragqa.retrieval.base import PassageRetriever, Ranker
from ragqa.retrieval.bm25 import BM25
from ragqa.retrieval.dense import DenseRanker
from ragqa.retrieval.hybrid import Hybrid
from ragqa.retrieval.live import LiveRetriever, open_retriever
from ragqa.retrieval.registry import RetrieverKind
from ragqa.retrieval.remote import as_row
from ragqa.runtime.encoder import TextEncoder


@dataclass(frozen=True)
class Maker:
    """What the shards of a collection have in common, or their scores do not compare."""

    retriever: str
    encoder: str | None
    """Its fingerprint."""
    engine: str | None
    """Of BM25."""


@dataclass(frozen=True)
class Found:
    """What a shard found."""

    maker: Maker
    rows: int
    """Of the shard, those of deleted passages included, in the version that was searched."""
    hits: list[list[dict[str, Any]]]
    """For each question, best first; as the protocol has them, ids counted from the shard's first row."""


@dataclass(frozen=True)
class State:
    """What stands in a shard's directory."""

    maker: Maker
    rows: int
    passages: int
    fingerprint: str
    origin: str
    corpus: str
    kind: str | None
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Failure:
    """Why a shard cannot answer, in a line."""

    reason: str


class Shard:
    """The replica: opens its index when it starts, and an update of it when it is searched next.

    What is wrong with the directory is an answer and not an exception, since another replica would not do better.
    """

    def __init__(self, path: str, retriever: str | None, encoder: str | None, device: str) -> None:
        """Open the index at ``path``; the other arguments are those of ``open_retriever``."""
        self._path, self._retriever, self._encoder, self._device = Path(path), retriever, encoder, device
        self._live: LiveRetriever | None = None
        self._lock = Lock()
        self._search(["What is loaded now need not be loaded when somebody asks."], 1)

    async def search(self, questions: list[str], k: int) -> Found | Failure:
        """At most ``k`` hits for each question."""
        return await asyncio.to_thread(self._search, questions, k)

    async def state(self) -> State | Failure:
        """What stands there now."""
        return await asyncio.to_thread(self._state)

    def _search(self, questions: list[str], k: int) -> Found | Failure:
        try:
            now = self._now()
            hits = [[as_row(hit) for hit in found] for found in now.search(questions, k)]
            return Found(_maker(now.ranker), len(now.passages), hits)
        except (RagqaError, OSError) as error:
            return Failure(str(error))

    def _state(self) -> State | Failure:
        try:
            now, manifest = self._now(), artefacts.peek_manifest(self._path)
        except (RagqaError, OSError) as error:
            return Failure(str(error))
        maker = _maker(now.ranker)
        return State(
            maker=maker,
            rows=len(now.passages),
            passages=now.passages.live_count,
            fingerprint=manifest.fingerprint,
            origin=manifest.origin,
            corpus=manifest.parents["corpus"],
            kind=manifest.config["kind"] if maker.encoder else None,
            sources=tuple(Path(source).name for source in manifest.config["sources"]),
        )

    def _now(self) -> PassageRetriever:
        with self._lock:
            if self._live is None:
                self._live = open_retriever(self._path, self._retriever, encoder=self._encoder, device=self._device)
            live = self._live
        return live.current()


def _maker(ranker: Ranker) -> Maker:
    if isinstance(ranker, Hybrid):
        return Maker(RetrieverKind.HYBRID, _maker(ranker.dense).encoder, _maker(ranker.bm25).engine)
    if isinstance(ranker, DenseRanker):
        assert isinstance(ranker.encoder, TextEncoder)
        return Maker(RetrieverKind.DENSE, ranker.encoder.fingerprint, None)
    assert isinstance(ranker, BM25)
    return Maker(RetrieverKind.BM25, None, ranker.engine)
