"""Hybrid retrieval, which fuses the rankings of dense retrieval and BM25."""

import numpy as np

from ragqa.errors import BadInput
from ragqa.retrieval import bm25, dense
from ragqa.retrieval.base import IndexVersion, Ranker, Ranking, Rows, Scoring, check_k, select_best
from ragqa.retrieval.dense import DenseRanker
from ragqa.retrieval.registry import DEFAULT_FUSION, Fusion, RetrieverKind
from ragqa.retrieval.vectors.scores import exact_scores

_RRF_CONSTANT = 60
"""Number added to each rank, so that the first ranks do not dominate (Cormack et al. 2009)."""


class Hybrid:
    """Ranker that fuses the passages found by dense retrieval and by BM25."""

    def __init__(
        self,
        dense: DenseRanker,
        bm25: Ranker,
        *,
        fusion: str = DEFAULT_FUSION,
        weight: float = 0.02,
        depth: int = 100,
    ) -> None:
        """Combine a dense ranker and a BM25 ranker.

        Args:
            dense: dense ranker; its vectors also score passages that only BM25 returned.
            bm25: BM25 ranker; passages that only ``dense`` returned have BM25 score 0.
            fusion: ``weighted`` (inner product + ``weight`` x BM25 score) or ``rrf`` (see ``fuse_ranks``).
            weight: factor that brings BM25 scores to the scale of inner products.
            depth: minimum number of passages taken from each ranker; ``k`` if that is more.

        Raises:
            BadInput: the fusion is unknown.
        """
        if fusion not in list(Fusion):
            raise BadInput(f"fusion {fusion}: choose one of {', '.join(Fusion)}")
        self.dense, self.bm25 = dense, bm25
        self.fusion, self.weight, self.depth = Fusion(fusion), weight, depth

    @property
    def scoring(self) -> Scoring:
        """Origin of the scores: the dense ranker's encoder and the engine of BM25."""
        return Scoring(RetrieverKind.HYBRID, self.dense.scoring.encoder, self.bm25.scoring.engine)

    def rank(self, questions: list[str], k: int, rows: Rows | None = None) -> list[Ranking]:
        """Return at most ``k`` rows for each question, best first.

        Arguments: as for ``Ranker.rank``.

        Raises:
            BadInput, DamagedArtefact: as for ``DenseRanker.rank``.
        """
        check_k(k)
        if not questions:
            return []
        depth = max(k, self.depth)
        queries_BD = self.dense.encoder.encode_questions(questions)
        lists = self.dense.search(queries_BD, depth, rows), self.bm25.rank(questions, depth, rows)
        if self.fusion is Fusion.RECIPROCAL_RANK:
            return [fuse_ranks(dense, sparse, k) for dense, sparse in zip(*lists, strict=True)]
        return [self._fuse_scores(*item, k) for item in zip(queries_BD, *lists, strict=True)]

    def _fuse_scores(self, query_D: np.ndarray, dense: Ranking, sparse: Ranking, k: int) -> Ranking:
        rows = np.union1d(dense.rows, sparse.rows)
        missing = np.setdiff1d(rows, dense.rows)
        total = np.zeros(len(rows))
        total[np.searchsorted(rows, dense.rows)] = dense.scores
        if len(missing):
            total[np.searchsorted(rows, missing)] = exact_scores(self.dense.mips.vectors, missing, query_D)
        total[np.searchsorted(rows, sparse.rows)] += self.weight * sparse.scores.astype(np.float64)
        return select_best(rows, total, k)


def fuse_ranks(dense: Ranking, sparse: Ranking, k: int) -> Ranking:
    """Return the best ``k`` rows of two rankings by reciprocal rank fusion, best first.

    The score of a row is the sum of 1 / (60 + rank), with ranks from 1, over the rankings that contain it. Source:
    Cormack, Clarke and Büttcher, SIGIR 2009.
    """
    rows = np.union1d(dense.rows, sparse.rows)
    total = np.zeros(len(rows))
    for ranking in (dense, sparse):
        total[np.searchsorted(rows, ranking.rows)] += 1 / (_RRF_CONSTANT + 1 + np.arange(len(ranking)))
    return select_best(rows, total, k)


def open_ranker(index: IndexVersion) -> Hybrid:
    """Open the hybrid ranker over the vectors and the terms of an index.

    Errors: as for ``ragqa.retrieval.dense.open_ranker``, ``BM25.open`` and ``Hybrid``.
    """
    terms = bm25.open_ranker(index)
    return Hybrid(dense.open_ranker(index), terms, fusion=index.fusion or DEFAULT_FUSION)
