"""Served indexes, and work on them in turns and batches."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ragqa.artefacts.machine import count_cores
from ragqa.corpus.document_list import DocumentList
from ragqa.corpus.store import PassageStore
from ragqa.indexing.update import UpdateReport
from ragqa.pipeline import Pipeline, RetrievedQuestion
from ragqa.retrieval.filters import PassageFilter
from ragqa.retrieval.live import LiveRetriever
from ragqa.serve.batches import Batcher
from ragqa.serve.fair_queue import FairQueue
from ragqa.serve.request_limits import RefusedRequest
from ragqa.types import Answer, Hit

STREAMS = 4
"""Maximum number of answers that are generated at once."""
MAX_CHANGES = 16
"""Maximum number of changes to indexes that wait or run."""
PASSAGES_PER_CORE = 20
"""Maximum number of passages to read in a batch, per core: enough for busy cores, few enough for a short wait."""


@dataclass(frozen=True)
class _RetrieveKey:
    index: str
    k: int | None
    filter: PassageFilter | None


@dataclass(frozen=True)
class _ReadKey:
    index: str
    min_confidence: float | None


@dataclass
class ServedIndex:
    """Index that is served under a name, with its pipeline."""

    name: str
    pipeline: Pipeline
    _listed: tuple[PassageStore, DocumentList] | None = None

    def read_documents(self) -> tuple[PassageStore, DocumentList]:
        """Return the passages of the index's newest version, and the list of its documents.

        Raises:
            RefusedRequest: the index is on another server.
            ArtefactError, DamagedArtefact, Mismatch: the newest version cannot be opened.
        """
        retriever = self.pipeline.retriever
        if not isinstance(retriever, LiveRetriever):
            raise RefusedRequest(404, f"the index {self.name} is on another server, which lists no documents")
        store = retriever.current().passages
        if self._listed is None or self._listed[0] is not store:
            self._listed = store, DocumentList(store)
        return self._listed

    @property
    def path(self) -> Path | None:
        """Directory of the index; None if the index is on another server."""
        retriever = self.pipeline.retriever
        return retriever.path if isinstance(retriever, LiveRetriever) else None

    @property
    def passages(self) -> int | None:
        """Number of passages of the newest version; None if the index is on another server.

        Raises:
            ArtefactError, DamagedArtefact, Mismatch: the newest version cannot be opened.
        """
        retriever = self.pipeline.retriever
        return retriever.current().passages.live_count if isinstance(retriever, LiveRetriever) else None


class Work:
    """Work on the served indexes for all requests.

    One piece of work, a search or a reader's batch, runs at a time, on all cores. In addition, up to ``STREAMS``
    answers are generated at once.
    """

    def __init__(self, indexes: Mapping[str, Pipeline]) -> None:
        """Serve pipelines under the names of their indexes; the first is the default."""
        self.indexes = {name: ServedIndex(name, pipeline) for name, pipeline in indexes.items()}
        self.turns = FairQueue(1)
        # A thread of its own, since asyncio's threads could all be busy with documents.
        self._computing = ThreadPoolExecutor(1, "ragqa-work")
        self._writing = ThreadPoolExecutor(STREAMS, "ragqa-stream")
        most = PASSAGES_PER_CORE * max(2, count_cores())
        self._retrieving = Batcher("retrieve", self._retrieve, self.turns, self._computing, most)
        self._reading = Batcher("read", self._read, self.turns, self._computing, most)
        self._streams, self._change_lock, self._changes = asyncio.Semaphore(STREAMS), asyncio.Lock(), 0

    def find_index(self, name: str | None) -> ServedIndex:
        """Return the index with a name, or the first index for None.

        Raises:
            RefusedRequest: there is no such index.
        """
        if name is None:
            return next(iter(self.indexes.values()))
        if name not in self.indexes:
            raise RefusedRequest(404, f"there is no index {name[:80]!r}: choose one of {', '.join(self.indexes)}")
        return self.indexes[name]

    async def retrieve(
        self, index: ServedIndex, question: str, k: int | None, filter: PassageFilter | None
    ) -> RetrievedQuestion:
        """Retrieve passages for a question, in a batch.

        Arguments and errors: as for ``Pipeline.retrieve``.
        """
        weight = -(-(k or index.pipeline.k) // 10)  # finding a passage costs a tenth of reading it
        return await self._retrieving.submit(_RetrieveKey(index.name, k, filter), question, weight)

    async def read(self, index: ServedIndex, retrieved: RetrievedQuestion, min_confidence: float | None) -> Answer:
        """Answer a question in a batch; arguments and errors: as for ``Pipeline.read``."""
        return await self._reading.submit(_ReadKey(index.name, min_confidence), retrieved, len(retrieved.hits))

    async def stream(
        self, index: ServedIndex, retrieved: RetrievedQuestion, min_confidence: float | None
    ) -> AsyncIterator[str | Answer]:
        """Yield pieces of the answer while it is generated, and then the answer.

        If the reader cannot stream, only the answer is yielded. Arguments and errors: as for ``read``.
        """
        if not index.pipeline.can_stream:
            yield await self.read(index, retrieved, min_confidence)
            return
        pieces = index.pipeline.stream_answer(retrieved, min_confidence=min_confidence)
        loop = asyncio.get_running_loop()

        def release(_: object) -> None:
            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(self._streams.release)

        await self._streams.acquire()
        writing = self._writing.submit(next, pieces, None)
        try:
            while (piece := await asyncio.wrap_future(writing)) is not None:
                yield piece
                writing = self._writing.submit(next, pieces, None)
        finally:
            # If the client has left, its thread may still wait for a model that generates another answer. The place is
            # released only with the thread: otherwise such threads could fill the pool, and the other answer, which
            # needs a thread for its next piece, would never end.
            writing.add_done_callback(release)

    async def answer(self, index: ServedIndex, retrieved: RetrievedQuestion, min_confidence: float | None) -> Answer:
        """Return the answer that ``stream`` yields last; arguments and errors: as for ``read``."""
        async for piece in self.stream(index, retrieved, min_confidence):
            if isinstance(piece, Answer):
                return piece
        raise AssertionError("a pipeline's stream ends with an answer")

    async def change(self, change: Callable[[], UpdateReport]) -> UpdateReport:
        """Run a change of an index after earlier changes; it continues if the client leaves.

        Args:
            change: function that changes an index; it runs in a thread.

        Raises:
            RefusedRequest: ``MAX_CHANGES`` changes wait or run.
            Exception: error of ``change``.
        """
        if self._changes >= MAX_CHANGES:
            raise RefusedRequest(503, "too many documents wait to be added or deleted: try again later")

        async def run() -> UpdateReport:
            self._changes += 1
            try:
                async with self._change_lock:
                    return await asyncio.to_thread(change)
            finally:
                self._changes -= 1

        return await asyncio.shield(asyncio.create_task(run()))

    async def search(self, index: ServedIndex, questions: list[str], k: int, client: str) -> list[list[Hit]]:
        """Return the hits of each question, in a turn of ``client``.

        Arguments and errors: as for ``Pipeline.find_passages``.
        """
        async with self.turns.take_turn(client):
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._computing, index.pipeline.find_passages, questions, k)

    def _retrieve(self, key: _RetrieveKey, questions: list[str]) -> list[RetrievedQuestion]:
        return self.indexes[key.index].pipeline.retrieve(questions, k=key.k, filter=key.filter)

    def _read(self, key: _ReadKey, retrieved: list[RetrievedQuestion]) -> list[Answer]:
        return self.indexes[key.index].pipeline.read(retrieved, min_confidence=key.min_confidence)
