"""Files of passage vectors; row i is the vector of passage i.

    vectors.npy         vectors, float16 [N, D]
    codes.npy           instead of vectors.npy for kinds with 8-bit vectors: codes, int8 [N, D]
    scales.npy          with codes.npy: scale of each row, float32 [N]; a vector is its code times its scale
    added-000001.npy …  vectors that updates added, float16, one file for each update
    faiss.index         FAISS's index of the first N rows, for kinds other than flat (see ``faiss_build``)
    faiss.lists         the codes of that index, if it was merged from parts

Legend: N passages at the build, D width.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ragqa.artefacts import npy
from ragqa.errors import DamagedArtefact
from ragqa.retrieval.vectors.arrays import CodedVectors, StackedVectors, Vectors, iter_chunks

VECTORS_FILE = "vectors.npy"
ADDED_FILE = "added-{:06d}.npy"
"""Name of a file of added vectors; the files are numbered from 1."""
CODES_FILE, SCALES_FILE = "codes.npy", "scales.npy"


class VectorsOnDisk:
    """Float16 vectors of a file, which is opened for each read: thousands cannot stay mapped."""

    def __init__(self, file: Path) -> None:
        """Check the file.

        Raises:
            DamagedArtefact: the file is missing or damaged, or does not contain float16 vectors.
        """
        self._file, self.shape = file, open_file(file).shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any, /) -> npt.NDArray[np.floating]:
        return np.array(open_file(self._file)[rows])


def write_codes(vectors_ND: Vectors, folder: Path) -> None:
    """Write vectors in 8 bits; the codes of ``CodedVectors`` stay the same.

    Args:
        vectors_ND: vectors to write.
        folder: directory for ``codes.npy`` and ``scales.npy``.

    Raises:
        DamagedArtefact: a vector is not finite.
    """
    count, width = vectors_ND.shape
    with (folder / CODES_FILE).open("wb") as codes, (folder / SCALES_FILE).open("wb") as scales:
        _write_header(codes, "|i1", (count, width))
        _write_header(scales, "<f4", (count,))
        for chunk, _ in iter_chunks(vectors_ND):
            scale = np.abs(chunk).max(axis=1, initial=0) / 127
            scale[scale == 0] = 1
            codes.write(np.rint(chunk / scale[:, None]).astype("i1").tobytes())
            scales.write(scale.astype("<f4").tobytes())


def write_vectors(vectors_ND: Vectors, file: Path) -> None:
    """Write vectors to a file in float16.

    Raises:
        DamagedArtefact: a vector is not finite.
    """
    with file.open("wb") as out:  # not through a memory map: on a full disk, a map kills the process
        _write_header(out, "<f2", (len(vectors_ND), int(vectors_ND.shape[1])))
        for chunk, _ in iter_chunks(vectors_ND):
            out.write(chunk.astype("<f2").tobytes())


def _write_header(file: Any, dtype: str, shape: tuple[int, ...]) -> None:
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})


def open_vectors(folder: Path) -> Vectors:
    """Open all vectors of an index, including added vectors.

    Raises:
        DamagedArtefact: a file is missing or damaged.
    """
    built, added = open_built_vectors(folder), open_added_vectors(folder)
    return StackedVectors([built, added]) if added else built


def open_added_vectors(folder: Path) -> StackedVectors | None:
    """Open the vectors that updates added; return None if there are none.

    Raises:
        DamagedArtefact: a file is damaged.
    """
    files = sorted(folder.glob("added-*.npy"))
    return StackedVectors([open_file(file) for file in files]) if files else None


def open_built_vectors(folder: Path) -> Vectors:
    """Open the vectors [N, D] from which the index was built.

    Raises:
        DamagedArtefact: a file is missing or damaged.
    """
    if not (folder / CODES_FILE).exists():
        return open_file(folder / VECTORS_FILE)
    codes, scale = (_map_array(folder / name) for name in (CODES_FILE, SCALES_FILE))
    if codes.dtype != np.int8 or codes.ndim != 2 or scale.dtype != np.float32 or scale.shape != codes.shape[:1]:
        raise DamagedArtefact(f"{folder / CODES_FILE} and {SCALES_FILE} do not belong together: make the index again")
    return CodedVectors(codes, np.array(scale))


def open_file(file: Path) -> npt.NDArray[np.float16]:
    """Open the float16 vectors of one file by memory mapping.

    Raises:
        DamagedArtefact: the file is missing or damaged, or does not contain float16 vectors.
    """
    vectors = _map_array(file)
    if vectors.dtype != np.float16 or vectors.ndim != 2:
        raise DamagedArtefact(
            f"{file} holds {vectors.dtype} {vectors.shape} instead of rows of float16: make the index again"
        )
    return vectors


def _map_array(file: Path) -> npt.NDArray[Any]:
    try:
        array: np.memmap = npy.load_array(file, is_mapped=True)
    except FileNotFoundError as error:
        raise DamagedArtefact(f"{file} is missing: make the index again") from error
    except (ValueError, EOFError) as error:
        raise DamagedArtefact(f"{file} is damaged: {error}; make the index again") from error
    surplus = file.stat().st_size - array.offset - array.nbytes
    if surplus:
        raise DamagedArtefact(f"{file} is {surplus} bytes longer than its vectors: make the index again")
    return array
