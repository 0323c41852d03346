"""Batches of work for requests that wait at the same time."""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Generic, TypeVar

from ragqa.errors import ArtefactError, RemoteError
from ragqa.serve.fair_queue import FairQueue

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class _Job(Generic[Key, Item, Result]):
    key: Key
    item: Item
    weight: int
    result: asyncio.Future[Result]


class Batcher(Generic[Key, Item, Result]):
    """Queue of items that a function processes in batches of items with the same key.

    Items that are cancelled while they wait are not processed.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[Key, list[Item]], list[Result]],
        queue: FairQueue,
        executor: Executor,
        max_weight: int,
    ) -> None:
        """Prepare an empty queue.

        Args:
            name: client name under which batches wait in ``queue``.
            work: function of a key and a list of items that returns a result for each item, in order.
            queue: queue that gives each batch a turn.
            executor: threads in which ``work`` runs.
            max_weight: maximum weight of a batch, unless it has only one item.
        """
        self._name, self._work, self._queue, self._executor = name, work, queue, executor
        self._max_weight = max_weight
        self._waiting: deque[_Job[Key, Item, Result]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def submit(self, key: Key, item: Item, weight: int) -> Result:
        """Process an item in a batch, and return its result.

        Args:
            key: key of the item; only items with the same key share a batch.
            item: item to process.
            weight: weight of the item, which counts towards ``max_weight``.

        Raises:
            Exception: error of ``work``. If a batch of several items fails, ``work`` is called for each item alone,
                except after an ``ArtefactError`` or ``RemoteError``, which concerns all items.
        """
        job: _Job[Key, Item, Result] = _Job(key, item, weight, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await job.result

    async def _run(self) -> None:
        while self._waiting:
            async with self._queue.take_turn(self._name):
                if batch := self._take_batch():
                    await self._finish(batch)

    def _take_batch(self) -> list[_Job[Key, Item, Result]]:
        """Remove and return the first job and, up to the limit, the other jobs of its key."""
        batch: list[_Job[Key, Item, Result]] = []
        rest: deque[_Job[Key, Item, Result]] = deque()
        weight = 0
        for job in self._waiting:
            if job.result.done():  # cancelled
                continue
            if batch and (job.key != batch[0].key or weight + job.weight > self._max_weight):
                rest.append(job)
            else:
                batch.append(job)
                weight += job.weight
        self._waiting = rest
        return batch

    async def _finish(self, batch: list[_Job[Key, Item, Result]]) -> None:
        try:
            items = [job.item for job in batch]
            loop = asyncio.get_running_loop()
            results = await loop.run_in_executor(self._executor, self._work, batch[0].key, items)
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, ArtefactError | RemoteError):
                for job in batch:  # one bad item must not fail the others
                    await self._finish([job])
                return
            for job in batch:
                if not job.result.done():
                    job.result.set_exception(error)
            return
        for job, result in zip(batch, results, strict=True):
            if not job.result.done():
                job.result.set_result(result)
