"""Search with FAISS: its limits, and searches that find too few rows."""

from pathlib import Path

import numpy as np
import pytest

from ragqa.errors import BadInput
from ragqa.retrieval.vectors import faiss_search
from ragqa.retrieval.vectors.arrays import NO_ROWS
from ragqa.retrieval.vectors.exact import ExactIndex
from ragqa.retrieval.vectors.faiss_files import find_disk_lists
from ragqa.retrieval.vectors.faiss_search import FaissIndex
from ragqa.retrieval.vectors.index_kinds import Effort
from tests.helpers.vectors import make_unit_vectors, open_vectors


class FirstRowsIndex:
    """A stand-in for a FAISS index that proposes its first ``limit`` rows."""

    def __init__(self, limit: int) -> None:
        self.limit, self.requested = limit, 0

    def search(self, queries: np.ndarray, k: int, params: None = None) -> tuple[np.ndarray, np.ndarray]:
        self.requested = k
        rows = np.where(np.arange(k) < self.limit, np.arange(k), -1)
        return np.zeros((len(queries), k)), np.tile(rows, (len(queries), 1))


def test_k_above_the_limit_of_faiss_on_a_gpu_is_refused() -> None:
    vectors, gpu = make_unit_vectors(3000, 4), FirstRowsIndex(3000)
    index = faiss_search.FaissIndex(gpu, vectors, Effort(), NO_ROWS, on_gpu=True)
    with pytest.raises(BadInput, match="k = 2049: FAISS on a GPU returns at most 2048"):
        index.search(np.ones((1, 4)), 2049)
    assert len(index.search(np.ones((1, 4)), 2048)[0]) == 2048
    assert gpu.requested == 2048


def test_a_gpu_without_deletion_filter_is_asked_for_more_rows() -> None:
    vectors, gpu = make_unit_vectors(60, 4), FirstRowsIndex(60)
    index = faiss_search.FaissIndex(gpu, vectors, Effort(factor=1), np.arange(0, 20), on_gpu=True)
    (found,) = index.search(vectors[:1], 40)
    assert sorted(found.rows.tolist()) == list(range(20, 60))
    assert gpu.requested == 60


def test_all_vectors_are_searched_if_faiss_finds_too_few() -> None:
    vectors = make_unit_vectors(50, 4)
    index = faiss_search.FaissIndex(FirstRowsIndex(7), vectors, Effort(factor=1), NO_ROWS)
    (few,) = index.search(vectors[:1], 7)
    assert sorted(few.rows.tolist()) == list(range(7))
    (found,) = index.search(vectors[:1], 8)
    (truth,) = ExactIndex(vectors).search(vectors[:1], 8)
    assert found.rows.tolist() == truth.rows.tolist()


def test_a_graph_search_reaches_a_large_k_without_an_exact_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = make_unit_vectors(1000, 12)
    index = open_vectors(tmp_path, vectors, "hnsw")
    monkeypatch.setattr(faiss_search, "ExactIndex", None)
    assert len(index.search(vectors[:1].astype(np.float32), 900)[0]) == 900


@pytest.mark.parametrize("kind", ["ivf-flat", "ivf-rabitq"])
def test_lists_are_prefetched_until_all_have_been_read(tmp_path: Path, kind: str) -> None:
    vectors = make_unit_vectors(2000, 16)
    index = open_vectors(tmp_path, vectors, kind)
    assert isinstance(index, FaissIndex)
    lists, queries = find_disk_lists(index._index), vectors[:64].astype(np.float32)
    before = index.search(queries, 5)
    assert lists.prefetch_nthread > 0
    for _ in range(4 * index.lists // index.effort.reach):
        index.search(queries[:1], 5)
    again = index.search(queries, 5)
    assert lists.prefetch_nthread == 0
    assert [one.rows.tolist() for one in again] == [one.rows.tolist() for one in before]
