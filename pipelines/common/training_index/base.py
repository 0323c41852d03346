"""Interface of the index that recipes search in training.

Legend: B questions, K passages of a question, D width.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from torch import Tensor

from ragqa import artefacts
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.models.tower import Tower
from ragqa.retrieval.vectors.mips import Mips
from ragqa.runtime.tokens import TextTokenizer
from ragqa.types import Passage

NOT_FOUND = -1
"""Row that stands where an approximate index found fewer passages than were asked for."""


class TrainingIndex(Protocol):
    """Passages that training searches: a ``FrozenIndex``, or a ``RefreshedIndex`` whose passage tower learns."""

    @property
    def store(self) -> PassageStore:
        """The passages."""
        ...

    @property
    def corpus(self) -> str:
        """Fingerprint of the passages."""
        ...

    @property
    def tokenizer(self) -> TextTokenizer:
        """Tokenizer of the retriever."""
        ...

    @property
    def mips(self) -> Mips:
        """Index of the passages' vectors, as it is now."""
        ...

    def encode(self, tower: Tower, texts: Sequence[str], device: str) -> Tensor:
        """Return the vectors [B, D] of questions by the tower in training, with their gradient."""
        ...

    def propose(self, queries_BD: np.ndarray, k: int) -> np.ndarray:
        """Return the rows [B, K] of the best passages, at most all there are, ``NOT_FOUND`` where fewer were found."""
        ...

    def score(self, query_BD: Tensor, rows_BK: np.ndarray) -> Tensor:
        """Return the scores f(x, z) [B, K] with their gradient; ``IMPOSSIBLE`` where nothing was found."""
        ...

    def passages(self, rows: np.ndarray) -> list[Passage]:
        """Return the passages of the rows that were found."""
        ...


def search_rows(mips: Mips, queries_BD: np.ndarray, k: int) -> np.ndarray:
    """Return the rows [B, ``k``] that an index finds, best first; ``NOT_FOUND`` where it found fewer."""
    rankings = mips.search(queries_BD, k)
    return np.stack([np.pad(r.rows, (0, k - len(r)), constant_values=NOT_FOUND) for r in rankings])


def corpus_fingerprint(index: Path) -> str:
    """Return the fingerprint of the passages in an index directory."""
    return artefacts.read_manifest(index, "index").parents["corpus"]


def check_corpus_size(index: Path, k: int, option: str) -> None:
    """Raise BadInput if an index directory has fewer passages than are to be read, before hours are spent on it."""
    artefacts.read_manifest(index, "index")
    if (count := PassageStore.open(index / "passages").live_count) < k:
        raise BadInput(f"{index} holds {count} passages, not {k} to read: lower {option}")
