"""Batches of work for waiting requests."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from ragqa.errors import RemoteError
from ragqa.serve.batches import Batcher
from ragqa.serve.fair_queue import FairQueue


class Recorder:
    """Function that records its batches, and waits for ``release`` before it returns."""

    def __init__(self, error: Callable[[list[int]], Exception | None] = lambda items: None) -> None:
        self.batches: list[tuple[str, list[int]]] = []
        self.release = threading.Event()
        self._error = error

    def __call__(self, key: str, items: list[int]) -> list[int]:
        self.batches.append((key, items))
        assert self.release.wait(10)
        if error := self._error(items):
            raise error
        return [10 * item for item in items]


def run(work: Recorder, submit: Callable[[Batcher[str, int, int]], Coroutine[Any, Any, Any]], most: int = 4) -> Any:
    async def main() -> Any:
        with ThreadPoolExecutor(1) as executor:
            return await submit(Batcher("test", work, FairQueue(1), executor, most))

    return asyncio.run(main())


async def start(batcher: Batcher[str, int, int], *jobs: tuple[str, int, int]) -> list[asyncio.Task[int]]:
    """Submit jobs (key, item, weight); return their tasks once they wait or run."""
    tasks = [asyncio.create_task(batcher.submit(*job)) for job in jobs]
    await asyncio.sleep(0.05)
    return tasks


def test_jobs_that_wait_at_the_same_time_are_one_batch_up_to_the_limit() -> None:
    work = Recorder()

    async def submit(batcher: Batcher[str, int, int]) -> list[int]:
        tasks = await start(batcher, ("a", 0, 1))
        tasks += await start(batcher, *(("a", number, 1) for number in range(1, 7)))
        work.release.set()
        return await asyncio.gather(*tasks)

    assert run(work, submit) == [0, 10, 20, 30, 40, 50, 60]
    assert work.batches == [("a", [0]), ("a", [1, 2, 3, 4]), ("a", [5, 6])]


def test_jobs_of_other_keys_wait_and_none_is_left_behind() -> None:
    work = Recorder()

    async def submit(batcher: Batcher[str, int, int]) -> list[int]:
        tasks = await start(batcher, ("a", 0, 1))
        tasks += await start(batcher, ("a", 1, 1), ("b", 2, 1), ("a", 3, 1), ("b", 4, 9))
        work.release.set()
        return await asyncio.gather(*tasks)

    assert run(work, submit) == [0, 10, 20, 30, 40]
    assert work.batches == [("a", [0]), ("a", [1, 3]), ("b", [2]), ("b", [4])]


def test_nothing_is_done_for_a_client_that_has_left() -> None:
    work = Recorder()

    async def submit(batcher: Batcher[str, int, int]) -> list[int]:
        tasks = await start(batcher, ("a", 0, 1))
        tasks += await start(batcher, ("a", 1, 1), ("a", 2, 1))
        tasks[1].cancel()
        tasks[0].cancel()  # this one is already running
        work.release.set()
        return await asyncio.gather(tasks[2])

    assert run(work, submit) == [20]
    assert work.batches == [("a", [0]), ("a", [2])]


def test_a_job_that_fails_does_not_fail_the_others() -> None:
    work = Recorder(lambda items: ValueError("bad") if 2 in items else None)

    async def submit(batcher: Batcher[str, int, int]) -> list[Any]:
        tasks = await start(batcher, ("a", 0, 1))
        tasks += await start(batcher, *(("a", number, 1) for number in (1, 2, 3)))
        work.release.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = run(work, submit)
    assert results[:2] == [0, 10] and isinstance(results[2], ValueError) and results[3] == 30


def test_a_server_that_is_down_is_asked_once_for_a_batch() -> None:
    work = Recorder(lambda items: RemoteError("down"))

    async def submit(batcher: Batcher[str, int, int]) -> list[Any]:
        tasks = await start(batcher, ("a", 0, 1))
        tasks += await start(batcher, *(("a", number, 1) for number in (1, 2, 3)))
        work.release.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    assert all(isinstance(result, RemoteError) for result in run(work, submit))
    assert len(work.batches) == 2
