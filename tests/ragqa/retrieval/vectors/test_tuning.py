"""Tuning: the least search effort that reaches a wanted recall."""

from pathlib import Path

import numpy as np
import pytest

from ragqa.retrieval.vectors import mips, tuning
from ragqa.retrieval.vectors.exact import ExactIndex
from tests.helpers.vectors import (
    APPROXIMATE_KINDS,
    make_unit_vectors,
    measure_recall,
    open_vectors,
)


@pytest.mark.parametrize("kind", APPROXIMATE_KINDS)
@pytest.mark.parametrize("width", [7, 30])
def test_the_stored_effort_reaches_a_recall_of_95_percent_at_20(tmp_path: Path, kind: str, width: int) -> None:
    vectors = make_unit_vectors(1500, width)
    index = open_vectors(tmp_path, vectors, kind)
    rng = np.random.default_rng(5)
    queries = vectors[:100].astype(np.float32) + rng.normal(scale=0.7 / width**0.5, size=(100, width))
    truth = ExactIndex(vectors).search(queries, 20)
    found = index.search(queries, 20)
    assert measure_recall(found, truth) >= 0.95


@pytest.mark.parametrize("kind", APPROXIMATE_KINDS)
def test_tuning_finds_the_least_effort_for_the_wanted_recall(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("faiss", reason="needs the extra 'cpu'")
    vectors = make_unit_vectors(6000, 16)
    rng = np.random.default_rng(3)
    queries = (vectors[:200] + rng.normal(scale=0.2, size=(200, 16))).astype(np.float32)
    some = mips.build(vectors, kind, tmp_path, recall=0.8, queries=queries)
    more = mips.tune_index(vectors, kind, tmp_path, recall=0.97, queries=queries)
    assert some is not None and (some.queries, some.made_up, some.target) == (200, False, 0.8)
    assert some.recall >= 0.8 and more.recall >= 0.97
    cheap, dear = (tuning.estimate_cost(kind, found.effort, 6000, 6000 // 39) for found in (some, more))
    assert cheap < dear or (kind in ("hnsw", "sq8") and cheap == dear)
    truth = ExactIndex(vectors).search(queries, 20)
    index = mips.open_index(tmp_path, kind, effort=more.effort)
    assert measure_recall(index.search(queries, 20), truth) == pytest.approx(more.recall, abs=1e-3)


@pytest.mark.thorough
def test_a_recall_out_of_reach_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="needs the extra 'cpu'")
    rng = np.random.default_rng(0)
    found = mips.build(rng.standard_normal((3000, 16)).astype(np.float16), "ivf-rabitq", tmp_path, recall=1.0)
    assert found is not None and found.made_up and not found.sure and 0.9 < found.recall < 1


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_few_questions_do_not_prove_the_recall(tmp_path: Path, count: int) -> None:
    pytest.importorskip("faiss", reason="needs the extra 'cpu'")
    vectors = make_unit_vectors(3000, 16)
    found = mips.build(vectors, "ivf-flat", tmp_path, queries=vectors[:count].astype(np.float32))
    assert found is not None and not found.sure
    assert found.recall == 1 and found.queries == count


def test_synthetic_queries_are_as_far_from_passages_as_questions_are() -> None:
    vectors = make_unit_vectors(3000, 64)
    queries = tuning.make_queries(vectors)
    assert queries.shape == (tuning.SYNTHETIC_QUERIES, 64)
    best = (queries @ vectors.astype(np.float32).T).max(axis=1)
    assert 0.4 < np.median(best) < 0.7
    same = tuning.make_queries(np.tile(vectors[:1], (10, 1)))
    np.testing.assert_allclose(same, np.tile(0.45 * vectors[:1], (len(same), 1)), atol=1e-3)
