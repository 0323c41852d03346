"""Several files of vectors read as one array."""

import os
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ragqa.retrieval.vectors.arrays import StackedVectors
from ragqa.retrieval.vectors.store import VectorsOnDisk
from tests.helpers.vectors import (
    make_unit_vectors,
    open_vectors,
)


@given(data=st.data())
def test_stacked_files_index_like_one_array(data: st.DataObject) -> None:
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
    index = open_vectors(
        tmp_path, make_unit_vectors(9, 4), added=[make_unit_vectors(3, 4, 1), make_unit_vectors(2, 4, 2)]
    )
    assert index.vectors is not None and isinstance(index.vectors[9:12], np.memmap)


def test_thousands_of_files_of_vectors_are_not_open_at_once(tmp_path: Path) -> None:
    vectors = make_unit_vectors(600, 4)
    for first in range(0, 600, 2):
        np.save(tmp_path / f"{first:05d}.npy", vectors[first : first + 2])
    many = StackedVectors([VectorsOnDisk(file) for file in sorted(tmp_path.glob("*.npy"))])
    mapped = Path("/proc/self/maps")
    held = [path for path in Path("/proc/self/fd").iterdir() if str(tmp_path) in os.path.realpath(path)]
    assert held == [] and str(tmp_path) not in mapped.read_text()
    np.testing.assert_array_equal(many[:], vectors)
    np.testing.assert_array_equal(many[np.array([599, 0, 301])], vectors[[599, 0, 301]])
