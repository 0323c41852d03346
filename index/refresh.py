"""A dense index that follows the weights while they are trained (REALM, section 3.3).

    refresher = RayRefresher(corpus, work, max_staleness=1000, workers=8, gpus=True)
    for step in range(first, last):
        if step % 500 == 0:
            refresher.refresh(tower, step)      # writes a snapshot and returns at once
        index = refresher.poll(step)            # the newest finished index, swapped in between two steps
        …                                       # the index proposes; scores that carry gradient are the live tower's

``BlockingRefresher(corpus, work)`` does the same without Ray and keeps training waiting. What lies in ``work`` is told
in ``index/versions.py``, what is measured in ``index/swapping.py``.
"""

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Protocol

from index.making import Encoding, Made, Plan, line, make_version
from index.refresh_actors import Actors
from index.swapping import Swap, Swapping
from index.versions import Saves, Versions
from ragqa.errors import BadInput, RagqaError
from ragqa.retrieval.mips import Mips

__all__ = ["BlockingRefresher", "IndexRefresher", "RayRefresher", "Saves", "Swap"]

SHARD = 4096
"""Rows that are embedded at a time: what the death of an actor costs."""


class IndexRefresher(Protocol):
    """Keeps an index of the passages near the weights. One process at a time trains with a directory."""

    log: list[Swap]
    """Every swap since it was opened."""

    @property
    def version(self) -> int | None:
        """Step of the weights of the index in use, for checkpoints to name; None before the first."""
        ...

    def refresh(self, model: Saves, step: int) -> None:
        """Hand over the weights of ``step``, from which the next version is made.

        One that is being made is made to its end; of those that wait only the latest is kept.

        Raises:
            BadInput: the weights cannot be written, or there are some of a later step.
        """
        ...

    def poll(self, step: int) -> Mips:
        """The newest finished index; called between two steps. It waits where there is none within the bound.

        Raises:
            StaleIndex: the index is too old, and none is being made.
            RefreshFailed: a version was given up; said once, and the index before it stays.
            DamagedArtefact, Mismatch: what was made is not what it should be; the index before it stays.
        """
        ...

    def close(self) -> None:
        """Stop what is being made, to be resumed when ``work`` is opened again."""
        ...


class BlockingRefresher:
    """Makes the index in ``refresh`` itself: no Ray, no other process."""

    def __init__(
        self,
        corpus: Path,
        work: Path,
        *,
        kind: str = "flat",
        device: str = "cpu",
        search_device: str = "cpu",
        engine: str = "auto",
        max_staleness: int | None = None,
        shard_rows: int = SHARD,
        at: int | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """Go on with the newest version in ``work``, or begin.

        Args:
            corpus: index directory whose passages are embedded.
            work: directory of the versions; all machines see it.
            kind: of the index, see ``ragqa.retrieval.mips.KINDS``.
            device: where passages are encoded.
            search_device: where the index is searched.
            engine: what searches an index of kind flat.
            max_staleness: steps that the index may be old.
            shard_rows: rows of a shard.
            at: version to go on with instead of the newest; later ones are deleted.
            clock: seconds.

        Raises:
            BadInput: another process trains with ``work``, or there is no version ``at``.
            Mismatch: ``work`` holds indexes of other passages.
            ArtefactError, DamagedArtefact: ``corpus`` is not a whole index.
        """
        plan = Plan.of(corpus, work, kind, shard_rows)
        versions = Versions(plan, device=search_device, engine=engine)
        self._swapping = Swapping(
            versions, lambda: _Here(plan, device, clock), max_staleness=max_staleness, at=at, clock=clock
        )
        self.log = self._swapping.log

    @property
    def version(self) -> int | None:
        """See ``IndexRefresher``."""
        return self._swapping.version

    def refresh(self, model: Saves, step: int) -> None:
        """See ``IndexRefresher``."""
        self._swapping.refresh(model, step)

    def poll(self, step: int) -> Mips:
        """See ``IndexRefresher``."""
        return self._swapping.poll(step)

    def close(self) -> None:
        """See ``IndexRefresher``."""
        self._swapping.close()


class RayRefresher:
    """Makes the index in actors of a Ray cluster while training goes on."""

    def __init__(
        self,
        corpus: Path,
        work: Path,
        *,
        max_staleness: int | None,
        workers: int = 1,
        gpus: bool = False,
        nice: int = 10,
        kind: str = "flat",
        search_device: str = "cpu",
        engine: str = "auto",
        shard_rows: int = SHARD,
        at: int | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """As ``BlockingRefresher``, with ``workers`` actors that encode, on a GPU each or on one thread each.

        ``nice``, 0 to 19, is how far they leave the cores to training where the two share them: the slower training
        may become by a refresh, the sooner that is finished.
        They live until ``close``. An actor that dies is started again, on another machine if its own is gone.
        Raises also MissingExtra: Ray is not installed.
        """
        if workers < 1:
            raise BadInput(f"workers = {workers}: at least one must encode")
        plan = Plan.of(corpus, work, kind, shard_rows)
        versions = Versions(plan, device=search_device, engine=engine)
        self._swapping = Swapping(
            versions, lambda: Actors(plan, workers, gpus, nice), max_staleness=max_staleness, at=at, clock=clock
        )
        self.log = self._swapping.log

    @property
    def version(self) -> int | None:
        """See ``IndexRefresher``."""
        return self._swapping.version

    def refresh(self, model: Saves, step: int) -> None:
        """See ``IndexRefresher``."""
        self._swapping.refresh(model, step)

    def poll(self, step: int) -> Mips:
        """See ``IndexRefresher``."""
        return self._swapping.poll(step)

    def close(self) -> None:
        """See ``IndexRefresher``."""
        self._swapping.close()


class _Here:
    """Makes a version in ``begin``."""

    attempts = 1

    def __init__(self, plan: Plan, device: str, clock: Callable[[], float]) -> None:
        self._plan, self._clock = plan, clock
        self._encoding = Encoding(plan.passages(), device)
        self._result: Made | str | None = None

    def begin(self, step: int) -> None:
        try:
            self._result = make_version(self._plan, step, self._encoding, self._clock)
        except (RagqaError, OSError) as error:
            self._result = line(error)

    def result(self, timeout: float) -> Made | str | None:
        result, self._result = self._result, None
        return result

    def close(self) -> None:
        pass
