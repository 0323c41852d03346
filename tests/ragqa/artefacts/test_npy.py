"""Arrays of NumPy files: a hostile header costs neither memory nor time."""

import time
from pathlib import Path

import numpy as np
import pytest

from ragqa.artefacts import npy


def write_header(file: Path, count: int, kind: str) -> None:
    with file.open("wb") as stream:
        header = {"descr": kind, "fortran_order": False, "shape": (count,)}
        np.lib.format.write_array_header_1_0(stream, header)


@pytest.mark.parametrize("is_mapped", [True, False])
def test_an_array_is_what_was_saved(tmp_path: Path, is_mapped: bool) -> None:
    for array in (np.arange(6, dtype=np.int64), np.empty(0, np.int64), np.ones((2, 3), np.float16)):
        np.save(tmp_path / "a.npy", array)
        loaded = npy.load_array(tmp_path / "a.npy", is_mapped=is_mapped)
        assert loaded.dtype == array.dtype and np.array_equal(loaded, array)
        assert isinstance(loaded, np.memmap) == is_mapped


@pytest.mark.parametrize("kind", ["<i8", "|V0", "|O"])
def test_a_header_that_says_more_than_the_file_holds_is_an_error_at_once(tmp_path: Path, kind: str) -> None:
    write_header(tmp_path / "a.npy", 1 << 50, kind)
    start = time.process_time()
    with pytest.raises(ValueError, match=r"file size|no size|Python objects"):
        npy.load_array(tmp_path / "a.npy")
    assert time.process_time() - start < 1


def test_an_archive_of_arrays_is_an_error(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", rows=np.arange(3))
    with pytest.raises(ValueError, match="magic string"):
        npy.load_array((tmp_path / "a.npz").rename(tmp_path / "a.npy"))
