"""Vectors stored in 8 bits, and scores computed from them."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from ragqa.errors import DamagedArtefact
from ragqa.retrieval.vectors import arrays
from ragqa.retrieval.vectors.scores import rough_scores
from ragqa.retrieval.vectors.store import open_built_vectors, write_codes
from tests.helpers.vectors import make_unit_vectors


def test_8_bit_codes_match_a_computation_by_hand(tmp_path: Path) -> None:
    vectors = np.array([[127, -63.5, 1], [0, 0, 0], [0.5, 0.25, -0.5]], np.float16)
    write_codes(vectors, tmp_path)
    assert np.load(tmp_path / "codes.npy").tolist() == [[127, -64, 1], [0, 0, 0], [127, 64, -127]]
    coded = open_built_vectors(tmp_path)
    assert coded.shape == (3, 3)
    np.testing.assert_allclose(coded[np.array([2, 0])], [[0.5, 64 * 0.5 / 127, -0.5], [127, -64, 1]], rtol=1e-6)
    np.testing.assert_array_equal(coded[1:3], coded[np.array([1, 2])])


@given(st_numpy.arrays(np.float16, st.tuples(st.integers(1, 9), st.just(5)), elements=st.floats(-4, 4, width=16)))
def test_encoding_decoded_codes_gives_the_same_codes(vectors: np.ndarray) -> None:
    with TemporaryDirectory() as folder:
        codes = []
        for _ in range(2):
            write_codes(vectors, Path(folder))
            codes.append(np.load(Path(folder) / "codes.npy"))
            vectors = np.array(open_built_vectors(Path(folder))[:])
    np.testing.assert_array_equal(*codes)
    assert np.abs(codes[0]).max() <= 127


def test_codes_with_the_scales_of_another_index_are_refused(tmp_path: Path) -> None:
    write_codes(make_unit_vectors(5, 4), tmp_path)
    np.save(tmp_path / "scales.npy", np.ones(4, np.float32))
    with pytest.raises(DamagedArtefact, match="do not belong together"):
        open_built_vectors(tmp_path)


def test_codes_read_from_disk_score_as_codes_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = make_unit_vectors(3000, 48)
    write_codes(vectors, tmp_path)
    query, rows = vectors[7].astype(np.float32), np.array([2999, 0, 7, 1500])
    expected = rough_scores(open_built_vectors(tmp_path), rows, query)
    monkeypatch.setattr(arrays, "_LARGE_BYTES", 0)
    np.testing.assert_array_equal(rough_scores(open_built_vectors(tmp_path), rows, query), expected)
    np.testing.assert_allclose(expected, vectors[rows].astype(np.float32) @ query, atol=0.01)


def test_scores_do_not_depend_on_the_number_of_rows_or_threads(tmp_path: Path) -> None:
    """Some requests exceed the buffer of a thread, rows come in any order, and threads run at once."""
    vectors = make_unit_vectors(3000, 16)
    write_codes(vectors, tmp_path)
    coded, rng = open_built_vectors(tmp_path), np.random.default_rng(0)
    requests = [rng.integers(3000, size=size) for size in (0, 1, 511, 512, 513, 1600)] * 4
    query = vectors[7].astype(np.float32)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda rows: rough_scores(coded, rows, query), requests))
    for rows, scores in zip(requests, found, strict=True):
        np.testing.assert_allclose(scores, coded[rows] @ query, atol=1e-5)
