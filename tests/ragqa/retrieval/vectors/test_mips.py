"""Maximum inner product search with every kind of index and every engine."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from ragqa.errors import BadInput, DamagedArtefact, Mismatch, MissingExtra
from ragqa.retrieval.vectors import arrays, exact, faiss_files, mips
from ragqa.retrieval.vectors.exact import ExactIndex
from ragqa.retrieval.vectors.index_kinds import IndexKind
from ragqa.retrieval.vectors.store import ADDED_FILE, VECTORS_FILE
from tests.helpers.vectors import (
    APPROXIMATE_KINDS,
    ENGINES,
    KINDS_AND_ENGINES,
    make_unit_vectors,
    measure_recall,
    open_vectors,
    score_tolerance,
    search_by_sorting,
)


@pytest.mark.parametrize("kind", IndexKind)
@pytest.mark.parametrize("count", [1, 2, 3, 40, 300])
def test_every_kind_returns_the_whole_of_a_small_corpus(tmp_path: Path, kind: str, count: int) -> None:
    vectors = make_unit_vectors(count, 12)
    index = open_vectors(tmp_path, vectors, kind)
    queries = vectors[[0, count // 2, count - 1]].astype(np.float32)
    for ranking, query in zip(index.search(queries, count + 5), queries, strict=True):
        assert sorted(ranking.rows.tolist()) == list(range(count))
        np.testing.assert_allclose(
            ranking.scores, vectors[ranking.rows].astype(np.float32) @ query, atol=score_tolerance(kind)
        )
        assert (np.diff(ranking.scores) <= 0).all()


@pytest.mark.parametrize("kind", IndexKind)
def test_every_kind_accepts_an_empty_corpus_and_an_empty_batch(tmp_path: Path, kind: str) -> None:
    index = open_vectors(tmp_path, np.empty((0, 8)), kind)
    assert len(index) == 0
    assert [len(ranking) for ranking in index.search(np.ones((2, 8)), 5)] == [0, 0]
    (tmp_path / "some").mkdir()
    assert open_vectors(tmp_path / "some", make_unit_vectors(50, 8), kind).search(np.empty((0, 8)), 5) == []


@pytest.mark.parametrize("kind", IndexKind)
def test_threads_can_share_an_index(tmp_path: Path, kind: str) -> None:
    vectors = make_unit_vectors(500, 16)
    index = open_vectors(tmp_path, vectors, kind)
    queries = vectors.astype(np.float32)
    alone = [index.search(queries[i : i + 1], 5)[0].rows.tolist() for i in range(40)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda i: index.search(queries[i : i + 1], 5)[0].rows.tolist(), range(40)))
    assert together == alone


@pytest.mark.parametrize(("kind", "engine"), KINDS_AND_ENGINES)
def test_deleted_rows_are_never_returned_and_added_ones_are_found(
    tmp_path: Path, kind: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are deleted at all borders: of chunks, of files, and between FAISS rows and added rows."""
    for module in (exact, arrays):
        monkeypatch.setattr(module, "CHUNK_ROWS", 50)
    vectors = make_unit_vectors(200, 12)
    parts = vectors[:155], vectors[155:156], vectors[156:180], vectors[180:]
    deleted = [0, 49, 50, 99, 100, 101, 154, 155, 156, 179, 180, 199, *range(110, 120)]
    index = open_vectors(tmp_path, parts[0], kind, engine, added=parts[1:], deleted=deleted)
    assert len(index) == 200
    count = 200 - len(deleted)
    queries = vectors[[0, 50, 115, 155, 199, 1, 157, 198]].astype(np.float32)
    truth = [[row for row, _ in search_by_sorting(vectors, query, 200) if row not in deleted] for query in queries]
    for k in (1, 20, count - 1, count, count + 1, 10_000):
        hits = 0
        for ranking, query, best_first in zip(index.search(queries, k), queries, truth, strict=True):
            assert len(ranking) == min(k, count)
            assert not set(ranking.rows.tolist()) & set(deleted)
            assert (np.diff(ranking.scores) <= 0).all()
            np.testing.assert_allclose(
                ranking.scores, vectors[ranking.rows].astype(np.float32) @ query, atol=score_tolerance(kind)
            )
            hits += len(set(ranking.rows.tolist()) & set(best_first[:k]))
            if kind == "flat" or (k >= count and not score_tolerance(kind) > 1e-6):
                assert ranking.rows.tolist() == best_first[:k]
        assert hits >= 0.95 * len(queries) * min(k, count)


@pytest.mark.parametrize(("kind", "engine"), KINDS_AND_ENGINES)
@pytest.mark.parametrize("left", [[0], [39], [40], [44], [45], [59], []], ids=str)
def test_one_row_or_none_is_left_after_deletions(tmp_path: Path, kind: str, engine: str, left: list[int]) -> None:
    vectors = make_unit_vectors(60, 8)
    deleted = [row for row in range(60) if row not in left]
    index = open_vectors(tmp_path, vectors[:40], kind, engine, added=[vectors[40:45], vectors[45:]], deleted=deleted)
    for k in (1, 2, 60, 100):
        assert [ranking.rows.tolist() for ranking in index.search(vectors[[0, 30, 59]], k)] == [left] * 3


@pytest.mark.parametrize(("kind", "engine"), KINDS_AND_ENGINES)
def test_deleted_rows_are_skipped_among_equal_vectors(tmp_path: Path, kind: str, engine: str) -> None:
    vectors = np.tile(make_unit_vectors(1, 8), (90, 1))
    deleted = [0, 1, 2, 40, 59, 60, 61, 89]
    index = open_vectors(tmp_path, vectors[:60], kind, engine, added=[vectors[60:]], deleted=deleted)
    live_rows = [row for row in range(90) if row not in deleted]
    for k in (1, 5, 57, 82, 90):
        (found,) = index.search(vectors[:1], k)
        assert len(found) == min(k, 82) and set(found.rows.tolist()) <= set(live_rows)
        assert found.rows.tolist() == sorted(found.rows.tolist())
        if engine in ("numpy", "torch") or k >= 82:  # FAISS chooses freely among equal rows at the cut
            assert found.rows.tolist() == live_rows[:k]


@pytest.mark.parametrize(("kind", "engine"), [(kind, "auto") for kind in IndexKind] + [("flat", e) for e in ENGINES])
def test_invalid_searches_are_refused(tmp_path: Path, kind: str, engine: str) -> None:
    index = open_vectors(tmp_path, make_unit_vectors(50, 4), kind, engine)
    with pytest.raises(BadInput, match="k = 0: at least one"):
        index.search(np.ones((1, 4)), 0)
    with pytest.raises(Mismatch, match="width 4"):
        index.search(np.ones((1, 5)), 1)
    for bad in (np.nan, np.inf):
        with pytest.raises(BadInput, match="question 1 is not finite"):
            index.search(np.array([[1, 1, 1, 1], [0, bad, 0, 0]]), 1)


@pytest.mark.parametrize("kind", IndexKind)
def test_a_vector_that_is_not_finite_is_named_in_a_build(tmp_path: Path, kind: str) -> None:
    vectors = make_unit_vectors(50, 4)
    vectors[37, 2] = np.nan
    with pytest.raises(DamagedArtefact, match="passage 37 is not finite"):
        open_vectors(tmp_path, vectors, kind)


def test_a_damaged_vector_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / VECTORS_FILE
    with pytest.raises(DamagedArtefact, match=r"vectors\.npy is missing"):
        mips.open_index(tmp_path, "flat")
    np.save(file, make_unit_vectors(50, 4))
    whole = file.read_bytes()
    for bad in (whole[:-8], whole[:20], b"", b"x" * 500):
        file.write_bytes(bad)
        with pytest.raises(DamagedArtefact, match=r"vectors\.npy is damaged"):
            mips.open_index(tmp_path, "flat")
    file.write_bytes(whole + b"12345678")
    with pytest.raises(DamagedArtefact, match="8 bytes longer"):
        mips.open_index(tmp_path, "flat")
    for wrong in (make_unit_vectors(50, 4).astype(np.float32), make_unit_vectors(50, 4)[0]):
        np.save(file, wrong)
        with pytest.raises(DamagedArtefact, match="instead of rows of float16"):
            mips.open_index(tmp_path, "flat")


@pytest.mark.parametrize("kind", APPROXIMATE_KINDS)
def test_a_faiss_file_that_is_damaged_or_of_other_vectors_is_named(tmp_path: Path, kind: str) -> None:
    open_vectors(tmp_path, make_unit_vectors(60, 4), kind)
    file = tmp_path / faiss_files.INDEX_FILE
    mips.write_rows(make_unit_vectors(59, 4), kind, tmp_path)
    with pytest.raises(DamagedArtefact, match="holds 60 vectors of width 4 instead of 59"):
        mips.open_index(tmp_path, kind)
    mips.write_rows(make_unit_vectors(60, 4), kind, tmp_path)
    file.write_bytes(b"no index" * 10)
    with pytest.raises(DamagedArtefact, match=r"faiss\.index is damaged"):
        mips.open_index(tmp_path, kind)
    file.unlink()
    with pytest.raises(DamagedArtefact, match=r"faiss\.index is missing"):
        mips.open_index(tmp_path, kind)


def test_added_files_that_are_damaged_or_of_another_width_are_named(tmp_path: Path) -> None:
    open_vectors(tmp_path, make_unit_vectors(9, 4))
    file = tmp_path / ADDED_FILE.format(1)
    file.write_bytes(b"x" * 50)
    with pytest.raises(DamagedArtefact, match=r"added-000001\.npy is damaged"):
        mips.open_index(tmp_path, "flat")
    np.save(file, make_unit_vectors(3, 5))
    with pytest.raises(DamagedArtefact, match="have different widths"):
        mips.open_index(tmp_path, "flat")
    broken = make_unit_vectors(3, 4)
    broken[1, 1] = np.nan
    np.save(file, broken)
    with pytest.raises(DamagedArtefact, match="passage 10 is not finite"):
        mips.open_index(tmp_path, "flat").search(np.ones((1, 4)), 2)


def test_missing_extras_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / VECTORS_FILE, make_unit_vectors(10, 4))
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"^an index of kind hnsw needs the extra 'cpu'"):
        mips.build(make_unit_vectors(10, 4), "hnsw", tmp_path)
    with pytest.raises(MissingExtra, match="kind sq8 needs the extra 'cpu'"):
        mips.open_index(tmp_path, "sq8")
    with pytest.raises(MissingExtra, match="needs the extra 'gpu'"):
        mips.open_index(tmp_path, "ivf-flat", device="cuda")
    for engine in ("faiss", "torch"):
        with pytest.raises(MissingExtra, match="needs the extra 'gpu'"):
            mips.open_index(tmp_path, "flat", device="cuda", engine=engine)
    with pytest.raises(MissingExtra, match="needs the extra 'torch'"):
        mips.open_index(tmp_path, "flat", engine="torch")
    assert len(mips.open_index(tmp_path, "flat")) == 10


def test_a_missing_gpu_is_reported(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    np.save(tmp_path / VECTORS_FILE, make_unit_vectors(10, 4))
    with pytest.raises(BadInput, match=r"sees no GPU here.*extra 'gpu'"):
        mips.open_index(tmp_path, "flat", device="cuda")


def test_invalid_choices_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / VECTORS_FILE, make_unit_vectors(10, 4))
    with pytest.raises(BadInput, match="kind annoy: choose one of flat, hnsw"):
        mips.open_index(tmp_path, "annoy")
    with pytest.raises(BadInput, match="engine jax: choose one of"):
        mips.open_index(tmp_path, "flat", engine="jax")
    with pytest.raises(BadInput, match="device tpu: choose one of"):
        mips.open_index(tmp_path, "flat", device="tpu")
    with pytest.raises(BadInput, match="engine torch searches kind flat only"):
        mips.open_index(tmp_path, "sq8", engine="torch")
    with pytest.raises(BadInput, match="engine numpy works on the CPU only"):
        mips.open_index(tmp_path, "flat", engine="numpy", device="cuda")
    for kind in ("hnsw", "sq8"):
        with pytest.raises(BadInput, match=f"kind {kind} works on the CPU only"):
            mips.build(make_unit_vectors(10, 4), kind, tmp_path, device="cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["flat", "ivf-flat", "ivf-pq"])
@pytest.mark.parametrize("engine", ["torch", "faiss"])
def test_a_gpu_finds_what_an_exact_search_finds(tmp_path: Path, kind: str, engine: str) -> None:
    if kind != "flat" and engine == "torch":
        pytest.skip("torch searches kind flat only")
    vectors = make_unit_vectors(20_000, 64)
    np.save(tmp_path / VECTORS_FILE, vectors)
    mips.build(vectors, kind, tmp_path, device="cuda")
    found = mips.open_index(tmp_path, kind, device="cuda", engine=engine).search(vectors[:200], 20)
    truth = ExactIndex(vectors).search(vectors[:200], 20)
    assert measure_recall(found, truth) >= (0.999 if kind == "flat" else 0.95)
