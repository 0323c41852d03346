"""Dense retrieval and BM25 together: the lists of both, fused."""

import math

import numpy as np

from ragqa.errors import BadInput
from ragqa.retrieval.base import Ranker, Ranking, Rows, best, check_k
from ragqa.retrieval.dense import DenseRanker

FUSIONS = ("weighted", "rrf")
_RRF = 60
"""Added to every rank, so that the first places do not decide alone (Cormack et al. 2009)."""


class Hybrid:
    """Ranks what dense retrieval or BM25 finds by both."""

    def __init__(
        self,
        dense: DenseRanker,
        bm25: Ranker,
        *,
        fusion: str = "weighted",
        weight: float = 0.02,
        depth: int = 100,
    ) -> None:
        """Fuse ``dense`` and ``bm25``.

        Args:
            dense: gives the cosine, also of passages that only BM25 found.
            bm25: gives the terms' score, 0 for passages that it did not find.
            fusion: ``weighted``, cosine + ``weight`` x BM25 score; or ``rrf``, the sum over both lists of
                1 / (60 + rank), ranks from 1 (Cormack, Clarke and Büttcher, SIGIR 2009).
            weight: of a point of BM25, in units of cosine.
            depth: passages taken from each list, more where more are asked for.

        Raises:
            BadInput: an unknown fusion, a negative weight, a depth of less than 1.
        """
        if fusion not in FUSIONS:
            raise BadInput(f"fusion {fusion}: choose one of {', '.join(FUSIONS)}")
        if not (math.isfinite(weight) and weight >= 0):
            raise BadInput(f"weight = {weight}: a finite number of at least 0 is needed")
        if depth < 1:
            raise BadInput(f"depth = {depth}: at least one passage must come from each list")
        self.dense, self.bm25 = dense, bm25
        self.fusion, self.weight, self.depth = fusion, weight, depth

    def rank(self, questions: list[str], k: int) -> list[Ranking]:
        """At most ``k`` rows for each question, best first.

        Raises:
            BadInput: ``k`` is less than 1.
        """
        check_k(k)
        if not questions:
            return []
        depth = max(k, self.depth)
        queries_BD = self.dense.encode(questions)
        found = self.dense.search(queries_BD, depth), self.bm25.rank(questions, depth)
        if self.fusion == "rrf":
            return [reciprocal_rank(dense, sparse, k) for dense, sparse in zip(*found, strict=True)]
        return [self._weighted(*each, k) for each in zip(queries_BD, *found, strict=True)]

    def _weighted(self, query_D: np.ndarray, dense: Ranking, sparse: Ranking, k: int) -> Ranking:
        rows = np.union1d(dense.rows, sparse.rows)
        missing = np.setdiff1d(rows, dense.rows)
        cosines = self.dense.score(query_D, missing) if len(missing) else dense.scores[:0]
        if cosines is None:  # no better than the worst that was found
            cosines = np.full(len(missing), dense.scores[-1] if len(dense) else 0, np.float32)
        total = np.zeros(len(rows))
        _add(total, rows, dense.rows, dense.scores)
        _add(total, rows, missing, cosines)
        _add(total, rows, sparse.rows, self.weight * sparse.scores.astype(np.float64))
        return best(rows, total, k)


def reciprocal_rank(dense: Ranking, sparse: Ranking, k: int) -> Ranking:
    """The best ``k`` rows by the sum over both lists of 1 / (60 + rank), ranks from 1."""
    rows = np.union1d(dense.rows, sparse.rows)
    total = np.zeros(len(rows))
    for ranking in (dense, sparse):
        _add(total, rows, ranking.rows, 1 / (_RRF + 1 + np.arange(len(ranking))))
    return best(rows, total, k)


def _add(total_K: np.ndarray, rows_K: Rows, some: Rows, scores: np.ndarray) -> None:
    """Add scores of ``some`` of the sorted rows to their totals."""
    total_K[np.searchsorted(rows_K, some)] += scores
