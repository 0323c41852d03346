"""The actors of a Ray cluster that make an index while training goes on elsewhere."""

import os
from collections import deque
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

from index.cluster import connect
from index.version_build import Encoding, Made, Plan, line, make_version
from ragqa.artefacts.lock import hold_lock
from ragqa.errors import RagqaError, RefreshFailed
from ragqa.indexing.embed import EmbeddingShard, read_shard_record

ATTEMPTS = 3
"""After which a version is given up, unless one of them finished a shard."""
_ROUSED = 10
"""Retries of an actor that is to load the weights."""


class Actors:
    """Hands a version to a coordinator, which hands its shards to the encoding actors."""

    attempts = ATTEMPTS

    def __init__(self, plan: Plan, workers: int, gpus: bool, nice: int) -> None:
        connect("a refresh beside training")
        import ray

        self._ray, self._plan, self._nice = ray, plan, nice
        place = {"num_cpus": 0, "num_gpus": 1} if gpus else {"num_cpus": 1}
        made = ray.remote(_Encoder).options(**place, max_restarts=-1)
        self._encoders = [made.remote(plan, "cuda" if gpus else "cpu", nice) for _ in range(workers)]
        self._coordinator = self._start()

    def _start(self) -> Any:
        return self._ray.remote(_Coordinator).options(num_cpus=0).remote(self._plan, self._nice)

    def begin(self, step: int) -> None:
        # A future is looked at within microseconds; to ask Ray costs a step milliseconds where cores are busy.
        self._running: Future[Made | str] = self._coordinator.make.remote(step, self._encoders).future()

    def result(self, timeout: float) -> Made | str | None:
        if not wait([self._running], timeout).done:
            return None
        try:
            return self._running.result()
        except self._ray.exceptions.RayError as error:  # it died, or its machine
            self._ray.kill(self._coordinator)
            self._coordinator = self._start()
            return f"the coordinator failed: {line(error)}"

    def close(self) -> None:
        if self._ray.is_initialized():
            for actor in (self._coordinator, *self._encoders):
                self._ray.kill(actor)


class _Coordinator:
    """An actor: makes versions out of what the encoding actors write, so that training does nothing of it."""

    def __init__(self, plan: Plan, nice: int) -> None:
        os.nice(nice)
        self._plan = plan

    def make(self, step: int, encoders: list[Any]) -> Made | str:
        """What came of it; errors as a line, since not every exception survives the way between processes."""
        try:
            return make_version(self._plan, step, _Crew(encoders))
        except (RagqaError, OSError) as error:
            return line(error)


class _Crew:
    """The encoding actors: each has one task at a time, and what a dead one had goes to another."""

    def __init__(self, actors: list[Any]) -> None:
        import ray

        self._ray, self._actors = ray, actors
        self._busy: dict[Any, tuple[Any, EmbeddingShard | None]] = {}
        self._idle: list[Any] = []
        self._deaths: dict[EmbeddingShard, int] = {}

    def load(self, snapshot: Path) -> str:
        self._snapshot = str(snapshot)
        for actor in self._actors:
            self._rouse(actor)
        while True:
            _, answer = self._next()
            if answer is not None:
                self._fingerprint: str = answer
                return answer

    def embed(self, folder: Path, parts: list[EmbeddingShard]) -> None:
        todo = deque(parts)
        while todo or any(shard for _, shard in self._busy.values()):
            while todo and self._idle:
                actor, shard = self._idle.pop(), todo.popleft()
                task = actor.embed.remote(self._snapshot, self._fingerprint, str(folder), shard)
                self._busy[task] = actor, shard
            lost, _ = self._next()
            if lost is not None:
                todo.appendleft(lost)

    def _rouse(self, actor: Any) -> None:
        """Let an actor load the weights as soon as it is there again; to find it away costs a retry, too."""
        self._busy[actor.load.options(max_task_retries=_ROUSED).remote(self._snapshot)] = actor, None

    def _next(self) -> tuple[EmbeddingShard | None, str | None]:
        """Wait for an actor: the shard that it lost by dying, or the fingerprint of what it has loaded.

        Raises RefreshFailed with what an actor says, or where actors die again and again.
        """
        if not self._busy:
            raise RefreshFailed("all encoding actors died while they loaded the weights")
        done, _ = self._ray.wait(list(self._busy), num_returns=1)
        actor, shard = self._busy.pop(done[0])
        try:
            fingerprint, failure = self._ray.get(done[0])
        except self._ray.exceptions.RayActorError as error:
            if shard is None:
                return None, None
            self._deaths[shard] = self._deaths.get(shard, 0) + 1
            if self._deaths[shard] == ATTEMPTS:
                reason = f"rows {shard.first} to {shard.last - 1} cost {ATTEMPTS} actors their lives: {line(error)}"
                raise RefreshFailed(reason) from error
            self._rouse(actor)
            return shard, None
        if failure:
            raise RefreshFailed(failure)
        self._idle.append(actor)
        return None, fingerprint


class _Encoder:
    """An actor: keeps passages and the newest weights at hand."""

    def __init__(self, plan: Plan, device: str, nice: int) -> None:
        os.nice(nice)
        self._plan, self._device = plan, device
        self._encoding: Encoding | None = None
        self._fingerprint = ""

    def load(self, snapshot: str) -> tuple[str, str]:
        """Fingerprint of the weights, and why it cannot be had."""
        try:
            return self._loaded(snapshot), ""
        except (RagqaError, OSError) as error:
            return "", line(error)

    def embed(self, snapshot: str, fingerprint: str, folder: str, shard: EmbeddingShard) -> tuple[str, str]:
        """Write a shard, unless another actor has, who was taken for dead; answers as ``load``."""
        try:
            if fingerprint != self._fingerprint and self._loaded(snapshot) != fingerprint:
                return "", f"{snapshot} has changed while it was in use"
            place = Path(folder)
            with hold_lock(place / f".{shard.vectors}.lock", wait=True):
                if not read_shard_record(place, shard, fingerprint) and self._encoding is not None:
                    self._encoding.embed(place, [shard])
            return fingerprint, ""
        except (RagqaError, OSError) as error:
            return "", line(error)

    def _loaded(self, snapshot: str) -> str:
        import torch

        torch.set_num_threads(1)  # sums come out the same however many actors share the machine
        self._encoding = Encoding(self._plan.passages(), self._device)
        self._fingerprint = self._encoding.load(Path(snapshot))
        return self._fingerprint
