"""Ray actors that build versions of an index while training continues in another process."""

import os
from collections import Counter, deque
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

from index.ray_cluster import connect
from index.version_build import BuildSeconds, LocalEmbedder, VersionPlan, describe_error, make_version
from ragqa.artefacts.lock import hold_lock
from ragqa.errors import RagqaError, RefreshFailed
from ragqa.indexing.embed import EmbeddingShard, read_shard_record

ATTEMPTS = 3
"""Number of failures that end a version: attempts without a new shard, or actors that died on one shard."""
_LOAD_RETRIES = 10
"""Number of retries to load the weights into an actor that is being restarted."""
_NICE = 10
"""Niceness of the actor processes, so that training has priority on shared cores."""


class RayBuilder:
    """Builder of index versions on Ray: a coordinator actor gives shards to encoding actors.

    Arguments beside the plan: as for ``open_ray_refresher``.

    Raises:
        MissingExtra, BadInput: as for ``connect``.
    """

    attempts = ATTEMPTS

    def __init__(self, plan: VersionPlan, workers: int, gpus: bool, insecure: bool) -> None:
        connect("a refresh during training", insecure)
        import ray

        self._ray, self._plan = ray, plan
        resources = {"num_cpus": 0, "num_gpus": 1} if gpus else {"num_cpus": 1}
        actor = ray.remote(EncodingActor).options(**resources, max_restarts=-1)
        self._encoders = [actor.remote(plan, "cuda" if gpus else "cpu") for _ in range(workers)]
        self._coordinator = self._start_coordinator()

    def _start_coordinator(self) -> Any:
        return self._ray.remote(CoordinatorActor).options(num_cpus=0).remote(self._plan)

    def start(self, step: int) -> None:
        """Start building the version of training step ``step`` from its snapshot."""
        # Checking a future takes microseconds; asking Ray costs a training step milliseconds when cores are busy.
        self._running: Future[BuildSeconds | str] = self._coordinator.build.remote(step, self._encoders).future()

    def wait_for_result(self, timeout: float) -> BuildSeconds | str | None:
        """Wait for the build and return its result, as ``VersionBuilder.wait_for_result`` does."""
        if not wait([self._running], timeout).done:
            return None
        try:
            return self._running.result()
        except self._ray.exceptions.RayError as error:  # the coordinator died, or its machine
            self._ray.kill(self._coordinator)
            self._coordinator = self._start_coordinator()
            return f"the coordinator failed: {describe_error(error)}"

    def close(self) -> None:
        """Kill all actors."""
        if self._ray.is_initialized():
            for actor in (self._coordinator, *self._encoders):
                self._ray.kill(actor)


class CoordinatorActor:
    """Actor that builds index versions from the shards of encoding actors."""

    def __init__(self, plan: VersionPlan) -> None:
        os.nice(_NICE)
        self._plan = plan

    def build(self, step: int, encoders: list[Any]) -> BuildSeconds | str:
        """Build the version of ``step``; return its build times, or an error message in one line.

        Errors are returned and not raised, because not every exception can be pickled.

        Args:
            step: training step of the weights.
            encoders: handles of the encoding actors.
        """
        try:
            return make_version(self._plan, step, _EncodingPool(encoders))
        except (RagqaError, OSError) as error:
            return describe_error(error)


class _EncodingPool:
    """Embedder that distributes shards among actors, and repeats a shard whose actor died."""

    def __init__(self, actors: list[Any]) -> None:
        import ray

        self._ray, self._actors = ray, actors
        self._busy: dict[Any, tuple[Any, EmbeddingShard | None]] = {}
        self._idle: list[Any] = []
        self._deaths = Counter[EmbeddingShard]()

    def load(self, snapshot: Path) -> str:
        self._snapshot, self._fingerprint = str(snapshot), ""
        for actor in self._actors:
            self._start_loading(actor)
        while not self._fingerprint:
            self._wait_for_actor()
        return self._fingerprint

    def embed(self, folder: Path, shards: list[EmbeddingShard]) -> None:
        queue = deque(shards)
        while queue or any(shard for _, shard in self._busy.values()):
            while queue and self._idle:
                actor, shard = self._idle.pop(), queue.popleft()
                task = actor.embed.remote(self._snapshot, self._fingerprint, str(folder), shard)
                self._busy[task] = actor, shard
            if (lost := self._wait_for_actor()) is not None:
                queue.appendleft(lost)

    def _start_loading(self, actor: Any) -> None:
        self._busy[actor.load.options(max_task_retries=_LOAD_RETRIES).remote(self._snapshot)] = actor, None

    def _wait_for_actor(self) -> EmbeddingShard | None:
        """Wait until an actor finishes its task or dies; return the shard of a dead actor, or None.

        Raises:
            RefreshFailed: an actor returned an error, or too many actors died.
        """
        if not self._busy:
            raise RefreshFailed("all encoding actors died while they loaded the weights")
        done, _ = self._ray.wait(list(self._busy), num_returns=1)
        actor, shard = self._busy.pop(done[0])
        try:
            self._fingerprint, failure = self._ray.get(done[0])
        except self._ray.exceptions.RayActorError as error:
            if shard is not None:
                self._deaths[shard] += 1
                if self._deaths[shard] == ATTEMPTS:
                    rows = f"rows {shard.first} to {shard.last - 1}"
                    raise RefreshFailed(f"{ATTEMPTS} actors died embedding {rows}: {describe_error(error)}") from error
                self._start_loading(actor)  # into the restarted actor
            return shard
        if failure:
            raise RefreshFailed(failure)
        self._idle.append(actor)
        return None


class EncodingActor:
    """Actor that keeps the passages open and the newest weights loaded, and embeds shards."""

    def __init__(self, plan: VersionPlan, device: str) -> None:
        os.nice(_NICE)
        self._plan, self._device, self._fingerprint = plan, device, ""

    def load(self, snapshot: str) -> tuple[str, str]:
        """Load the weights in the folder ``snapshot``.

        Returns:
            The fingerprint of the weights and an error message, one of them empty.
        """
        try:
            return self._load(snapshot), ""
        except (RagqaError, OSError) as error:
            return "", describe_error(error)

    def embed(self, snapshot: str, fingerprint: str, folder: str, shard: EmbeddingShard) -> tuple[str, str]:
        """Embed a shard and write it, unless an actor that died has already written it.

        Args:
            snapshot: folder of the weights.
            fingerprint: expected fingerprint of the weights.
            folder: folder of the shards.
            shard: rows to embed.

        Returns:
            The fingerprint of the weights and an error message, one of them empty.
        """
        try:
            if fingerprint != self._fingerprint and self._load(snapshot) != fingerprint:
                return "", f"{snapshot} has changed while it was in use"
            target = Path(folder)
            with hold_lock(target / f".{shard.vectors_file}.lock", wait=True):
                if not read_shard_record(target, shard, fingerprint):
                    self._embedder.embed(target, [shard])
            return fingerprint, ""
        except (RagqaError, OSError) as error:
            return "", describe_error(error)

    def _load(self, snapshot: str) -> str:
        import torch

        torch.set_num_threads(1)  # vectors must not depend on the number of threads, which changes the order of sums
        self._embedder = LocalEmbedder(self._plan.open_passages(), self._device)
        self._fingerprint = self._embedder.load(Path(snapshot))
        return self._fingerprint
