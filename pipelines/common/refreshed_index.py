"""The index of a pretraining run: refreshed while the run goes on, and the same in all of its processes."""

from dataclasses import replace
from pathlib import Path
from typing import Protocol

from index.refresh import (
    IndexRefresher,
    RefreshSettings,
    Swap,
    make_version_opener,
    open_blocking_refresher,
    open_ray_refresher,
)
from pipelines.common.run import Run
from ragqa.errors import ArtefactError, RefreshFailed
from ragqa.models.dual_encoder import DualEncoder
from ragqa.retrieval.vectors.kinds import IndexKind
from ragqa.retrieval.vectors.mips import Mips
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
    def waits(self) -> int: ...
    @property
    def workers(self) -> int: ...
    @property
    def gpus(self) -> bool: ...
    @property
    def device(self) -> str: ...


class LiveIndex:
    """The index of a run, refreshed by its first process, and the same in all of them at every step."""

    def __init__(self, config: Refreshed, at: int | None = None, upto: int | None = None) -> None:
        """Go on with version ``at``, in use when the tower had learned ``upto`` steps; or begin without one."""
        work = config.out / "index"
        work.mkdir(parents=True, exist_ok=True)
        self.version: int | None = None
        self._every, self._waits = config.refresh_every, config.waits
        self._asked: int | None = None
        self._index: Mips | None = None
        self._refresher: IndexRefresher | None = None
        # Only a flat index can be searched on a GPU.
        search_device = config.device if config.kind == IndexKind.FLAT else "cpu"
        settings = RefreshSettings(kind=config.kind, search_device=search_device)
        if not parallel.is_first_process():
            self._open = make_version_opener(config.corpus, work, settings)
            return
        bound = config.max_staleness
        if bound is None and self._every is not None:
            bound = 2 * self._every
        settings = replace(settings, max_staleness=bound)
        if config.workers:
            self._refresher = open_ray_refresher(
                config.corpus, work, settings, workers=config.workers, gpus=config.gpus, version=at, step=upto
            )
        else:
            self._refresher = open_blocking_refresher(
                config.corpus, work, settings, device=config.device, version=at, step=upto
            )

    @classmethod
    def of(cls, config: Refreshed, run: Run) -> "LiveIndex":
        """That of a run, begun or gone on with from its checkpoint."""
        return cls(config, run.state.extra.get("index"), max(0, run.step - config.waits))

    def follow(self, run: Run, retriever: DualEncoder) -> tuple[Mips, int]:
        """The index to search in this step, and how many steps its tower has learned since; swaps are logged."""
        learned = max(0, run.step - self._waits)
        try:
            index = self.at(retriever, learned)
        except (RefreshFailed, ArtefactError) as error:  # told once: the index before it serves until it is too old
            if self.version is None:
                raise
            run.alarm(run.step, [str(error)])
            index = self._poll(learned)
        for swap in self._swaps():
            row = {f"swap_{name}": value for name, value in swap.as_dict().items() if name != "step"}
            run.log.write(run.step, **row)
        return index, learned - (self.version or 0)

    def at(self, retriever: DualEncoder, learned: int) -> Mips:
        """The index to search now; the tower of passages is handed over for the next where that is due.

        ``learned`` is how many steps the tower has learned: while it is frozen, an index does not age.
        """
        due = learned == 0 or (self._every is not None and learned % self._every == 0)
        if due and learned != self._asked and self._refresher is not None:
            self._asked = learned
            self._refresher.refresh(_Passages(retriever), learned)
        return self._poll(learned)

    def _poll(self, step: int) -> Mips:
        if self._refresher is not None:
            self._index = self._refresher.poll(step)
            self.version = parallel.broadcast_from_first(self._refresher.version)
            return self._index
        version = parallel.broadcast_from_first(None)
        assert version is not None  # the first process has polled
        if version != self.version:
            self._index, self.version = self._open(version), version
        assert self._index is not None
        return self._index

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
