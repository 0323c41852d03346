"""Fusion of dense retrieval and BM25 against sums worked out by hand."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragqa.errors import BadInput
from ragqa.retrieval.base import Ranking, select_best
from ragqa.retrieval.dense import DenseRanker
from ragqa.retrieval.hybrid import Hybrid, fuse_ranks


class VectorQuestionEncoder:
    """An encoder of questions that spell out their vectors: "1 0" is [1, 0]."""

    width = 2
    calls = 0

    def encode_questions(self, texts: list[str]) -> np.ndarray:
        self.calls += 1
        return np.array([[float(number) for number in text.split()] for text in texts], np.float32)


class VectorTable:
    """Exact search over a few vectors."""

    def __init__(self, vectors: list[list[float]]) -> None:
        self._all = np.array(vectors, np.float16)
        self.vectors = self._all
        self.width = self._all.shape[1]
        self.requested: list[int] = []

    def __len__(self) -> int:
        return len(self._all)

    def search(self, queries_BD: np.ndarray, k: int) -> list[Ranking]:
        self.requested.append(k)
        return [select_best(np.arange(len(self)), self._all.astype(np.float32) @ query, k) for query in queries_BD]


class FixedTerms:
    """BM25 with a fixed answer."""

    def __init__(self, *found: dict[int, float]) -> None:
        self.found = found
        self.requested: list[int] = []

    def rank(self, questions: list[str], k: int, rows: None = None) -> list[Ranking]:
        self.requested.append(k)
        return [select_best(list(scores), list(scores.values()), k) for scores in self.found]


VECTORS = [[1, 0], [0.5, 0], [0.25, 0], [0, 0], [-1, 0]]


def round_scores(ranking: Ranking) -> list[tuple[int, float]]:
    """Return rows and scores, rounded to the precision of float32."""
    return [(row, round(score, 6)) for row, score in zip(ranking.rows.tolist(), ranking.scores.tolist(), strict=True)]


def make_hybrid(terms: FixedTerms, **options: Any) -> Hybrid:
    """Return a retriever that fuses an exact search over ``VECTORS`` with ``terms``."""
    return Hybrid(DenseRanker(VectorQuestionEncoder(), VectorTable(VECTORS)), terms, **options)


def test_weighted_fusion_matches_sums_by_hand() -> None:
    hybrid = make_hybrid(FixedTerms({2: 30, 1: 10}), weight=0.03)
    (found,) = hybrid.rank(["1 0"], 5)
    # 0.25 + 0.03 * 30, 1 + 0, 0.5 + 0.03 * 10, 0 + 0, -1 + 0
    assert round_scores(found) == [(2, 1.15), (0, 1.0), (1, 0.8), (3, 0.0), (4, -1.0)]
    assert (found.rows.dtype, found.scores.dtype) == (np.int64, np.float32)


def test_weighted_fusion_computes_the_cosine_of_passages_that_only_bm25_found() -> None:
    hybrid = make_hybrid(FixedTerms({4: 50, 3: 20}), weight=0.03, depth=2)
    (found,) = hybrid.rank(["1 0"], 2)
    assert round_scores(found) == [(0, 1.0), (3, 0.6)]  # 0 + 0.03 * 20; row 4: -1 + 0.03 * 50 = 0.5, as much as row 1
    (found,) = make_hybrid(FixedTerms({4: 50, 3: 20}), weight=0.03, depth=4).rank(["1 0"], 4)
    assert round_scores(found) == [(0, 1.0), (3, 0.6), (1, 0.5), (4, 0.5)]


def test_weighted_fusion_accepts_an_empty_list() -> None:
    dense = DenseRanker(VectorQuestionEncoder(), VectorTable(VECTORS))
    assert round_scores(Hybrid(dense, FixedTerms({})).rank(["1 0"], 2)[0]) == [(0, 1.0), (1, 0.5)]
    nothing = DenseRanker(VectorQuestionEncoder(), EmptyIndex())
    assert round_scores(Hybrid(nothing, FixedTerms({7: 10, 2: 20}), weight=0.03).rank(["1 0"], 5)[0]) == [
        (2, 0.6),
        (7, 0.3),
    ]
    assert round_scores(Hybrid(nothing, FixedTerms({})).rank(["1 0"], 5)[0]) == []


class EmptyIndex(VectorTable):
    """An index of vectors that are zero, which finds nothing."""

    def __init__(self) -> None:
        super().__init__([[0, 0]] * 21)

    def search(self, queries_BD: np.ndarray, k: int) -> list[Ranking]:
        return [select_best([], [], k) for _ in queries_BD]


def test_rank_fusion_matches_sums_by_hand() -> None:
    hybrid = make_hybrid(FixedTerms({2: 9, 0: 5, 9: 1}), fusion="rrf")
    (found,) = hybrid.rank(["1 0"], 10)
    expected = {
        0: 1 / 61 + 1 / 62,
        2: 1 / 63 + 1 / 61,
        1: 1 / 62,
        9: 1 / 63,
        3: 1 / 64,
        4: 1 / 65,
    }
    assert found.rows.tolist() == list(expected)
    np.testing.assert_allclose(found.scores, list(expected.values()), rtol=1e-6)


def test_rank_fusion_breaks_ties_by_row() -> None:
    first = Ranking(np.array([5, 3, 8]), np.array([3, 2, 1], np.float32))
    second = Ranking(np.array([3, 5, 2]), np.array([30, 20, 10], np.float32))
    found = fuse_ranks(first, second, 4)
    assert found.rows.tolist() == [3, 5, 2, 8]
    assert found.scores[0] == found.scores[1]
    assert found.scores[2] == found.scores[3]
    assert fuse_ranks(first, second, 1).rows.tolist() == [3]


def test_rank_fusion_interleaves_disjoint_lists() -> None:
    first = Ranking(np.array([10, 11]), np.array([2, 1], np.float32))
    second = Ranking(np.array([0, 1]), np.array([2, 1], np.float32))
    assert fuse_ranks(first, second, 9).rows.tolist() == [0, 10, 1, 11]


@given(
    st.lists(st.permutations(range(6)), min_size=2, max_size=2), st.integers(0, 6), st.integers(0, 6), st.integers(1, 8)
)
def test_rank_fusion_matches_the_formula(
    orders: list[list[int]], first_length: int, second_length: int, k: int
) -> None:
    lists = [orders[0][:first_length], orders[1][:second_length]]
    found = fuse_ranks(*[Ranking(np.array(rows, np.int64), np.zeros(len(rows), np.float32)) for rows in lists], k)
    total = {
        row: sum(1 / (60 + 1 + rows.index(row)) for rows in lists if row in rows) for row in {*lists[0], *lists[1]}
    }
    ranked = sorted(total, key=lambda row: (-np.float32(total[row]), row))[:k]
    assert found.rows.tolist() == ranked


def test_both_lists_have_the_depth_or_k_entries_and_questions_are_encoded_once() -> None:
    encoder, table, terms = VectorQuestionEncoder(), VectorTable(VECTORS), FixedTerms({0: 1}, {1: 1})
    hybrid = Hybrid(DenseRanker(encoder, table), terms, depth=3)
    found = hybrid.rank(["1 0", "0 1"], 2)
    assert [len(each) for each in found] == [2, 2]
    hybrid.rank(["1 0", "0 1"], 50)
    assert table.requested == terms.requested == [3, 50]
    assert encoder.calls == 2
    assert hybrid.rank([], 2) == []


def test_each_question_is_fused_with_its_own_lists() -> None:
    hybrid = make_hybrid(FixedTerms({3: 100}, {2: 100}), weight=0.03)
    first, second = hybrid.rank(["1 0", "-1 0"], 1)
    assert round_scores(first) == [(3, 3.0)]
    assert round_scores(second) == [(2, 2.75)]


def test_invalid_options_are_refused() -> None:
    dense, terms = DenseRanker(VectorQuestionEncoder(), VectorTable(VECTORS)), FixedTerms({0: 1})
    with pytest.raises(BadInput, match="fusion max: choose one of weighted, rrf"):
        Hybrid(dense, terms, fusion="max")
    with pytest.raises(BadInput, match="k = 0"):
        Hybrid(dense, terms).rank(["1 0"], 0)
