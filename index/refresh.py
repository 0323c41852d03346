"""A dense index that follows the weights while they are trained (REALM, section 3.3).

    refresher = ray_refresher(corpus, work, max_staleness=1000, workers=8, gpus=True)
    for step in range(first, last):
        if step % 500 == 0:
            refresher.refresh(tower, step)      # writes a snapshot and returns at once
        index = refresher.poll(step)            # the newest finished index, swapped in between two steps
        …                                       # the index proposes; scores that carry gradient are the live tower's

``blocking_refresher(corpus, work)`` does the same without Ray and keeps training waiting. What lies in ``work`` is told
in ``index/versions.py``, what is measured in ``index/refresher.py``.
"""

from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from index.actors import Actors
from index.refresher import IndexRefresher, Swap
from index.version_build import Encoding, Made, Plan, line, make_version
from index.versions import Saves, Versions
from ragqa.errors import BadInput, RagqaError
from ragqa.retrieval.vectors import mips
from ragqa.retrieval.vectors.kinds import DEFAULT_KIND, FlatEngine
from ragqa.retrieval.vectors.mips import Mips

__all__ = ["IndexRefresher", "Saves", "Swap", "blocking_refresher", "opener", "ray_refresher"]

SHARD = 4096
"""Rows that are embedded at a time: what the death of an actor costs."""


def blocking_refresher(
    corpus: Path,
    work: Path,
    *,
    kind: str = DEFAULT_KIND,
    recall: float = mips.RECALL,
    questions: Path | None = None,
    device: str = "cpu",
    search_device: str = "cpu",
    engine: str = FlatEngine.AUTO,
    max_staleness: int | None = None,
    shard_rows: int = SHARD,
    at: int | None = None,
    upto: int | None = None,
    clock: Callable[[], float] = perf_counter,
) -> IndexRefresher:
    """Go on with the newest version in ``work``, or begin; ``refresh`` makes the index itself, in this process.

    Args:
        corpus: index directory whose passages are embedded.
        work: directory of the versions; all machines see it.
        kind: of the index, see ``ragqa.retrieval.vectors.kinds.IndexKind``.
        recall: share of the 20 nearest passages that a kind other than flat is to find.
        questions: file of sample questions on which that is tried with every version; without it some are made up.
        device: where passages are encoded.
        search_device: where the index is searched.
        engine: what searches an index of kind flat.
        max_staleness: steps that the index may be old.
        shard_rows: rows of a shard.
        at: version to go on with instead of the newest.
        upto: step that training goes on from, by default that of ``at``; with ``at``, what is later is deleted.
        clock: seconds.

    Raises:
        BadInput: an argument cannot be used, another process trains with ``work``, or there is no version ``at``.
        Mismatch: ``work`` holds indexes of other passages.
        ArtefactError, DamagedArtefact: ``corpus`` is not a whole index.
    """
    plan = Plan.of(corpus, work, kind, shard_rows, recall, questions)
    versions = Versions(plan, device=search_device, engine=engine)
    return IndexRefresher(
        versions,
        lambda: _Here(plan, device, clock),
        max_staleness=max_staleness,
        at=at,
        upto=upto,
        clock=clock,
    )


def ray_refresher(
    corpus: Path,
    work: Path,
    *,
    max_staleness: int | None,
    workers: int = 1,
    gpus: bool = False,
    nice: int = 10,
    kind: str = DEFAULT_KIND,
    recall: float = mips.RECALL,
    questions: Path | None = None,
    search_device: str = "cpu",
    engine: str = FlatEngine.AUTO,
    shard_rows: int = SHARD,
    at: int | None = None,
    upto: int | None = None,
    clock: Callable[[], float] = perf_counter,
) -> IndexRefresher:
    """As ``blocking_refresher``, but the index is made in actors of a Ray cluster while training goes on.

    ``workers`` of them encode, on a GPU each or on one thread each; all machines see ``questions``, too.
    ``nice``, 0 to 19, is how far they leave the cores to training where the two share them: the slower training
    may become by a refresh, the sooner that is finished.
    They live until ``close``. An actor that dies is started again, on another machine if its own is gone.
    Raises also MissingExtra: Ray is not installed.
    """
    if workers < 1:
        raise BadInput(f"workers = {workers}: at least one must encode")
    plan = Plan.of(corpus, work, kind, shard_rows, recall, questions)
    versions = Versions(plan, device=search_device, engine=engine)
    return IndexRefresher(
        versions,
        lambda: Actors(plan, workers, gpus, nice),
        max_staleness=max_staleness,
        at=at,
        upto=upto,
        clock=clock,
    )


def opener(
    corpus: Path, work: Path, *, kind: str = DEFAULT_KIND, search_device: str = "cpu", engine: str = FlatEngine.AUTO
) -> Callable[[int], Mips]:
    """Opens versions that another process's refresher keeps in ``work``: for those that train with it.

    Raises as ``blocking_refresher`` does.
    """
    versions = Versions(Plan.of(corpus, work, kind, SHARD, mips.RECALL, None), device=search_device, engine=engine)
    return lambda step: versions.open(step)[0]


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
