"""Maximum inner product search: every kind and engine against values worked out by hand and by sorting."""

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from ragqa.errors import BadInput, DamagedArtefact, Mismatch, MissingExtra
from ragqa.retrieval.base import PassageRetriever, Ranking, select_best
from ragqa.retrieval.dense import DenseRanker
from ragqa.retrieval.vectors import arrays, exact, faiss_build, faiss_search, mips, tuning
from ragqa.retrieval.vectors.arrays import StackedVectors
from ragqa.retrieval.vectors.faiss_files import find_disk_lists
from ragqa.retrieval.vectors.faiss_search import FaissIndex
from ragqa.retrieval.vectors.kinds import IndexKind
from ragqa.retrieval.vectors.scores import rough_scores
from ragqa.retrieval.vectors.store import ADDED_FILE, VectorsOnDisk, open_built_vectors, write_codes
from ragqa.types import Passage

APPROXIMATE = [kind for kind in IndexKind if kind != "flat"]
ENGINES = ["numpy", "torch", "faiss"]
SEARCHES = [*[("flat", engine) for engine in ENGINES], *[(kind, "auto") for kind in APPROXIMATE]]
"""Every kind, and whatever searches it."""


def opened(
    folder: Path,
    vectors: np.ndarray,
    kind: str = "flat",
    engine: str = "auto",
    *,
    added: Sequence[np.ndarray] = (),
    deleted: Sequence[int] = (),
) -> mips.Mips:
    """An index made from ``vectors``, changed by updates that ``added`` some and ``deleted`` others, opened again."""
    if kind != "flat" or engine == "faiss":
        pytest.importorskip("faiss", reason="needs the extra 'cpu'")
    if engine == "torch":
        pytest.importorskip("torch", reason="needs the extra 'torch'")
    tuned = mips.build(np.asarray(vectors, np.float16), kind, folder)
    for number, part in enumerate(added, 1):
        np.save(folder / ADDED_FILE.format(number), part)
    effort = tuned and tuned.effort
    return mips.open_index(folder, kind, effort=effort, engine=engine, deleted=np.array(sorted(deleted), np.int64))


def off(kind: str) -> float:
    """How far a score may be from the inner product: only what is kept in 8 bits is not exact."""
    return 0.01 if kind == "ivf-rabitq" else 1e-6


def unit(count: int, width: int, seed: int = 0) -> np.ndarray:
    """Random unit vectors in clusters, as texts about the same things are."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((max(1, count // 20), width))
    vectors = centres[rng.integers(len(centres), size=count)] + 0.7 * rng.standard_normal((count, width))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)


def by_sorting(vectors: np.ndarray, query: np.ndarray, k: int) -> list[tuple[int, float]]:
    """The oracle: all inner products in Python, sorted by falling score and then by row."""
    scores = [sum(float(a) * float(b) for a, b in zip(row, query, strict=True)) for row in vectors]
    return sorted(enumerate(scores), key=lambda pair: (-pair[1], pair[0]))[:k]


@pytest.mark.parametrize("engine", ENGINES)
def test_by_hand(tmp_path: Path, engine: str) -> None:
    index = opened(tmp_path, [[1, 0], [0, 1], [0.5, 0.5], [-1, 0]], engine=engine)
    first, second = index.search(np.array([[2, 1], [-1, 0.5]]), 3)
    assert first.rows.tolist() == [0, 2, 1]
    assert first.scores.tolist() == [2, 1.5, 1]
    assert second.rows.tolist() == [3, 1, 2]
    assert second.scores.tolist() == [1, 0.5, -0.25]
    assert (first.rows.dtype, first.scores.dtype) == (np.int64, np.float32)
    assert (len(index), index.width) == (4, 2)


def test_numpy_is_the_engine_on_a_cpu_and_leaves_the_vectors_on_disk(tmp_path: Path) -> None:
    index = opened(tmp_path, np.eye(3))
    assert isinstance(index, mips.ExactIndex)
    assert isinstance(index.vectors, np.memmap)
    assert [file.name for file in tmp_path.iterdir()] == [mips.VECTORS_FILE]


@pytest.mark.parametrize("engine", ["numpy", "torch"])
def test_ties_go_to_the_lower_row_within_and_across_chunks(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "CHUNK_ROWS", 4)
    vectors = np.zeros((11, 2))
    vectors[[1, 3, 4, 7, 8, 10], 0] = 1
    vectors[9, 0] = 2
    index = opened(tmp_path, vectors, engine=engine)
    for k in range(1, 13):
        (found,) = index.search(np.array([[1, 0]]), k)
        assert found.rows.tolist() == [9, 1, 3, 4, 7, 8, 10, 0, 2, 5, 6][:k]


@settings(max_examples=60, deadline=None)
@given(
    vectors=st_numpy.arrays(np.float16, st.tuples(st.integers(1, 30), st.just(3)), elements=st.integers(-2, 2)),
    queries=st_numpy.arrays(np.float32, st.tuples(st.integers(1, 4), st.just(3)), elements=st.integers(-2, 2)),
    k=st.integers(1, 35),
    chunk=st.integers(1, 31),
    engine=st.sampled_from(["numpy", "torch"]),
    gone=st.sets(st.integers(0, 29)),
)
def test_exact_search_is_sorting(
    vectors: np.ndarray, queries: np.ndarray, k: int, chunk: int, engine: str, gone: set[int]
) -> None:
    if engine == "torch":
        pytest.importorskip("torch")
    deleted = np.array(sorted(row for row in gone if row < len(vectors)), np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "CHUNK_ROWS", chunk)
        patch.setattr(exact, "_QUERIES", 2)
        found = mips.ExactIndex(vectors, deleted=deleted, engine=engine).search(queries, k)
    for ranking, query in zip(found, queries, strict=True):
        left = [pair for pair in by_sorting(vectors, query, len(vectors)) if pair[0] not in gone]
        assert list(zip(ranking.rows, ranking.scores, strict=True)) == left[:k]


@given(scores=st.lists(st.integers(0, 3), min_size=1, max_size=40), k=st.integers(1, 50))
def test_best_is_sorting(scores: list[int], k: int) -> None:
    rows = np.random.default_rng(0).permutation(len(scores))
    expected = sorted(zip(rows.tolist(), scores, strict=True), key=lambda pair: (-pair[1], pair[0]))[:k]
    found = select_best(rows, scores, k)
    assert list(zip(found.rows.tolist(), found.scores.tolist(), strict=True)) == expected


@pytest.mark.parametrize("kind", IndexKind)
@pytest.mark.parametrize("count", [1, 2, 3, 40, 300])
def test_every_kind_takes_a_small_corpus_and_gives_all_of_it(tmp_path: Path, kind: str, count: int) -> None:
    vectors = unit(count, 12)
    index = opened(tmp_path, vectors, kind)
    queries = vectors[[0, count // 2, count - 1]].astype(np.float32)
    for ranking, query in zip(index.search(queries, count + 5), queries, strict=True):
        assert sorted(ranking.rows.tolist()) == list(range(count))
        np.testing.assert_allclose(ranking.scores, vectors[ranking.rows].astype(np.float32) @ query, atol=off(kind))
        assert (np.diff(ranking.scores) <= 0).all()


@pytest.mark.parametrize("kind", IndexKind)
def test_every_kind_takes_an_empty_corpus_and_no_query(tmp_path: Path, kind: str) -> None:
    index = opened(tmp_path, np.empty((0, 8)), kind)
    assert len(index) == 0
    assert [len(ranking) for ranking in index.search(np.ones((2, 8)), 5)] == [0, 0]
    (tmp_path / "some").mkdir()
    assert opened(tmp_path / "some", unit(50, 8), kind).search(np.empty((0, 8)), 5) == []


@pytest.mark.parametrize("kind", APPROXIMATE)
@pytest.mark.parametrize("width", [7, 30])
def test_recall_at_20_with_the_settings_that_were_stored(tmp_path: Path, kind: str, width: int) -> None:
    vectors = unit(1500, width)
    index = opened(tmp_path, vectors, kind)
    rng = np.random.default_rng(5)
    queries = vectors[:100].astype(np.float32) + rng.normal(scale=0.7 / width**0.5, size=(100, width))
    truth = mips.ExactIndex(vectors).search(queries, 20)
    found = index.search(queries, 20)
    hits = [len(np.intersect1d(a.rows, b.rows)) for a, b in zip(found, truth, strict=True)]
    assert np.mean(hits) / 20 >= 0.95


@pytest.mark.parametrize("kind", [kind for kind in APPROXIMATE if kind != "hnsw"])
def test_parts_make_the_index_that_one_piece_makes(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss", reason="needs the extra 'cpu'")
    vectors = unit(1000, 8)
    queries = vectors[::10].astype(np.float32)
    found = []
    for size in (1000, 130):
        monkeypatch.setattr(faiss_build, "PART_ROWS", size)
        folder = tmp_path / str(size)
        folder.mkdir()
        tuned = mips.build(vectors, kind, folder)
        index = mips.open_index(folder, kind, effort=tuned and tuned.effort)
        found.append([ranking.rows.tolist() for ranking in index.search(queries, 10)])
        assert (folder / faiss_build.LISTS_FILE).exists() == (size == 130)
        assert not (folder / ".parts").exists()
    assert found[0] == found[1]
    lists = folder / faiss_build.LISTS_FILE
    lists.write_bytes(lists.read_bytes()[:-1])
    with pytest.raises(DamagedArtefact, match=r"faiss\.index is damaged: faiss\.lists is not whole"):
        mips.open_index(folder, kind)
    lists.unlink()
    with pytest.raises(DamagedArtefact, match=r"faiss\.lists is missing"):
        mips.open_index(folder, kind)


def test_parts_that_do_not_fit_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss", reason="needs the extra 'cpu'")
    monkeypatch.setattr(faiss_build, "PART_ROWS", 100)
    monkeypatch.setattr(faiss_build.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(BadInput, match=r"cannot write .*faiss\.lists: it needs 0\.0 GB, and 0\.0 are free"):
        mips.build(unit(300, 8), "ivf-flat", tmp_path)


def test_rows_in_8_bits_by_hand(tmp_path: Path) -> None:
    vectors = np.array([[127, -63.5, 1], [0, 0, 0], [0.5, 0.25, -0.5]], np.float16)
    write_codes(vectors, tmp_path)
    assert np.load(tmp_path / "codes.npy").tolist() == [[127, -64, 1], [0, 0, 0], [127, 64, -127]]
    coded = open_built_vectors(tmp_path)
    assert coded.shape == (3, 3)
    np.testing.assert_allclose(coded[np.array([2, 0])], [[0.5, 64 * 0.5 / 127, -0.5], [127, -64, 1]], rtol=1e-6)
    np.testing.assert_array_equal(coded[1:3], coded[np.array([1, 2])])


def test_codes_that_lie_on_disk_are_fetched_and_scored_as_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = unit(3000, 48)
    write_codes(vectors, tmp_path)
    query, rows = vectors[7].astype(np.float32), np.array([2999, 0, 7, 1500])
    expected = rough_scores(open_built_vectors(tmp_path), rows, query)
    monkeypatch.setattr(arrays, "_LARGE_BYTES", 0)
    np.testing.assert_array_equal(rough_scores(open_built_vectors(tmp_path), rows, query), expected)
    np.testing.assert_allclose(expected, vectors[rows].astype(np.float32) @ query, atol=0.01)


@settings(deadline=None)
@given(st_numpy.arrays(np.float16, st.tuples(st.integers(1, 9), st.just(5)), elements=st.floats(-4, 4, width=16)))
def test_8_bits_of_8_bits_are_the_same(vectors: np.ndarray) -> None:
    with TemporaryDirectory() as folder:
        codes = []
        for _ in range(2):
            write_codes(vectors, Path(folder))
            codes.append(np.load(Path(folder) / "codes.npy"))
            vectors = np.array(open_built_vectors(Path(folder))[:])
    np.testing.assert_array_equal(*codes)
    assert np.abs(codes[0]).max() <= 127


@pytest.mark.parametrize("kind", ["ivf-flat", "ivf-rabitq"])
def test_lists_are_fetched_ahead_until_all_were_read(tmp_path: Path, kind: str) -> None:
    vectors = unit(2000, 16)
    index = opened(tmp_path, vectors, kind)
    assert isinstance(index, FaissIndex)
    lists, queries = find_disk_lists(index._index), vectors[:64].astype(np.float32)
    before = index.search(queries, 5)
    assert lists.prefetch_nthread > 0
    for _ in range(4 * index.lists // index.effort.reach):
        index.search(queries[:1], 5)
    again = index.search(queries, 5)
    assert lists.prefetch_nthread == 0
    assert [one.rows.tolist() for one in again] == [one.rows.tolist() for one in before]


def test_rows_are_scored_in_parts_as_in_one(tmp_path: Path) -> None:
    """More than fit into the memory that a thread keeps, in any order, from several threads."""
    vectors = unit(3000, 16)
    write_codes(vectors, tmp_path)
    coded, rng = open_built_vectors(tmp_path), np.random.default_rng(0)
    asked = [rng.integers(3000, size=size) for size in (0, 1, 511, 512, 513, 1600)] * 4
    query = vectors[7].astype(np.float32)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda rows: rough_scores(coded, rows, query), asked))
    for rows, scores in zip(asked, found, strict=True):
        np.testing.assert_allclose(scores, coded[rows] @ query, atol=1e-5)


def test_codes_of_another_index(tmp_path: Path) -> None:
    write_codes(unit(5, 4), tmp_path)
    np.save(tmp_path / "scales.npy", np.ones(4, np.float32))
    with pytest.raises(DamagedArtefact, match="do not belong together"):
        open_built_vectors(tmp_path)


@pytest.mark.parametrize("kind", APPROXIMATE)
def test_tuning_finds_the_least_effort_for_the_wanted_recall(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("faiss", reason="needs the extra 'cpu'")
    vectors = unit(6000, 16)
    rng = np.random.default_rng(3)
    queries = (vectors[:200] + rng.normal(scale=0.2, size=(200, 16))).astype(np.float32)
    some = mips.build(vectors, kind, tmp_path, recall=0.8, queries=queries)
    more = mips.tune_index(vectors, kind, tmp_path, recall=0.97, queries=queries)
    assert some is not None and (some.queries, some.made_up, some.wanted) == (200, False, 0.8)
    assert some.recall >= 0.8 and more.recall >= 0.97
    cheap, dear = (tuning.estimate_cost(kind, found.effort, 6000, 6000 // 39) for found in (some, more))
    assert cheap < dear or (kind in ("hnsw", "sq8") and cheap == dear)
    truth = mips.ExactIndex(vectors).search(queries, 20)
    index = mips.open_index(tmp_path, kind, effort=more.effort)
    hits = [len(np.intersect1d(a.rows, b.rows)) for a, b in zip(index.search(queries, 20), truth, strict=True)]
    assert np.mean(hits) / 20 == pytest.approx(more.recall, abs=1e-3)


@pytest.mark.thorough
def test_a_recall_out_of_reach_is_said(tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="needs the extra 'cpu'")
    rng = np.random.default_rng(0)
    found = mips.build(rng.standard_normal((3000, 16)).astype(np.float16), "ivf-rabitq", tmp_path, recall=1.0)
    assert found is not None and found.made_up and not found.sure and 0.9 < found.recall < 1


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_few_questions_prove_nothing(tmp_path: Path, count: int) -> None:
    pytest.importorskip("faiss", reason="needs the extra 'cpu'")
    vectors = unit(3000, 16)
    found = mips.build(vectors, "ivf-flat", tmp_path, queries=vectors[:count].astype(np.float32))
    assert found is not None and not found.sure
    assert found.recall == 1 and found.queries == count


def test_thousands_of_files_of_vectors_are_not_open_at_once(tmp_path: Path) -> None:
    vectors = unit(600, 4)
    for first in range(0, 600, 2):
        np.save(tmp_path / f"{first:05d}.npy", vectors[first : first + 2])
    many = StackedVectors([VectorsOnDisk(file) for file in sorted(tmp_path.glob("*.npy"))])
    mapped = Path("/proc/self/maps")
    held = [path for path in Path("/proc/self/fd").iterdir() if str(tmp_path) in os.path.realpath(path)]
    assert held == [] and str(tmp_path) not in mapped.read_text()
    np.testing.assert_array_equal(many[:], vectors)
    np.testing.assert_array_equal(many[np.array([599, 0, 301])], vectors[[599, 0, 301]])


def test_made_up_queries_are_as_far_off_as_questions() -> None:
    vectors = unit(3000, 64)
    queries = tuning.make_queries(vectors)
    assert queries.shape == (tuning.SYNTHETIC_QUERIES, 64)
    best = (queries @ vectors.astype(np.float32).T).max(axis=1)
    assert 0.4 < np.median(best) < 0.7
    same = tuning.make_queries(np.tile(vectors[:1], (10, 1)))
    np.testing.assert_allclose(same, np.tile(0.45 * vectors[:1], (len(same), 1)), atol=1e-3)


@pytest.mark.parametrize("kind", IndexKind)
def test_threads_share_an_index(tmp_path: Path, kind: str) -> None:
    vectors = unit(500, 16)
    index = opened(tmp_path, vectors, kind)
    queries = vectors.astype(np.float32)
    alone = [index.search(queries[i : i + 1], 5)[0].rows.tolist() for i in range(40)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda i: index.search(queries[i : i + 1], 5)[0].rows.tolist(), range(40)))
    assert together == alone


@pytest.mark.parametrize(("kind", "engine"), [(kind, "auto") for kind in IndexKind] + [("flat", e) for e in ENGINES])
def test_what_cannot_be_searched_for(tmp_path: Path, kind: str, engine: str) -> None:
    index = opened(tmp_path, unit(50, 4), kind, engine)
    with pytest.raises(BadInput, match="k = 0: at least one"):
        index.search(np.ones((1, 4)), 0)
    with pytest.raises(Mismatch, match="width 4"):
        index.search(np.ones((1, 5)), 1)
    for bad in (np.nan, np.inf):
        with pytest.raises(BadInput, match="question 1 is not finite"):
            index.search(np.array([[1, 1, 1, 1], [0, bad, 0, 0]]), 1)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("engine", ["numpy", "torch"])
def test_a_vector_that_is_not_finite_is_named_when_searching(tmp_path: Path, bad: float, engine: str) -> None:
    vectors = unit(50, 4)
    index = opened(tmp_path, vectors, engine=engine)
    vectors[37, 2] = bad
    with pytest.raises(DamagedArtefact, match="passage 37 is not finite"):
        mips.ExactIndex(vectors, engine=engine).search(np.ones((3, 4)), 2)
    assert len(index.search(np.ones((3, 4)), 2)) == 3


@pytest.mark.parametrize("kind", IndexKind)
def test_a_vector_that_is_not_finite_is_named_when_building(tmp_path: Path, kind: str) -> None:
    vectors = unit(50, 4)
    vectors[37, 2] = np.nan
    with pytest.raises(DamagedArtefact, match="passage 37 is not finite"):
        opened(tmp_path, vectors, kind)


def test_a_vector_file_that_is_not_whole(tmp_path: Path) -> None:
    file = tmp_path / mips.VECTORS_FILE
    with pytest.raises(DamagedArtefact, match=r"vectors\.npy is missing"):
        mips.open_index(tmp_path, "flat")
    np.save(file, unit(50, 4))
    whole = file.read_bytes()
    for bad in (whole[:-8], whole[:20], b"", b"x" * 500):
        file.write_bytes(bad)
        with pytest.raises(DamagedArtefact, match=r"vectors\.npy is damaged"):
            mips.open_index(tmp_path, "flat")
    file.write_bytes(whole + b"12345678")
    with pytest.raises(DamagedArtefact, match="8 bytes longer"):
        mips.open_index(tmp_path, "flat")
    for wrong in (unit(50, 4).astype(np.float32), unit(50, 4)[0]):
        np.save(file, wrong)
        with pytest.raises(DamagedArtefact, match="instead of rows of float16"):
            mips.open_index(tmp_path, "flat")


@pytest.mark.parametrize("kind", APPROXIMATE)
def test_a_faiss_file_that_is_not_whole_or_of_other_vectors(tmp_path: Path, kind: str) -> None:
    opened(tmp_path, unit(60, 4), kind)
    file = tmp_path / faiss_search.INDEX_FILE
    mips.write_rows(unit(59, 4), kind, tmp_path)
    with pytest.raises(DamagedArtefact, match="holds 60 vectors of width 4 instead of 59"):
        mips.open_index(tmp_path, kind)
    mips.write_rows(unit(60, 4), kind, tmp_path)
    file.write_bytes(b"no index" * 10)
    with pytest.raises(DamagedArtefact, match=r"faiss\.index is damaged"):
        mips.open_index(tmp_path, kind)
    file.unlink()
    with pytest.raises(DamagedArtefact, match=r"faiss\.index is missing"):
        mips.open_index(tmp_path, kind)


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / mips.VECTORS_FILE, unit(10, 4))
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"^an index of kind hnsw needs the extra 'cpu'"):
        mips.build(unit(10, 4), "hnsw", tmp_path)
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


def test_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    np.save(tmp_path / mips.VECTORS_FILE, unit(10, 4))
    with pytest.raises(BadInput, match=r"sees no GPU here.*extra 'gpu'"):
        mips.open_index(tmp_path, "flat", device="cuda")


def test_choices_that_do_not_exist(tmp_path: Path) -> None:
    np.save(tmp_path / mips.VECTORS_FILE, unit(10, 4))
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
            mips.build(unit(10, 4), kind, tmp_path, device="cuda")


class Proposals:
    """In place of a FAISS index: proposes the first rows, ``most`` of them."""

    def __init__(self, most: int) -> None:
        self.most, self.asked = most, 0

    def search(self, queries: np.ndarray, k: int, params: None = None) -> tuple[np.ndarray, np.ndarray]:
        self.asked = k
        rows = np.where(np.arange(k) < self.most, np.arange(k), -1)
        return np.zeros((len(queries), k)), np.tile(rows, (len(queries), 1))


def test_faiss_on_a_gpu_refuses_more_than_it_returns() -> None:
    vectors, gpu = unit(3000, 4), Proposals(3000)
    index = faiss_search.FaissIndex(gpu, vectors, on_gpu=True)
    with pytest.raises(BadInput, match="k = 2049: FAISS on a GPU returns at most 2048"):
        index.search(np.ones((1, 4)), 2049)
    assert len(index.search(np.ones((1, 4)), 2048)[0]) == 2048
    assert gpu.asked == 2048


def test_where_faiss_comes_upon_too_few_all_vectors_are_searched() -> None:
    vectors = unit(50, 4)
    index = faiss_search.FaissIndex(Proposals(7), vectors, effort=mips.Effort(factor=1))
    (few,) = index.search(vectors[:1], 7)
    assert sorted(few.rows.tolist()) == list(range(7))
    (found,) = index.search(vectors[:1], 8)
    (truth,) = mips.ExactIndex(vectors).search(vectors[:1], 8)
    assert found.rows.tolist() == truth.rows.tolist()


def test_a_graph_is_walked_as_far_as_k(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = unit(1000, 12)
    index = opened(tmp_path, vectors, "hnsw")
    monkeypatch.setattr(faiss_search, "ExactIndex", None)
    assert len(index.search(vectors[:1].astype(np.float32), 900)[0]) == 900


# Rows that updates deleted, and files that they added


@pytest.mark.parametrize(("kind", "engine"), SEARCHES)
def test_deleted_rows_are_passed_over_and_added_ones_found(
    tmp_path: Path, kind: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deletions at every border: of chunks, of files, between what FAISS holds and what was added since."""
    for module in (exact, arrays):
        monkeypatch.setattr(module, "CHUNK_ROWS", 50)
    vectors = unit(200, 12)
    parts = vectors[:155], vectors[155:156], vectors[156:180], vectors[180:]
    deleted = [0, 49, 50, 99, 100, 101, 154, 155, 156, 179, 180, 199, *range(110, 120)]
    index = opened(tmp_path, parts[0], kind, engine, added=parts[1:], deleted=deleted)
    assert len(index) == 200
    count = 200 - len(deleted)
    queries = vectors[[0, 50, 115, 155, 199, 1, 157, 198]].astype(np.float32)
    truth = [[row for row, _ in by_sorting(vectors, query, 200) if row not in deleted] for query in queries]
    for k in (1, 20, count - 1, count, count + 1, 10_000):
        hits = 0
        for ranking, query, best_first in zip(index.search(queries, k), queries, truth, strict=True):
            assert len(ranking) == min(k, count)
            assert not set(ranking.rows.tolist()) & set(deleted)
            assert (np.diff(ranking.scores) <= 0).all()
            np.testing.assert_allclose(ranking.scores, vectors[ranking.rows].astype(np.float32) @ query, atol=off(kind))
            hits += len(set(ranking.rows.tolist()) & set(best_first[:k]))
            if kind == "flat" or (k >= count and not off(kind) > 1e-6):
                assert ranking.rows.tolist() == best_first[:k]
        assert hits >= 0.95 * len(queries) * min(k, count)


@pytest.mark.parametrize(("kind", "engine"), SEARCHES)
@pytest.mark.parametrize("left", [[0], [39], [40], [44], [45], [59], []], ids=str)
def test_all_rows_deleted_but_one_or_none(tmp_path: Path, kind: str, engine: str, left: list[int]) -> None:
    vectors = unit(60, 8)
    deleted = [row for row in range(60) if row not in left]
    index = opened(tmp_path, vectors[:40], kind, engine, added=[vectors[40:45], vectors[45:]], deleted=deleted)
    for k in (1, 2, 60, 100):
        assert [ranking.rows.tolist() for ranking in index.search(vectors[[0, 30, 59]], k)] == [left] * 3


@pytest.mark.parametrize(("kind", "engine"), SEARCHES)
def test_deleted_rows_among_equals(tmp_path: Path, kind: str, engine: str) -> None:
    vectors = np.tile(unit(1, 8), (90, 1))
    deleted = [0, 1, 2, 40, 59, 60, 61, 89]
    index = opened(tmp_path, vectors[:60], kind, engine, added=[vectors[60:]], deleted=deleted)
    kept = [row for row in range(90) if row not in deleted]
    for k in (1, 5, 57, 82, 90):
        (found,) = index.search(vectors[:1], k)
        assert len(found) == min(k, 82) and set(found.rows.tolist()) <= set(kept)
        assert found.rows.tolist() == sorted(found.rows.tolist())
        if engine in ("numpy", "torch") or k >= 82:  # which of equal rows make the cut is FAISS's choice
            assert found.rows.tolist() == kept[:k]


def test_a_gpu_that_passes_nothing_over_is_asked_for_more() -> None:
    vectors, gpu = unit(60, 4), Proposals(60)
    index = faiss_search.FaissIndex(gpu, vectors, effort=mips.Effort(factor=1), deleted=np.arange(0, 20), on_gpu=True)
    (found,) = index.search(vectors[:1], 40)
    assert sorted(found.rows.tolist()) == list(range(20, 60))
    assert gpu.asked == 60


@given(data=st.data())
def test_stacked_files_are_one_array(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=6))
    whole = np.arange(2 * sum(lengths), dtype=np.float16).reshape(-1, 2)
    stacked = StackedVectors(np.split(whole, np.cumsum(lengths)[:-1]))
    assert stacked.shape == whole.shape and len(stacked) == len(whole)
    place = st.none() | st.integers(-len(whole) - 2, len(whole) + 2)
    rows = slice(data.draw(place), data.draw(place))
    np.testing.assert_array_equal(stacked[rows], whole[rows])
    assert stacked[rows].dtype == np.float16 and stacked[rows].shape == whole[rows].shape
    if len(whole):
        some = np.array(data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=12)), np.int64)
        np.testing.assert_array_equal(stacked[some], whole[some])


def test_a_slice_of_one_file_stays_on_disk(tmp_path: Path) -> None:
    index = opened(tmp_path, unit(9, 4), added=[unit(3, 4, 1), unit(2, 4, 2)])
    assert index.vectors is not None and isinstance(index.vectors[9:12], np.memmap)


def test_added_files_that_are_not_whole_or_do_not_fit(tmp_path: Path) -> None:
    opened(tmp_path, unit(9, 4))
    file = tmp_path / ADDED_FILE.format(1)
    file.write_bytes(b"x" * 50)
    with pytest.raises(DamagedArtefact, match=r"added-000001\.npy is damaged"):
        mips.open_index(tmp_path, "flat")
    np.save(file, unit(3, 5))
    with pytest.raises(DamagedArtefact, match="not equally wide"):
        mips.open_index(tmp_path, "flat")
    broken = unit(3, 4)
    broken[1, 1] = np.nan
    np.save(file, broken)
    with pytest.raises(DamagedArtefact, match="passage 10 is not finite"):
        mips.open_index(tmp_path, "flat").search(np.ones((1, 4)), 2)


class Words:
    """An encoder without a model: a text's vector is the sum of random vectors of its words."""

    width = 64
    fingerprint = "words"

    def encode(self, texts: list[str]) -> np.ndarray:
        sums = [sum(self._word(word) for word in text.lower().split()) for text in texts]
        return np.stack([v / np.linalg.norm(v) for v in sums]).astype(np.float32)

    encode_questions = encode

    def _word(self, word: str) -> np.ndarray:
        return np.random.default_rng(list(word.encode())).standard_normal(self.width)


class Shelf:
    """Passages in a list."""

    def __init__(self, texts: list[str]) -> None:
        self.passages = [Passage(i, f"d{i}", "", text, "file", 0, len(text)) for i, text in enumerate(texts)]

    def __len__(self) -> int:
        return len(self.passages)

    def get(self, rows: list[int]) -> list[Passage]:
        return [self.passages[row] for row in rows]


def test_dense_retrieval_from_questions_to_hits(tmp_path: Path) -> None:
    texts = ["the cat sat", "a dog barked", "rain fell on the sea"]
    encoder = Words()
    ranker = DenseRanker(encoder, opened(tmp_path, encoder.encode(texts)))
    retriever = PassageRetriever(ranker, Shelf(texts))
    found = retriever.search(["sea rain", "dog"], 2)
    assert [next(hit.passage.text for hit in hits) for hits in found] == [texts[2], texts[1]]
    assert all(len(hits) == 2 and hits[0].score > hits[1].score for hits in found)
    assert isinstance(found[0][0].score, float)
    expected = encoder.encode(["dog"])[0] @ encoder.encode([texts[1]])[0]
    assert found[1][0].score == pytest.approx(expected, abs=1e-3)
    assert retriever.search([], 2) == []
    with pytest.raises(BadInput, match="k = 0"):
        retriever.search(["dog"], 0)


def test_dense_scores_of_given_rows_are_those_of_the_search(tmp_path: Path) -> None:
    encoder = Words()
    ranker = DenseRanker(encoder, opened(tmp_path, encoder.encode(["one", "two", "three", "four five"])))
    (query,) = ranker.encode(["five three"])
    (ranking,) = ranker.search(query[None], 4)
    assert isinstance(ranking, Ranking)
    np.testing.assert_array_equal(ranker.score(query, ranking.rows), ranking.scores)


def test_an_encoder_of_another_width_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(Mismatch, match="64 wide, those of the index 4"):
        DenseRanker(Words(), opened(tmp_path, unit(5, 4)))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["flat", "ivf-flat", "ivf-pq"])
@pytest.mark.parametrize("engine", ["torch", "faiss"])
def test_a_gpu_finds_what_a_cpu_finds(tmp_path: Path, kind: str, engine: str) -> None:
    if kind != "flat" and engine == "torch":
        pytest.skip("torch searches kind flat only")
    vectors = unit(20_000, 64)
    np.save(tmp_path / mips.VECTORS_FILE, vectors)
    mips.build(vectors, kind, tmp_path, device="cuda")
    found = mips.open_index(tmp_path, kind, device="cuda", engine=engine).search(vectors[:200], 20)
    truth = mips.ExactIndex(vectors).search(vectors[:200], 20)
    hits = [len(np.intersect1d(a.rows, b.rows)) for a, b in zip(found, truth, strict=True)]
    assert np.mean(hits) / 20 >= (0.999 if kind == "flat" else 0.95)
