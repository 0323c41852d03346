"""The files of passage vectors, and the scores that are computed from them.

Shapes: N passages, B questions, K rows, D width.
"""

import mmap
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ragqa.artefacts import npy
from ragqa.errors import BadInput, DamagedArtefact, Mismatch
from ragqa.retrieval.base import Scores

VECTORS = "vectors.npy"
"""Float16 [N, D], row i of it is passage i."""
ADDED = "added-{:06d}.npy"
"""Rows that an update added, one file an update, numbered from 1; they follow those before them."""
CODES, SCALES = "codes.npy", "scales.npy"
"""In place of ``VECTORS``: int8 [N, D], and float32 [N], what the largest value of a row is 127 of."""
CHUNK = 16_384
"""Rows that are widened to float32 at a time: 25 MB at a width of 384."""

Queries = npt.NDArray[np.float32]
Deleted = npt.NDArray[np.int64]
"""Rows, sorted, that no search returns."""
NONE: Deleted = np.empty(0, np.int64)


_RESIDENT = 1 << 19
"""Rows that are read here and there before their pages are given back: 2 GB, some 600 questions."""
_LARGE = 4 << 30
"""Bytes of codes, from which on they are taken to lie on disk and not in the system's cache."""
_TOGETHER = 512
"""Rows that are scored at a time: they stay in a core's cache."""
_GATHERED = 4096
"""Rows that are gathered at a time: with what the system maps around each, up to 256 MB."""


class Vectors(Protocol):
    """Rows [N, D]: an array of float16, the arrays of several files one after the other, or bytes with scales."""

    @property
    def shape(self) -> tuple[int, ...]:
        """N, D."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> npt.NDArray[np.floating]:
        """The rows of a slice without a step, or of an array of row numbers; float16, or float32 where computed."""
        ...


class Stacked:
    """The rows of several arrays [N_i, D], one after the other; nothing is copied but what is asked for."""

    def __init__(self, parts: Sequence[Vectors]) -> None:
        """Raises DamagedArtefact where they are not equally wide."""
        if len({part.shape[1] for part in parts}) != 1:
            raise DamagedArtefact("the files of vectors are not equally wide: make the index again")
        self._parts = parts
        self._first = np.cumsum([0, *map(len, parts)])
        self.shape = (int(self._first[-1]), int(parts[0].shape[1]))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any, /) -> npt.NDArray[np.floating]:
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self))
            pieces = [self._parts[n][max(0, start - at) : stop - at] for n, at in self._between(start, stop)]
            pieces = pieces or [self._parts[0][:0]]
            return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        rows = np.asarray(rows)
        pieces, places = [], []
        part_of = np.searchsorted(self._first, rows, side="right") - 1
        for number in np.unique(part_of):
            inside = np.flatnonzero(part_of == number)
            pieces.append(self._parts[number][rows[inside] - self._first[number]])
            places.append(inside)
        if not pieces:
            return self._parts[0][:0]
        found = np.empty((len(rows), self.shape[1]), np.result_type(*pieces))
        for inside, piece in zip(places, pieces, strict=True):
            found[inside] = piece
        return found

    def _between(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Numbers of the parts that hold some of these rows, and the row that is the first of each."""
        number = int(np.searchsorted(self._first, start, side="right")) - 1
        while start < stop:
            end = int(self._first[number + 1])
            if start < end:
                yield number, int(self._first[number])
                start = end
            number += 1

    def forget(self) -> None:
        """See ``forget``."""
        for part in self._parts:
            forget(part)


class OnDisk:
    """The rows of one file, which is open only while it is read: thousands of mapped ones would be too many."""

    def __init__(self, file: Path) -> None:
        """Raises as ``open_vectors`` does."""
        self._file, self.shape = file, open_vectors(file).shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any, /) -> npt.NDArray[np.floating]:
        return np.array(open_vectors(self._file)[rows])


class Chosen:
    """Some rows of other vectors, in an order of their own."""

    def __init__(self, vectors_ND: Vectors, rows: npt.NDArray[np.int64]) -> None:
        self._vectors, self._rows = vectors_ND, rows
        self.shape = (len(rows), int(vectors_ND.shape[1]))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Any, /) -> npt.NDArray[np.floating]:
        return self._vectors[self._rows[rows]]

    def forget(self) -> None:
        """See ``forget``."""
        forget(self._vectors)


class Coded:
    """Vectors in 8 bits on disk, a scale a row: half the bytes of float16 for 0.006 of recall@20.

    What is read of them does not stay in the process's memory, though in the system's where that has room.
    """

    def __init__(self, codes_ND: npt.NDArray[np.int8], scale_N: npt.NDArray[np.float32]) -> None:
        self._codes, self._scale = codes_ND, scale_N
        self.shape = (int(codes_ND.shape[0]), int(codes_ND.shape[1]))
        self._read = 0
        self._large = codes_ND.nbytes > _LARGE
        self._rooms = threading.local()

    def __len__(self) -> int:
        return len(self._codes)

    def __getitem__(self, rows: Any, /) -> npt.NDArray[np.floating]:
        return self._widened(rows) * self._scale[rows, None]

    def scores(self, rows_K: npt.NDArray[np.int64], query_D: Queries) -> Scores:
        """Inner products [K] of some rows with a query: a scale a row is less to multiply than one a value."""
        if self._large:
            self._fetch(rows_K)
        found = np.empty(len(rows_K), np.float32)
        codes_CD, values_CD = self._room()
        for first in range(0, len(rows_K), _TOGETHER):
            rows = rows_K[first : first + _TOGETHER]
            codes, values = codes_CD[: len(rows)], values_CD[: len(rows)]
            np.take(self._codes, rows, axis=0, out=codes, mode="clip")  # with "raise" it would take room of its own
            values[:] = codes
            np.dot(values, query_D, out=found[first : first + _TOGETHER])
        self._count(len(rows_K))
        scores: Scores = found * self._scale[rows_K]
        return scores

    def _room(self) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
        """Memory that a thread keeps: to ask the system for it anew costs several times what it is used for."""
        if not hasattr(self._rooms, "pair"):
            shape = _TOGETHER, self.shape[1]
            self._rooms.pair = np.empty(shape, np.int8), np.empty(shape, np.float32)
        pair: tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]] = self._rooms.pair
        return pair

    def _fetch(self, rows_K: npt.NDArray[np.int64]) -> None:
        """Have the system read the pages of these rows side by side; else each would be waited for, with 31 others."""
        file: Any = self._codes.base
        if not isinstance(file, mmap.mmap) or not hasattr(mmap, "MADV_WILLNEED"):
            return
        width, page = self.shape[1], mmap.PAGESIZE
        start = getattr(self._codes, "offset", 0) + rows_K * width
        for first, last in zip((start // page).tolist(), ((start + width - 1) // page).tolist(), strict=True):
            file.madvise(mmap.MADV_WILLNEED, first * page, (last - first + 1) * page)

    def _widened(self, rows: Any) -> npt.NDArray[np.float32]:
        found = self._codes[rows].astype(np.float32)
        self._count(len(found))
        return found

    def _count(self, read: int) -> None:
        self._read += read
        if self._read > _RESIDENT:
            self.forget()

    def forget(self) -> None:
        """See ``forget``."""
        self._read = 0
        forget(self._codes)


def write_codes(vectors_ND: Vectors, folder: Path) -> None:
    """Write ``vectors_ND`` in 8 bits into ``folder``; what was 8 bits before comes out with the same codes.

    Raises DamagedArtefact where a vector is not finite.
    """
    count, width = vectors_ND.shape
    with (folder / CODES).open("wb") as codes, (folder / SCALES).open("wb") as scales:
        _header(codes, "|i1", (count, width))
        _header(scales, "<f4", (count,))
        for chunk, _ in chunks(vectors_ND):
            scale = np.abs(chunk).max(axis=1, initial=0) / 127
            scale[scale == 0] = 1
            codes.write(np.rint(chunk / scale[:, None]).astype("i1").tobytes())
            scales.write(scale.astype("<f4").tobytes())


def write_vectors(vectors_ND: Vectors, file: Path) -> None:
    """Write ``vectors_ND`` in float16; not through a memory map: a full disk would kill the process.

    Raises DamagedArtefact where a vector is not finite.
    """
    with file.open("wb") as out:
        _header(out, "<f2", (len(vectors_ND), int(vectors_ND.shape[1])))
        for chunk, _ in chunks(vectors_ND):
            out.write(chunk.astype("<f2").tobytes())


def _header(file: Any, kind: str, shape: tuple[int, ...]) -> None:
    np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape})


def chunks(vectors_ND: Vectors, first: int = 0, last: int | None = None) -> Iterator[tuple[Queries, int]]:
    """The rows ``first … last`` as float32, ``CHUNK`` at a time, and how many rows are done with each.

    Raises DamagedArtefact where a vector is not finite.
    """
    last = len(vectors_ND) if last is None else last
    for start in range(first, last, CHUNK):
        chunk = vectors_ND[start : min(start + CHUNK, last)].astype(np.float32)
        check_finite(chunk, start)
        forget(vectors_ND)
        yield chunk, start - first + len(chunk)


def gathered(vectors_ND: Vectors, rows_K: npt.NDArray[np.int64]) -> Queries:
    """Some rows, sorted, as float32 [K, D]; of the pages around them few are mapped at a time.

    Raises DamagedArtefact where a vector is not finite.
    """
    found = np.empty((len(rows_K), int(vectors_ND.shape[1])), np.float32)
    for at in range(0, len(rows_K), _GATHERED):
        found[at : at + _GATHERED] = vectors_ND[rows_K[at : at + _GATHERED]]
        forget(vectors_ND)
    check_finite(found)
    return found


def forget(vectors_ND: Any) -> None:
    """Give the pages of mapped files back that were read: they would count as this process's memory."""
    if hasattr(vectors_ND, "forget"):
        vectors_ND.forget()
        return
    mapped = getattr(vectors_ND, "base", None)
    if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def open_all(folder: Path) -> Vectors:
    """The vectors [N, D] in ``folder``, those of updates included, memory-mapped; raises as ``open_vectors`` does."""
    first, added = open_first(folder), open_added(folder)
    return Stacked([first, added]) if added else first


def open_added(folder: Path) -> Stacked | None:
    """The vectors that updates have added since the index in ``folder`` was built; raises as ``open_vectors`` does."""
    files = sorted(folder.glob("added-*.npy"))
    return Stacked([open_vectors(file) for file in files]) if files else None


def open_first(folder: Path) -> Vectors:
    """The vectors [N, D] that the index in ``folder`` was built of; raises as ``open_vectors`` does."""
    if not (folder / CODES).exists():
        return open_vectors(folder / VECTORS)
    codes, scale = (_open(folder / name) for name in (CODES, SCALES))
    if codes.dtype != np.int8 or codes.ndim != 2 or scale.dtype != np.float32 or scale.shape != codes.shape[:1]:
        raise DamagedArtefact(f"{folder / CODES} and {SCALES} do not belong together: make the index again")
    return Coded(codes, np.array(scale))


def open_vectors(file: Path) -> npt.NDArray[np.float16]:
    """The vectors [N, D] of a file, memory-mapped.

    Raises:
        DamagedArtefact: the file is missing, or not what its header says.
    """
    vectors = _open(file)
    if vectors.dtype != np.float16 or vectors.ndim != 2:
        raise DamagedArtefact(
            f"{file} holds {vectors.dtype} {vectors.shape} instead of rows of float16: make the index again"
        )
    return vectors


def _open(file: Path) -> npt.NDArray[Any]:
    """An array on disk, memory-mapped; raises DamagedArtefact where it is missing or not what its header says."""
    try:
        array: np.memmap = npy.load_array(file, mapped=True)
    except FileNotFoundError as error:
        raise DamagedArtefact(f"{file} is missing: make the index again") from error
    except (ValueError, EOFError) as error:
        raise DamagedArtefact(f"{file} is damaged: {error}; make the index again") from error
    surplus = file.stat().st_size - array.offset - array.nbytes
    if surplus:
        raise DamagedArtefact(f"{file} is {surplus} bytes longer than its vectors: make the index again")
    return array


def check_queries(queries_BD: npt.ArrayLike, width: int) -> Queries:
    """Queries as contiguous float32 [B, D].

    Raises:
        Mismatch: they are not as wide as the index.
        BadInput: a value is not finite, so every score would be wrong.
    """
    queries = np.ascontiguousarray(queries_BD, np.float32)
    if queries.ndim != 2 or queries.shape[1] != width:
        raise Mismatch(f"queries of shape {queries.shape} for an index of vectors of width {width}")
    if not np.isfinite(queries).all():
        bad = int(np.flatnonzero(~np.isfinite(queries).all(axis=1))[0])
        raise BadInput(
            f"the vector of question {bad} is not finite: the encoder that made it is broken, or learns too fast"
        )
    return queries


def check_finite(vectors_ND: npt.NDArray[np.floating], first: int = 0) -> None:
    """Raise DamagedArtefact naming the row (counted from ``first``) of a vector that is not finite."""
    if not np.isfinite(vectors_ND).all():
        bad = first + int(np.flatnonzero(~np.isfinite(vectors_ND).all(axis=1))[0])
        raise DamagedArtefact(f"the vector of passage {bad} is not finite: make the index again")


def rough_scores(vectors_ND: Vectors, rows_K: npt.NDArray[np.int64], query_D: Queries) -> Scores:
    """Inner products [K] of some rows with one query in single precision: to choose those that are worth more."""
    if isinstance(vectors_ND, Coded):
        return vectors_ND.scores(rows_K, query_D)
    scores: Scores = vectors_ND[rows_K].astype(np.float32) @ query_D
    return scores


def exact_scores(vectors_ND: Vectors, rows_K: npt.ArrayLike, query_D: Queries) -> Scores:
    """Inner products [K] of some rows with one query.

    Summed in double precision, so that they are the same whatever found the rows and however many were
    scored together.

    Raises:
        DamagedArtefact: one of the vectors is not finite.
    """
    rows = np.asarray(rows_K, np.int64)
    scores: Scores = (vectors_ND[rows].astype(np.float64) @ query_D.astype(np.float64)).astype(np.float32)
    if not np.isfinite(scores).all():
        bad = int(rows[~np.isfinite(scores)].min())
        raise DamagedArtefact(f"the vector of passage {bad} is not finite: make the index again")
    return scores
