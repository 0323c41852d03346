"""Array-like views of passage vectors in one file, several files, a selection, or 8-bit codes.

Shapes: N passages, K rows, D width.
"""

import mmap
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ragqa.errors import DamagedArtefact
from ragqa.retrieval.base import Rows, Scores

CHUNK_ROWS = 16_384
"""Number of rows converted to float32 at a time: 25 MB at a width of 384."""
_GATHER_ROWS = 4096
"""Number of rows gathered at a time: with the pages that the system maps around each, up to 256 MB."""
_RESIDENT_ROWS = 1 << 19
"""Number of scattered rows read before their pages are released: 2 GB, some 600 questions."""
_LARGE_BYTES = 4 << 30
"""Size in bytes above which codes are assumed to be on disk and not in the system's cache."""
_SCORE_ROWS = 512
"""Number of rows scored at a time, so that they stay in a core's cache."""

Queries = npt.NDArray[np.float32]
"""Vectors [B, D], or one vector [D]."""
DeletedRows = npt.NDArray[np.int64]
"""Sorted rows that no search returns."""
NO_ROWS: DeletedRows = np.empty(0, np.int64)


class Vectors(Protocol):
    """Rows [N, D]: an array of float16, or a class of this module."""

    @property
    def shape(self) -> tuple[int, ...]:
        """N, D."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> npt.NDArray[np.floating]:
        """Return the rows of a slice without a step, or of an array of row numbers, as float16 or float32."""
        ...


class StackedVectors:
    """The rows of several arrays [N_i, D], one after the other."""

    def __init__(self, parts: Sequence[Vectors]) -> None:
        """Raise DamagedArtefact if the parts are not equally wide."""
        if len({part.shape[1] for part in parts}) != 1:
            raise DamagedArtefact("the files of vectors are not equally wide: make the index again")
        self._parts = parts
        self._borders = np.cumsum([0, *map(len, parts)])
        self.shape = (int(self._borders[-1]), int(parts[0].shape[1]))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any, /) -> npt.NDArray[np.floating]:
        if isinstance(rows, slice):
            return self._slice(*rows.indices(len(self))[:2])
        rows = np.asarray(rows)
        pieces, positions = [], []
        part_of = np.searchsorted(self._borders, rows, side="right") - 1
        for number in np.unique(part_of):
            inside = np.flatnonzero(part_of == number)
            pieces.append(self._parts[number][rows[inside] - self._borders[number]])
            positions.append(inside)
        if not pieces:
            return self._parts[0][:0]
        result = np.empty((len(rows), self.shape[1]), np.result_type(*pieces))
        for inside, piece in zip(positions, pieces, strict=True):
            result[inside] = piece
        return result

    def _slice(self, start: int, stop: int) -> npt.NDArray[np.floating]:
        parts = self._iter_parts(start, stop)
        pieces = [self._parts[number][max(0, start - first) : stop - first] for number, first in parts]
        pieces = pieces or [self._parts[0][:0]]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _iter_parts(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the number and the first row of each part that holds some of these rows."""
        number = int(np.searchsorted(self._borders, start, side="right")) - 1
        while start < stop:
            end = int(self._borders[number + 1])
            if start < end:
                yield number, int(self._borders[number])
                start = end
            number += 1

    def release_pages(self) -> None:
        """Release the mapped pages of all parts."""
        for part in self._parts:
            release_pages(part)


class SelectedVectors:
    """A selection of rows of other vectors, in any order."""

    def __init__(self, vectors_ND: Vectors, rows: Rows) -> None:
        self._vectors, self._rows = vectors_ND, rows
        self.shape = (len(rows), int(vectors_ND.shape[1]))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Any, /) -> npt.NDArray[np.floating]:
        return self._vectors[self._rows[rows]]

    def release_pages(self) -> None:
        """Release the mapped pages of the underlying vectors."""
        release_pages(self._vectors)


class CodedVectors:
    """Vectors in 8 bits with one scale per row: half the size of float16, at a cost of 0.006 of recall@20.

    Pages are released from the process's memory after reading; the system may still cache them.
    """

    def __init__(self, codes_ND: npt.NDArray[np.int8], scale_N: npt.NDArray[np.float32]) -> None:
        self._codes, self._scale = codes_ND, scale_N
        self.shape = (int(codes_ND.shape[0]), int(codes_ND.shape[1]))
        self._rows_read = 0
        self._is_large = codes_ND.nbytes > _LARGE_BYTES
        self._buffers = threading.local()

    def __len__(self) -> int:
        return len(self._codes)

    def __getitem__(self, rows: Any, /) -> npt.NDArray[np.floating]:
        widened = self._codes[rows].astype(np.float32)
        self._count_read(len(widened))
        scaled: npt.NDArray[np.float32] = widened * self._scale[rows, None]
        return scaled

    def score(self, rows_K: Rows, query_D: Queries) -> Scores:
        """Return inner products [K] of some rows with a query, in single precision."""
        if self._is_large:
            self._prefetch(rows_K)
        products = np.empty(len(rows_K), np.float32)
        code_buffer, value_buffer = self._get_buffers()
        for first in range(0, len(rows_K), _SCORE_ROWS):
            rows = rows_K[first : first + _SCORE_ROWS]
            codes, values = code_buffer[: len(rows)], value_buffer[: len(rows)]
            np.take(self._codes, rows, axis=0, out=codes, mode="clip")  # mode "raise" would allocate a buffer
            values[:] = codes
            np.dot(values, query_D, out=products[first : first + _SCORE_ROWS])
        self._count_read(len(rows_K))
        # Scaling the products takes one multiplication a row, scaling the values one a value.
        scores: Scores = products * self._scale[rows_K]
        return scores

    def _get_buffers(self) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
        """Return the thread's buffers; allocating them anew would cost several times the computation."""
        if not hasattr(self._buffers, "pair"):
            shape = _SCORE_ROWS, self.shape[1]
            self._buffers.pair = np.empty(shape, np.int8), np.empty(shape, np.float32)
        pair: tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]] = self._buffers.pair
        return pair

    def _prefetch(self, rows_K: Rows) -> None:
        """Let the system read the pages of these rows in parallel; on demand it would read 31 others with each."""
        file: Any = self._codes.base
        if not isinstance(file, mmap.mmap) or not hasattr(mmap, "MADV_WILLNEED"):
            return
        width, page = self.shape[1], mmap.PAGESIZE
        start = getattr(self._codes, "offset", 0) + rows_K * width
        for first, last in zip((start // page).tolist(), ((start + width - 1) // page).tolist(), strict=True):
            file.madvise(mmap.MADV_WILLNEED, first * page, (last - first + 1) * page)

    def _count_read(self, rows: int) -> None:
        self._rows_read += rows
        if self._rows_read > _RESIDENT_ROWS:
            self.release_pages()

    def release_pages(self) -> None:
        """Release the mapped pages of the codes."""
        self._rows_read = 0
        release_pages(self._codes)


def release_pages(vectors_ND: Any) -> None:
    """Release the mapped pages of vectors, which would count as this process's memory."""
    if hasattr(vectors_ND, "release_pages"):
        vectors_ND.release_pages()
        return
    mapped = getattr(vectors_ND, "base", None)
    if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def iter_chunks(vectors_ND: Vectors, first: int = 0, last: int | None = None) -> Iterator[tuple[Queries, int]]:
    """Yield chunks of the rows ``first … last`` as float32, each with the number of rows done so far.

    Raises:
        DamagedArtefact: a vector is not finite.
    """
    last = len(vectors_ND) if last is None else last
    for start in range(first, last, CHUNK_ROWS):
        chunk = vectors_ND[start : min(start + CHUNK_ROWS, last)].astype(np.float32)
        check_finite(chunk, start)
        release_pages(vectors_ND)
        yield chunk, start - first + len(chunk)


def gather_rows(vectors_ND: Vectors, rows_K: Rows) -> Queries:
    """Return sorted rows as float32 [K, D]; few pages are mapped at a time.

    Raises:
        DamagedArtefact: a vector is not finite.
    """
    result = np.empty((len(rows_K), int(vectors_ND.shape[1])), np.float32)
    for start in range(0, len(rows_K), _GATHER_ROWS):
        result[start : start + _GATHER_ROWS] = vectors_ND[rows_K[start : start + _GATHER_ROWS]]
        release_pages(vectors_ND)
    check_finite(result)
    return result


def check_finite(vectors_ND: npt.NDArray[np.floating], first: int = 0) -> None:
    """Raise DamagedArtefact naming the row (counted from ``first``) of a vector that is not finite."""
    if not np.isfinite(vectors_ND).all():
        bad = first + int(np.flatnonzero(~np.isfinite(vectors_ND).all(axis=1))[0])
        raise DamagedArtefact(f"the vector of passage {bad} is not finite: make the index again")
