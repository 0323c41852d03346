"""A dense index that follows the weights while they are trained (REALM, section 3.3; ORQA's stays as it was).

    refresher = RayRefresher(corpus, work, max_staleness=1000)      # or BlockingRefresher(corpus, work)
    for step in …:
        index = refresher.poll(step)                  # the newest finished index; swapped in between two steps
        if step % 500 == 0:
            refresher.refresh(step, tower.save)       # writes a snapshot and returns at once

    work/snapshot-000500/       weights of the passage tower, as the encoder that is loaded
    work/index-000500/          vectors and index made with them, sealed: whole or not there

The last two versions are kept. Scores that carry gradient are computed with the live weights; the index only proposes.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from ragqa import artefact
from ragqa.corpus.store import PassageStore
from ragqa.embedding import Shard, concatenate, embed_shard, finished, shards
from ragqa.errors import MissingExtra
from ragqa.retrieval import mips
from ragqa.retrieval.dense import DenseRanker
from ragqa.retrieval.mips import Mips
from ragqa.runtime.encoder import load_encoder

KEPT = 2
"""Versions that stay on disk."""
Save = Callable[[Path], None]
"""Writes the passage tower into a directory, as an encoder that ``load_encoder`` takes."""


@dataclass(frozen=True)
class Version:
    """A finished index, and what it cost."""

    step: int
    """Of the weights it was made with."""
    index: Mips
    seconds: float
    """From snapshot to finished."""


@dataclass
class Log:
    """What is known at a swap: for ``metrics.jsonl``."""

    version: int
    staleness: int
    """Steps between the weights of the index that is swapped out and now."""
    seconds: float
    """That the making of the new one took."""
    stalled: float
    """Seconds that training waited for an index since the last swap."""
    slowdown: float | None
    """Time of a step while an index was made, in units of that of the others; None where there were none."""


class IndexRefresher(Protocol):
    """Keeps an index of the passages near the weights."""

    log: list[Log]

    def refresh(self, step: int, save: Save) -> None:
        """Begin a new version with the weights that ``save`` writes; one that is being made is made to its end."""
        ...

    def poll(self, step: int) -> Mips:
        """The newest index there is; called between two steps."""
        ...


@dataclass
class _Clock:
    """Times of steps, apart by whether an index was being made meanwhile."""

    last: float | None = None
    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)

    def tick(self, making: bool) -> None:
        now = perf_counter()
        if self.last is not None:
            (self.beside if making else self.alone).append(now - self.last)
        self.last = now

    def slowdown(self) -> float | None:
        if not (self.alone and self.beside):
            return None
        return float(np.median(self.beside) / np.median(self.alone))
