"""The index of a pretraining run: refreshed while the run goes on, and the same in all of its processes."""

from pathlib import Path
from typing import Protocol

from index.refresh import IndexRefresher, Swap, blocking_refresher, opener, ray_refresher
from pipelines.run import Run
from ragqa.models.dual_encoder import DualEncoder
from ragqa.retrieval.mips import Mips
from ragqa.training import parallel


class Refreshed(Protocol):
    """Settings of a refreshed index; see ``pretrain.PretrainConfig``."""

    @property
    def corpus(self) -> Path: ...
    @property
    def out(self) -> Path: ...
    @property
    def kind(self) -> str: ...
    @property
    def refresh_every(self) -> int | None: ...
    @property
    def max_staleness(self) -> int | None: ...
    @property
    def workers(self) -> int: ...
    @property
    def gpus(self) -> bool: ...
    @property
    def device(self) -> str: ...


class LiveIndex:
    """The index of a run, refreshed by its first process, and the same in all of them at every step."""

    def __init__(
        self,
        corpus: Path,
        work: Path,
        *,
        kind: str,
        every: int | None,
        max_staleness: int | None = None,
        workers: int = 0,
        gpus: bool = False,
        device: str = "cpu",
        at: int | None = None,
    ) -> None:
        """Go on with version ``at``, or begin without one.

        Args:
            corpus: index directory of the passages.
            work: directory of the versions.
            kind: of the index.
            every: steps between two refreshes; None for no more than the first.
            max_staleness: steps that it may be behind; by default twice ``every``.
            workers: Ray actors that embed; 0 for none, training stops for it.
            gpus: one for each of them.
            device: that embeds where there are no actors.
            at: version that the run was at.
        """
        if max_staleness is None and every is not None:
            max_staleness = 2 * every
        work.mkdir(parents=True, exist_ok=True)
        self.version: int | None = None
        self._every = every
        self._asked: int | None = None
        self._index: Mips | None = None
        self._refresher: IndexRefresher | None = None
        if parallel.world()[0]:
            self._open = opener(corpus, work, kind=kind)
        elif workers:
            self._refresher = ray_refresher(
                corpus, work, max_staleness=max_staleness, workers=workers, gpus=gpus, kind=kind, at=at
            )
        else:
            self._refresher = blocking_refresher(
                corpus, work, kind=kind, device=device, max_staleness=max_staleness, at=at
            )

    @classmethod
    def of(cls, config: Refreshed, at: int | None = None) -> "LiveIndex":
        """The index of a run, gone on with at version ``at``."""
        return cls(
            config.corpus,
            config.out / "index",
            kind=config.kind,
            every=config.refresh_every,
            max_staleness=config.max_staleness,
            workers=config.workers,
            gpus=config.gpus,
            device=config.device,
            at=at,
        )

    def at(self, retriever: DualEncoder, learned: int) -> Mips:
        """The index to search now; the tower of passages is handed over for the next where that is due.

        ``learned`` is how many steps the tower has learned: while it is frozen, an index does not age.
        """
        due = learned == 0 or (self._every is not None and learned % self._every == 0)
        if due and learned != self._asked and self._refresher is not None:
            self._refresher.refresh(_Passages(retriever), learned)
            self._asked = learned
        return self._poll(learned)

    def _poll(self, step: int) -> Mips:
        if self._refresher is not None:
            self._index = self._refresher.poll(step)
            self.version = parallel.told(self._refresher.version)
            return self._index
        version = parallel.told(None)
        assert version is not None  # the first process has polled
        if version != self.version:
            self._index, self.version = self._open(version), version
        assert self._index is not None
        return self._index

    def log(self, run: Run) -> None:
        """Log every index that was taken into use since this was asked last."""
        for swap in self._swaps():
            row = {f"swap_{name}": value for name, value in swap.as_dict().items() if name != "step"}
            run.log.write(run.step, **row)

    def _swaps(self) -> list[Swap]:
        if self._refresher is None:
            return []
        found = list(self._refresher.log)
        self._refresher.log.clear()
        return found

    def keep(self, versions: list[int]) -> None:
        """See ``IndexRefresher.keep``."""
        if self._refresher is not None:
            self._refresher.keep(versions)

    def close(self) -> None:
        """Let go of it."""
        if self._refresher is not None:
            self._refresher.close()


class _Passages:
    """The tower that an index is made with, for the refresher's snapshots."""

    def __init__(self, retriever: DualEncoder) -> None:
        self.save = retriever.save_passages
