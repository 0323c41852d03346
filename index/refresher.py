"""Which index a training run searches, which one is being made, and what that costs it: the part that needs no Ray."""

import logging
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from index.version_build import Made
from index.versions import Saves, Versions
from ragqa.artefacts.lock import hold_lock
from ragqa.errors import BadInput, RefreshFailed, StaleIndex
from ragqa.retrieval.vectors.mips import Mips

_PATIENCE = 60.0
"""Seconds after which training that waits says so again."""
_STEPS = 1000
"""Steps without a refresh beside them that are remembered."""
logger = logging.getLogger("ragqa.refresh")


class Makes(Protocol):
    """Makes one version after the other, here or elsewhere."""

    attempts: int
    """How often a version is tried before it is given up."""

    def begin(self, step: int) -> None:
        """Make the version of ``step`` from its snapshot."""
        ...

    def result(self, timeout: float) -> Made | str | None:
        """What became of it, a line where it failed; None where it is still being made after ``timeout`` seconds."""
        ...

    def close(self) -> None:
        """Let go of processes."""
        ...


@dataclass(frozen=True)
class Swap:
    """A new index taken into use."""

    step: int
    """At which training took it."""
    version: int
    """Step of the weights it was made with."""
    staleness_before: int | None
    """Steps between the weights of the index before it and now; None for the first."""
    staleness: int
    """The same of the new one."""
    embedding: float
    """Seconds that the vectors took."""
    building: float
    """Seconds from vectors to a finished index."""
    stood: float
    """Seconds that training stood still since the last swap: snapshots, waiting, this swap."""
    slowdown: float | None
    """Median time of a step while an index was made, since the last swap, over that of steps beside which none was."""

    def as_dict(self) -> dict[str, Any]:
        """A row for ``metrics.jsonl``."""
        return asdict(self)

    def __str__(self) -> str:
        before = "the first" if self.staleness_before is None else f"{self.staleness_before} steps stale before"
        slower = "" if self.slowdown is None else f"; steps took {self.slowdown:.2f} times as long meanwhile"
        return (
            f"step {self.step}: index of step {self.version} ({self.staleness} steps stale, {before}); "
            f"embedded in {self.embedding:.1f} s, built in {self.building:.1f} s; "
            f"training stood still for {self.stood:.2f} s{slower}"
        )


class Times:
    """What the steps of training take, and how long it stands still."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._alone: deque[float] = deque(maxlen=_STEPS)
        self._beside: list[float] = []
        self._began: float | None = None
        self._making: bool | None = None
        self._stopped: float | None = None
        self._stood = 0.0

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Training waits in this block: the time is none of its step's."""
        self._stopped = self._clock()
        try:
            yield
        finally:
            stood = self._clock() - self._stopped
            self._stopped = None
            self._stood += stood
            if self._began is not None:
                self._began += stood

    def step_begins(self, making: bool | None) -> None:
        """Whether an index is being made as it begins; None: that changes within it."""
        self._began, self._making = self._clock(), making

    def step_changes(self) -> None:
        """What is being made has changed within the step: it is neither the one nor the other."""
        self._making = None

    def step_ends(self, making: bool) -> None:
        """Called while standing still after it; ``making`` as in ``step_begins``."""
        if self._began is not None and self._stopped is not None and self._making == making:
            (self._beside if making else self._alone).append(self._stopped - self._began)
        self._began = None

    def swapped(self) -> tuple[float, float | None]:
        """Seconds stood still, and slowdown, since this was called last."""
        now = 0.0 if self._stopped is None else self._clock() - self._stopped
        slowdown = None
        if self._alone and self._beside:
            slowdown = statistics.median(self._beside) / statistics.median(self._alone)
        stood = self._stood + now
        self._stood = -now  # the rest of this stop counts for the next
        self._beside.clear()
        return stood, slowdown


class IndexRefresher:
    """Keeps an index of the passages near the weights. One process at a time trains with a directory.

    It knows the index in use, the version in the making, and the snapshot that waits for its turn;
    ``index.refresh`` makes one.
    """

    def __init__(
        self,
        versions: Versions,
        maker: Callable[[], Makes],
        *,
        max_staleness: int | None,
        at: int | None,
        clock: Callable[[], float],
        upto: int | None = None,
    ) -> None:
        """Goes on where a run before stopped; ``maker`` is called once the directory is this process's alone.

        Raises:
            BadInput: another process trains with it, or there is no version ``at``.
            Mismatch: it holds indexes of other passages.
        """
        self.log: list[Swap] = []
        """Every swap since it was opened."""
        self.version: int | None = None
        """Step of the weights of the index in use, for checkpoints to name; None before the first."""
        self._index: Mips | None = None
        self._versions, self._bound = versions, max_staleness
        self._kept: list[int] = []
        self._times = Times(clock)
        self._making: int | None = None
        self._waiting: int | None = None
        self._ready: tuple[int, Made] | None = None
        self._failures, self._whole = 0, 0
        self._error: RefreshFailed | None = None
        with ExitStack() as opened:
            opened.enter_context(hold_lock(versions.plan.work / ".lock", wait=False))
            unmade = self._take_up(at, upto)
            self._maker = maker()
            opened.callback(self._maker.close)
            if unmade:
                self._begin(unmade[0])
                self._waiting = unmade[-1] if len(unmade) > 1 else None
            self._opened = opened.pop_all()

    def _take_up(self, at: int | None, upto: int | None) -> list[int]:
        """The version to go on with into use; the steps that still wait to be made."""
        version, unmade = self._versions.take_up(at, upto)
        if version is not None:
            self._index, self.version = self._versions.open(version)[0], version
        return unmade

    def close(self) -> None:
        """Stop what is being made, to be resumed when the directory is opened again; another process can have it."""
        self._opened.close()

    def refresh(self, model: Saves, step: int) -> None:
        """Hand over the weights of ``step``, from which the next version is made.

        One that is being made is made to its end; of those that wait only the latest is kept.

        Raises:
            RefreshFailed: the weights cannot be written; the index before it stays.
            BadInput: there are some of a later step.
        """
        with self._times.standing():
            self._collect()
            self._versions.write_snapshot(model, step)
            if step not in (self.version, self._making, self._waiting, self._ready and self._ready[0]):
                self._queue(step)
            self._collect()
            self._times.step_changes()

    def poll(self, step: int) -> Mips:
        """The newest finished index; called between two steps. It waits where there is none within the bound.

        Raises:
            StaleIndex: the index is too old, and none is being made.
            RefreshFailed: a version was given up; said once, and the index before it stays.
            ArtefactError: what was made is not what it should be and was deleted; the index before it stays.
        """
        with self._times.standing():
            self._collect()
            self._times.step_ends(self._making is not None)
            self._wait(step)
            if self._ready is not None:
                self._swap(step, *self._ready)
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            assert self._index is not None  # _wait sees to it
        self._times.step_begins(self._making is not None)
        return self._index

    def keep(self, versions: Iterable[int]) -> None:
        """Keep just these versions beside the last two: those that checkpoints name."""
        self._kept = list(versions)
        self._prune()

    def _queue(self, step: int) -> None:
        """Make ``step`` next: what waits already is older and need not be made any more."""
        self._waiting = step
        self._prune()
        if self._making is None:
            self._next()

    def _prune(self) -> None:
        ready = self._ready and self._ready[0]
        needed = [step for step in (self.version, ready, self._making, self._waiting) if step is not None]
        self._versions.prune([*needed, *self._kept])

    def _begin(self, step: int) -> None:
        self._making, self._failures = step, 0
        self._whole = self._versions.whole_shards(step)
        self._maker.begin(step)

    def _collect(self, timeout: float = 0.0) -> None:
        """Take note of what has become of the version in the making, and begin the next one or the same again."""
        while self._making is not None and (result := self._maker.result(timeout)) is not None:
            timeout = 0.0
            if isinstance(result, Made):
                self._ready = self._making, result
                self._next()
            else:
                self._failed(self._making, result)

    def _next(self) -> None:
        step, self._making, self._waiting = self._waiting, None, None
        if step is not None:
            self._begin(step)

    def _failed(self, step: int, reason: str) -> None:
        """Once more with the shards that are whole; an attempt that finished some of them is no vain one."""
        whole = self._versions.whole_shards(step)
        self._failures = 1 if whole > self._whole else self._failures + 1
        self._whole = whole
        if self._failures < self._maker.attempts:
            logger.warning("version %d failed (%s) and is begun again; training goes on", step, reason)
            self._maker.begin(step)
            return
        logger.error("version %d is given up: %s", step, reason)
        self._error = RefreshFailed(
            f"no index could be made from the weights of step {step}: {reason}; the index before it stays in use "
            "until a later refresh succeeds"
        )
        self._next()

    def _wait(self, step: int) -> None:
        """Until the index, or the one that is ready, is within the bound."""
        if self.version is not None and self.version > step:
            raise BadInput(
                f"the index is of step {self.version}, later than {step}: open it with at=, or an empty directory"
            )
        while self._error is None and (why := self._behind(step)):
            if self._making is None:
                raise StaleIndex(f"step {step}: {why}, and none is being made: call refresh(model, step) before poll")
            logger.warning("step %d: %s: training waits for version %d", step, why, self._making)
            self._collect(_PATIENCE)

    def _behind(self, step: int) -> str:
        newest = self._ready[0] if self._ready else self.version
        if newest is None:
            return "there is no index yet"
        if self._bound is None or step - newest <= self._bound:
            return ""
        return f"the index is {step - newest} steps old, more than {self._bound}"

    def _swap(self, step: int, version: int, made: Made) -> None:
        self._ready = None
        index, _ = self._versions.open(version)
        before = None if self.version is None else step - self.version
        self._index, self.version = index, version
        self._prune()
        stood, slowdown = self._times.swapped()
        self.log.append(Swap(step, version, before, step - version, made.embedding, made.building, stood, slowdown))
        logger.info("%s", self.log[-1])
