"""Exact search, compared with results worked out by hand and by sorting."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from ragqa.errors import DamagedArtefact
from ragqa.retrieval.vectors import exact
from ragqa.retrieval.vectors.arrays import gather_rows
from ragqa.retrieval.vectors.exact import ExactIndex
from ragqa.retrieval.vectors.store import VECTORS_FILE
from tests.helpers.vectors import (
    ENGINES,
    make_unit_vectors,
    open_vectors,
    search_by_sorting,
)


@pytest.mark.parametrize("engine", ENGINES)
def test_scores_and_order_match_a_search_by_hand(tmp_path: Path, engine: str) -> None:
    index = open_vectors(tmp_path, [[1, 0], [0, 1], [0.5, 0.5], [-1, 0]], engine=engine)
    first, second = index.search(np.array([[2, 1], [-1, 0.5]]), 3)
    assert first.rows.tolist() == [0, 2, 1]
    assert first.scores.tolist() == [2, 1.5, 1]
    assert second.rows.tolist() == [3, 1, 2]
    assert second.scores.tolist() == [1, 0.5, -0.25]
    assert (first.rows.dtype, first.scores.dtype) == (np.int64, np.float32)
    assert (len(index), index.width) == (4, 2)


def test_numpy_searches_on_a_cpu_and_leaves_the_vectors_on_disk(tmp_path: Path) -> None:
    index = open_vectors(tmp_path, np.eye(3))
    assert isinstance(index, ExactIndex)
    assert isinstance(index.vectors, np.memmap)
    assert [file.name for file in tmp_path.iterdir()] == [VECTORS_FILE]


@pytest.mark.parametrize("engine", ["numpy", "torch"])
def test_ties_go_to_the_lower_row_within_and_across_chunks(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "CHUNK_ROWS", 4)
    vectors = np.zeros((11, 2))
    vectors[[1, 3, 4, 7, 8, 10], 0] = 1
    vectors[9, 0] = 2
    index = open_vectors(tmp_path, vectors, engine=engine)
    for k in range(1, 13):
        (found,) = index.search(np.array([[1, 0]]), k)
        assert found.rows.tolist() == [9, 1, 3, 4, 7, 8, 10, 0, 2, 5, 6][:k]


@settings(max_examples=60)
@given(
    vectors=st_numpy.arrays(np.float16, st.tuples(st.integers(1, 30), st.just(3)), elements=st.integers(-2, 2)),
    queries=st_numpy.arrays(np.float32, st.tuples(st.integers(1, 4), st.just(3)), elements=st.integers(-2, 2)),
    k=st.integers(1, 35),
    chunk=st.integers(1, 31),
    engine=st.sampled_from(["numpy", "torch"]),
    removed=st.sets(st.integers(0, 29)),
)
def test_exact_search_returns_what_sorting_all_scores_returns(
    vectors: np.ndarray, queries: np.ndarray, k: int, chunk: int, engine: str, removed: set[int]
) -> None:
    if engine == "torch":
        pytest.importorskip("torch")
    deleted = np.array(sorted(row for row in removed if row < len(vectors)), np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "CHUNK_ROWS", chunk)
        patch.setattr(exact, "_QUERIES", 2)
        found = ExactIndex(vectors, deleted=deleted, engine=engine).search(queries, k)
    for ranking, query in zip(found, queries, strict=True):
        left = [pair for pair in search_by_sorting(vectors, query, len(vectors)) if pair[0] not in removed]
        assert list(zip(ranking.rows, ranking.scores, strict=True)) == left[:k]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("engine", ["numpy", "torch"])
def test_a_vector_that_is_not_finite_is_named_in_a_search(tmp_path: Path, bad: float, engine: str) -> None:
    vectors = make_unit_vectors(50, 4)
    index = open_vectors(tmp_path, vectors, engine=engine)
    vectors[37, 2] = bad
    with pytest.raises(DamagedArtefact, match="passage 37 is not finite"):
        ExactIndex(vectors, engine=engine).search(np.ones((3, 4)), 2)
    with pytest.raises(DamagedArtefact, match="passage 37 is not finite"):
        gather_rows(vectors, np.array([3, 37, 40]))
    assert len(index.search(np.ones((3, 4)), 2)) == 3
