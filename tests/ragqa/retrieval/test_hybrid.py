"""Fusion of dense retrieval and BM25 against sums worked out by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragqa.errors import BadInput
from ragqa.retrieval.base import Ranking, select_best
from ragqa.retrieval.dense import DenseRanker
from ragqa.retrieval.hybrid import Hybrid, fuse_ranks


class Question:
    """An encoder for which a question is its vector: "1 0" is [1, 0]."""

    width = 2
    calls = 0

    def encode_questions(self, texts: list[str]) -> np.ndarray:
        self.calls += 1
        return np.array([[float(number) for number in text.split()] for text in texts], np.float32)


class Table:
    """Exact search over a few vectors."""

    def __init__(self, vectors: list[list[float]], *, at_hand: bool = True) -> None:
        self._all = np.array(vectors, np.float16)
        self.vectors = self._all if at_hand else None
        self.width = self._all.shape[1]
        self.asked: list[int] = []

    def __len__(self) -> int:
        return len(self._all)

    def search(self, queries_BD: np.ndarray, k: int) -> list[Ranking]:
        self.asked.append(k)
        return [select_best(np.arange(len(self)), self._all.astype(np.float32) @ query, k) for query in queries_BD]


class Terms:
    """BM25 with a fixed answer."""

    def __init__(self, *found: dict[int, float]) -> None:
        self.found = found
        self.asked: list[int] = []

    def rank(self, questions: list[str], k: int) -> list[Ranking]:
        self.asked.append(k)
        return [select_best(list(scores), list(scores.values()), k) for scores in self.found]


VECTORS = [[1, 0], [0.5, 0], [0.25, 0], [0, 0], [-1, 0]]


def pairs(ranking: Ranking) -> list[tuple[int, float]]:
    """Row and score, the scores rounded to what float32 keeps."""
    return [(row, round(score, 6)) for row, score in zip(ranking.rows.tolist(), ranking.scores.tolist(), strict=True)]


def test_weighted_by_hand() -> None:
    hybrid = Hybrid(DenseRanker(Question(), Table(VECTORS)), Terms({2: 30, 1: 10}), weight=0.03)
    (found,) = hybrid.rank(["1 0"], 5)
    # 0.25 + 0.03 * 30, 1 + 0, 0.5 + 0.03 * 10, 0 + 0, -1 + 0
    assert pairs(found) == [(2, 1.15), (0, 1.0), (1, 0.8), (3, 0.0), (4, -1.0)]
    assert (found.rows.dtype, found.scores.dtype) == (np.int64, np.float32)


def test_weighted_gives_a_passage_of_bm25_alone_its_true_cosine() -> None:
    hybrid = Hybrid(DenseRanker(Question(), Table(VECTORS)), Terms({4: 50, 3: 20}), weight=0.03, depth=2)
    (found,) = hybrid.rank(["1 0"], 2)
    assert pairs(found) == [(0, 1.0), (3, 0.6)]  # 0 + 0.03 * 20; row 4: -1 + 0.03 * 50 = 0.5, as much as row 1
    (found,) = Hybrid(DenseRanker(Question(), Table(VECTORS)), Terms({4: 50, 3: 20}), weight=0.03, depth=4).rank(
        ["1 0"], 4
    )
    assert pairs(found) == [(0, 1.0), (3, 0.6), (1, 0.5), (4, 0.5)]


def test_weighted_without_vectors_gives_it_the_lowest_cosine_found() -> None:
    table = Table(VECTORS, at_hand=False)
    (found,) = Hybrid(DenseRanker(Question(), table), Terms({4: 50, 3: 20}), weight=0.03, depth=2).rank(["1 0"], 2)
    assert pairs(found) == [(4, 2.0), (3, 1.1)]  # 0.5 + 0.03 * 50, 0.5 + 0.03 * 20
    (found,) = Hybrid(DenseRanker(Question(), Table([[1, 0]] * 3, at_hand=False)), Terms({1: 1}), weight=0.03).rank(
        ["1 0"], 3
    )
    assert pairs(found) == [(1, 1.03), (0, 1.0), (2, 1.0)]


def test_weighted_where_one_list_is_empty() -> None:
    dense = DenseRanker(Question(), Table(VECTORS))
    assert pairs(Hybrid(dense, Terms({})).rank(["1 0"], 2)[0]) == [(0, 1.0), (1, 0.5)]
    nothing = DenseRanker(Question(), _Nothing())
    assert pairs(Hybrid(nothing, Terms({7: 10, 2: 20}), weight=0.03).rank(["1 0"], 5)[0]) == [(2, 0.6), (7, 0.3)]
    assert pairs(Hybrid(nothing, Terms({})).rank(["1 0"], 5)[0]) == []


class _Nothing(Table):
    """An index without a vector at hand that finds nothing."""

    def __init__(self) -> None:
        super().__init__([[0, 0]], at_hand=False)

    def search(self, queries_BD: np.ndarray, k: int) -> list[Ranking]:
        return [select_best([], [], k) for _ in queries_BD]


def test_rrf_by_hand() -> None:
    hybrid = Hybrid(DenseRanker(Question(), Table(VECTORS)), Terms({2: 9, 0: 5, 9: 1}), fusion="rrf")
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


def test_rrf_ties_go_to_the_lower_row() -> None:
    first = Ranking(np.array([5, 3, 8]), np.array([3, 2, 1], np.float32))
    second = Ranking(np.array([3, 5, 2]), np.array([30, 20, 10], np.float32))
    found = fuse_ranks(first, second, 4)
    assert found.rows.tolist() == [3, 5, 2, 8]
    assert found.scores[0] == found.scores[1]
    assert found.scores[2] == found.scores[3]
    assert fuse_ranks(first, second, 1).rows.tolist() == [3]


def test_rrf_of_disjoint_lists_takes_turns() -> None:
    first = Ranking(np.array([10, 11]), np.array([2, 1], np.float32))
    second = Ranking(np.array([0, 1]), np.array([2, 1], np.float32))
    assert fuse_ranks(first, second, 9).rows.tolist() == [0, 10, 1, 11]


@given(
    st.lists(st.permutations(range(6)), min_size=2, max_size=2), st.integers(0, 6), st.integers(0, 6), st.integers(1, 8)
)
def test_rrf_is_its_formula(orders: list[list[int]], a: int, b: int, k: int) -> None:
    lists = [orders[0][:a], orders[1][:b]]
    found = fuse_ranks(*[Ranking(np.array(rows, np.int64), np.zeros(len(rows), np.float32)) for rows in lists], k)
    total = {
        row: sum(1 / (60 + 1 + rows.index(row)) for rows in lists if row in rows) for row in {*lists[0], *lists[1]}
    }
    ranked = sorted(total, key=lambda row: (-np.float32(total[row]), row))[:k]
    assert found.rows.tolist() == ranked


def test_both_are_asked_for_the_depth_or_for_more_and_questions_are_encoded_once() -> None:
    encoder, table, terms = Question(), Table(VECTORS), Terms({0: 1}, {1: 1})
    hybrid = Hybrid(DenseRanker(encoder, table), terms, depth=3)
    found = hybrid.rank(["1 0", "0 1"], 2)
    assert [len(each) for each in found] == [2, 2]
    hybrid.rank(["1 0", "0 1"], 50)
    assert table.asked == terms.asked == [3, 50]
    assert encoder.calls == 2
    assert hybrid.rank([], 2) == []


def test_each_question_has_its_own_lists() -> None:
    hybrid = Hybrid(DenseRanker(Question(), Table(VECTORS)), Terms({3: 100}, {2: 100}), weight=0.03)
    first, second = hybrid.rank(["1 0", "-1 0"], 1)
    assert pairs(first) == [(3, 3.0)]
    assert pairs(second) == [(2, 2.75)]


def test_options_that_make_no_sense() -> None:
    dense, terms = DenseRanker(Question(), Table(VECTORS)), Terms({0: 1})
    with pytest.raises(BadInput, match="fusion max: choose one of weighted, rrf"):
        Hybrid(dense, terms, fusion="max")
    for weight in (-0.1, math.nan, math.inf):
        with pytest.raises(BadInput, match="weight ="):
            Hybrid(dense, terms, weight=weight)
    with pytest.raises(BadInput, match="depth = 0"):
        Hybrid(dense, terms, depth=0)
    with pytest.raises(BadInput, match="k = 0"):
        Hybrid(dense, terms).rank(["1 0"], 0)
