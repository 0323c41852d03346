"""Shard of a served collection: an index directory that a Ray Serve replica searches."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from ragqa import artefacts
from ragqa.errors import RagqaError
from ragqa.retrieval.base import PassageRetriever, Scoring
from ragqa.retrieval.live import LiveRetriever, open_retriever
from ragqa.retrieval.remote import hit_to_row


@dataclass(frozen=True)
class ShardHits:
    """Hits of a shard for a list of questions."""

    scoring: Scoring
    """Origin of the scores."""
    rows: int
    """Number of rows of the searched version, deleted passages included."""
    hits: list[list[dict[str, Any]]]
    """Hits of each question as JSON rows, best first; ids count from the shard's first row."""


@dataclass(frozen=True)
class ShardState:
    """Contents of a shard's directory."""

    scoring: Scoring
    """Origin of the scores."""
    rows: int
    """Number of rows of the index, deleted passages included."""
    passages: int
    """Number of passages, without deleted ones."""
    fingerprint: str
    """Fingerprint of the index."""
    origin: str
    """Fingerprint of the index before its first update."""
    corpus: str
    """Fingerprint of the passages."""
    kind: str | None
    """Kind of vector index; None without vectors."""
    sources: tuple[str, ...]
    """Names of the files that the index was made from."""


@dataclass(frozen=True)
class ShardFailure:
    """Failure of a shard to answer, with its reason in one line."""

    reason: str


class ShardReplica:
    """Ray Serve replica that searches an index.

    After an update of the index, the next search uses the new files. Errors in the directory are returned as a
    ``ShardFailure``: if they were raised, Ray Serve would restart the replica, but the error would stay.
    """

    def __init__(self, path: str, retriever: str | None, encoder: str | None, device: str) -> None:
        """Open the index at ``path``; the other arguments are as for ``open_retriever``."""
        self._path, self._retriever, self._encoder, self._device = Path(path), retriever, encoder, device
        self._live: LiveRetriever | None = None
        self._lock = Lock()
        self._search(["A first search loads what later ones need."], 1)

    async def search(self, questions: list[str], k: int) -> ShardHits | ShardFailure:
        """Return the best ``k`` hits for each question, or the reason why the search fails."""
        return await asyncio.to_thread(self._search, questions, k)

    async def read_state(self) -> ShardState | ShardFailure:
        """Return the contents of the shard's directory, or the reason why it cannot be read."""
        return await asyncio.to_thread(self._read_state)

    def _search(self, questions: list[str], k: int) -> ShardHits | ShardFailure:
        try:
            retriever = self._current()
            hits = [[hit_to_row(hit) for hit in hits] for hits in retriever.search(questions, k)]
            return ShardHits(retriever.ranker.scoring, len(retriever.passages), hits)
        except (RagqaError, OSError) as error:
            return ShardFailure(str(error))

    def _read_state(self) -> ShardState | ShardFailure:
        try:
            retriever, manifest = self._current(), artefacts.peek_manifest(self._path)
        except (RagqaError, OSError) as error:
            return ShardFailure(str(error))
        scoring = retriever.ranker.scoring
        return ShardState(
            scoring=scoring,
            rows=len(retriever.passages),
            passages=retriever.passages.live_count,
            fingerprint=manifest.fingerprint,
            origin=manifest.origin,
            corpus=manifest.parents["corpus"],
            kind=manifest.config["kind"] if scoring.encoder else None,
            sources=tuple(Path(source).name for source in manifest.config["sources"]),
        )

    def _current(self) -> PassageRetriever:
        with self._lock:
            if self._live is None:
                self._live = open_retriever(self._path, self._retriever, encoder=self._encoder, device=self._device)
            live = self._live
        return live.current()
