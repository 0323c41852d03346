"""Two levels of retrieval: a ranker finds rows of the passage store, one retriever makes hits of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.types import Hit

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Rows found for one question, best first; rows of equal score in ascending order."""

    rows: Rows
    """[K] int64, K ≤ k: fewer where fewer match."""
    scores: Scores
    """[K] float32, higher is better."""

    def __len__(self) -> int:
        return len(self.rows)


class Ranker(Protocol):
    """Finds rows for questions."""

    def rank(self, questions: list[str], k: int) -> list[Ranking]:
        """At most ``k`` rows for each question."""
        ...


class Retriever(Protocol):
    """Finds passages for questions."""

    def search(self, questions: list[str], k: int) -> list[list[Hit]]:
        """At most ``k`` hits for each question, best first; ``PartialHits`` where passages were missing."""
        ...


class PartialHits(list[Hit]):
    """Hits of a collection of which some shards did not answer: the best of what the others hold.

    A list, so that whoever reads hits need not know; whoever must know asks ``missing``.
    """

    def __init__(self, hits: Iterable[Hit], missing: tuple[str, ...]) -> None:
        super().__init__(hits)
        self.missing = missing
        """Names of the shards that did not answer."""


def missing(hits: list[Hit]) -> tuple[str, ...]:
    """The shards that had no part in ``hits``; none where all had."""
    return hits.missing if isinstance(hits, PartialHits) else ()


class PassageRetriever:
    """A ranker over the rows of a passage store: the one place where rows become hits."""

    def __init__(self, ranker: Ranker, passages: PassageStore) -> None:
        self.ranker, self.passages = ranker, passages

    def search(self, questions: list[str], k: int) -> list[list[Hit]]:
        """At most ``k`` hits for each question, best first.

        Raises:
            BadInput: ``k`` is less than 1.
        """
        check_k(k)
        # More than there is would only make the engines reserve memory.
        return [self._hits(ranking) for ranking in self.ranker.rank(questions, min(k, max(1, len(self.passages))))]

    def _hits(self, ranking: Ranking) -> list[Hit]:
        passages = self.passages.get(ranking.rows.tolist())
        return [Hit(*pair) for pair in zip(passages, ranking.scores.tolist(), strict=True)]


def best(rows: npt.ArrayLike, scores: npt.ArrayLike, k: int) -> Ranking:
    """The ``k`` rows [K] with the highest scores [K], sorted by falling score, then by row."""
    all_rows, all_scores = np.asarray(rows, np.int64), np.asarray(scores, np.float32)
    if len(all_rows) > 4 * k:  # sort only what can be among the best; ties with the last stay in
        kept = all_scores >= np.partition(all_scores, -k)[-k]
        all_rows, all_scores = all_rows[kept], all_scores[kept]
    order = np.lexsort((all_rows, -all_scores))[:k]
    return Ranking(all_rows[order], all_scores[order])


def check_k(k: int) -> None:
    """Raise BadInput unless at least one passage is asked for."""
    if k < 1:
        raise BadInput(f"k = {k}: at least one passage must be asked for")
