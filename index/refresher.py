"""Refreshed index in training: it swaps in new versions and measures their cost."""

import logging
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any, Protocol

from index.version_build import BuildSeconds
from index.versions import RESUME_HINT, SavableModel, Versions
from ragqa.artefacts.lock import hold_lock
from ragqa.errors import BadInput, RefreshFailed, StaleIndex
from ragqa.retrieval.vectors.mips import Mips

_WARN_EVERY = 60.0
"""Seconds between two warnings while training waits for an index."""
_TIMED_STEPS = 1000
"""Number of latest steps without a running refresh whose times make the median."""
logger = logging.getLogger("ragqa.refresh")


class VersionBuilder(Protocol):
    """Builder that builds one index version at a time, in this process or elsewhere."""

    attempts: int
    """Number of attempts without a new shard after which a version is abandoned."""

    def start(self, step: int) -> None:
        """Start building the version of training step ``step`` from its snapshot."""

    def wait_for_result(self, timeout: float) -> BuildSeconds | str | None:
        """Wait for the build for at most ``timeout`` seconds, and return its result.

        Returns:
            The build times, an error message in one line, or None if the build still runs.
        """

    def close(self) -> None:
        """Stop all processes of the builder."""


@dataclass(frozen=True)
class Swap:
    """Record of a swap: training switches to a new index."""

    step: int
    """Training step of the swap."""
    version: int
    """Training step of the weights of the new index."""
    staleness_before: int | None
    """Staleness in steps of the previous index at the swap; None for the first index."""
    staleness: int
    """Staleness in steps of the new index at the swap."""
    embedding: float
    """Seconds to embed the passages."""
    building: float
    """Seconds to build the index from the vectors."""
    paused: float
    """Seconds that training has paused since the last swap, for snapshots, waiting and this swap."""
    slowdown: float | None
    """Median step time during a refresh, divided by the median without a refresh; None if unknown."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a row of ``metrics.jsonl``."""
        return asdict(self)

    def __str__(self) -> str:
        before = "the first" if self.staleness_before is None else f"{self.staleness_before} steps stale before"
        slower = "" if self.slowdown is None else f"; steps took {self.slowdown:.2f} times as long meanwhile"
        return (
            f"step {self.step}: index of step {self.version} ({self.staleness} steps stale, {before}); "
            f"embedded in {self.embedding:.1f} s, built in {self.building:.1f} s; "
            f"training paused for {self.paused:.2f} s{slower}"
        )


class StepTimer:
    """Timer of steps with and without a running refresh, and of the pauses of training.

    Args:
        clock: function that returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._paused = clock, 0.0
        self._times: dict[bool, deque[float]] = {False: deque(maxlen=_TIMED_STEPS), True: deque()}
        """Seconds of each step without and with a running refresh."""
        self._step_start = self._pause_start = 0.0
        self._is_refreshing: bool | None = None
        """True if a refresh ran when the step began; None between steps and in steps that are not timed."""

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Count the time of the block as a pause, and not as part of a step."""
        self._pause_start = self._clock()
        try:
            yield
        finally:
            paused = self._clock() - self._pause_start
            self._paused += paused
            self._step_start += paused

    def start_step(self, is_refreshing: bool) -> None:
        """Start timing a step, with or without a running refresh."""
        self._step_start, self._is_refreshing = self._clock(), is_refreshing

    def mark_change(self) -> None:
        """Exclude the current step from both medians, because a refresh begins or ends within it."""
        self._is_refreshing = None

    def end_step(self, is_refreshing: bool) -> None:
        """Record the time of a step, unless a refresh began or ended within it.

        Call this method inside the ``pause`` after the step.

        Args:
            is_refreshing: True if a refresh runs at the end of the step.
        """
        if self._is_refreshing == is_refreshing:
            self._times[is_refreshing].append(self._pause_start - self._step_start)
        self._is_refreshing = None

    def take_totals(self) -> tuple[float, float | None]:
        """Return the seconds of pauses and the slowdown since the last call.

        Call this method inside a ``pause``. The slowdown is the median time of steps during a refresh divided by the
        median time of the last steps without a refresh, or None if no step of one kind was timed.
        """
        current = self._clock() - self._pause_start
        total, self._paused = self._paused + current, -current  # pause() will add the whole block
        without, during = map(list, self._times.values())
        self._times[True].clear()
        return total, statistics.median(during) / statistics.median(without) if without and during else None


class IndexRefresher:
    """Index of passages that is rebuilt from the current weights during training.

    The refresher manages the index in use, the version being built, and the snapshot that waits for its build. Only
    one process at a time can train with a directory. ``index.refresh`` has the functions that open a refresher.
    """

    def __init__(
        self,
        versions: Versions,
        open_builder: Callable[[], VersionBuilder],
        *,
        version: int | None,
        step: int | None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """Lock the directory, and continue with a version of the previous run if there is one.

        Args:
            versions: the versions on disk.
            open_builder: function that opens the builder; called after locking.
            version: as for ``Versions.resume``.
            step: as for ``Versions.resume``.
            clock: function that returns the time in seconds.

        Raises:
            BadInput: another process trains with the directory, or ``version`` does not exist.
            Mismatch: the directory holds indexes of other passages.
            ArtefactError: ``version`` is damaged.
        """
        self.log: list[Swap] = []
        """Swaps since opening; the caller may clear the list."""
        self._versions, self._max_staleness = versions, versions.plan.settings.max_staleness
        self._checkpointed: list[int] = []
        self._timer = StepTimer(clock)
        self._building: int | None = None
        self._waiting: int | None = None
        self._ready: tuple[int, BuildSeconds] | None = None
        self._failures, self._whole_shards = 0, 0
        self._error: RefreshFailed | None = None
        with ExitStack() as resources:
            resources.enter_context(hold_lock(versions.plan.work / ".lock", wait=False))
            self.version, pending = versions.resume(version, step)
            """Step of the weights of the index in use, recorded in checkpoints; None before the first."""
            self._index = None if self.version is None else versions.open(self.version)
            self._builder = open_builder()
            resources.callback(self._builder.close)
            if pending:
                self._start(pending[0])
                self._waiting = pending[-1] if len(pending) > 1 else None
            self._resources = resources.pop_all()

    def close(self) -> None:
        """Stop building, and unlock the directory for the next refresher."""
        self._resources.close()

    def refresh(self, model: SavableModel, step: int) -> None:
        """Write a snapshot of the weights of ``step``, and start to build an index from it.

        If a version is being built, the new build starts when that build is finished. A newer snapshot replaces one
        that still waits.

        Args:
            model: passage tower in training.
            step: training step of its weights.

        Raises:
            RefreshFailed: the weights cannot be written; the previous index stays in use.
            BadInput: there are other weights of this step, or a snapshot or index of a later step.
        """
        with self._timer.pause():
            self._collect()
            self._versions.write_snapshot(model, step)
            if step not in (self.version, self._building, self._waiting, self._ready and self._ready[0]):
                self._waiting = step
                self._prune()
                if self._building is None:
                    self._start_next()
            self._collect()
            self._timer.mark_change()

    def poll(self, step: int) -> Mips:
        """Return the newest finished index; call it between two steps.

        The call waits while the newest index is older than the maximum staleness.

        Args:
            step: number of the training step that begins.

        Raises:
            StaleIndex: the index is too old or missing, and none is being built.
            RefreshFailed: a version was abandoned. The error is raised once, and the previous index stays in use.
            ArtefactError: the new version is damaged and was deleted; the previous index stays in use.
            BadInput: the index in use is of a later step than ``step``.
        """
        with self._timer.pause():
            self._collect()
            self._timer.end_step(self._building is not None)
            self._wait_until_fresh(step)
            if self._ready is not None:
                self._swap(step, *self._ready)
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            assert self._index is not None  # _wait_until_fresh returned without an error
        self._timer.start_step(self._building is not None)
        return self._index

    def keep(self, versions: Iterable[int]) -> None:
        """Delete the versions that neither checkpoints nor the refresher need.

        It keeps the last two versions, and versions that are in use, being built or waiting.

        Args:
            versions: versions that checkpoints name; refreshes do not delete them until the next call.
        """
        self._checkpointed = list(versions)
        self._prune()

    def _prune(self) -> None:
        finished = self._ready and self._ready[0]
        needed = [step for step in (self.version, finished, self._building, self._waiting) if step is not None]
        self._versions.prune([*needed, *self._checkpointed])

    def _start(self, step: int) -> None:
        self._building, self._failures = step, 0
        self._whole_shards = self._versions.count_whole_shards(step)
        self._builder.start(step)

    def _collect(self, timeout: float = 0.0) -> None:
        """Collect the result of the version being built, and start the next one or a retry."""
        while self._building is not None and (result := self._builder.wait_for_result(timeout)) is not None:
            timeout = 0.0
            if isinstance(result, BuildSeconds):
                self._ready = self._building, result
                self._start_next()
            else:
                self._retry(self._building, result)

    def _start_next(self) -> None:
        step, self._building, self._waiting = self._waiting, None, None
        if step is not None:
            self._start(step)

    def _retry(self, step: int, reason: str) -> None:
        """Start a failed version again, or abandon it after too many attempts without a new shard."""
        whole_shards = self._versions.count_whole_shards(step)
        self._failures = 1 if whole_shards > self._whole_shards else self._failures + 1
        self._whole_shards = whole_shards
        if self._failures < self._builder.attempts:
            logger.warning("version %d failed (%s) and its build is started again; training continues", step, reason)
            self._builder.start(step)
            return
        logger.error("version %d is abandoned: %s", step, reason)
        problem = f"no index could be made from the weights of step {step}: {reason}"
        self._error = RefreshFailed(f"{problem}; the previous index stays in use until a later refresh succeeds")
        self._start_next()

    def _wait_until_fresh(self, step: int) -> None:
        if self.version is not None and self.version > step:
            raise BadInput(f"the index is of step {self.version}, later than {step}: {RESUME_HINT}")
        while self._error is None and (reason := self._describe_staleness(step)):
            if self._building is None:
                hint = "call refresh(model, step) before poll"
                raise StaleIndex(f"step {step}: {reason}, and none is being built: {hint}")
            logger.warning("step %d: %s: training waits for version %d", step, reason, self._building)
            self._collect(_WARN_EVERY)

    def _describe_staleness(self, step: int) -> str:
        """Return the reason why the newest index is too stale at ``step``, or an empty string."""
        newest = self._ready[0] if self._ready else self.version
        if newest is None:
            return "there is no index yet"
        if self._max_staleness is None or step - newest <= self._max_staleness:
            return ""
        return f"the index is {step - newest} steps old, more than {self._max_staleness}"

    def _swap(self, step: int, version: int, seconds: BuildSeconds) -> None:
        self._ready = None
        index = self._versions.open(version)
        before = None if self.version is None else step - self.version
        self._index, self.version = index, version
        self._prune()
        self.log.append(Swap(step, version, before, step - version, *seconds, *self._timer.take_totals()))
        logger.info("%s", self.log[-1])
