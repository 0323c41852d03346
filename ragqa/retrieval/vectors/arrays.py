"""Array-like classes of passage vectors: stacked files, selected rows, and 8-bit codes.

Legend: N passages, B queries, K rows, C rows of a chunk, D width.
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
"""Number of rows gathered at a time: up to 256 MB of mapped pages, since the system maps 16 pages for each row."""
_RESIDENT_ROWS = 1 << 19
"""Number of scattered rows after which their pages are released: 2 GB, or about 600 questions."""
_LARGE_BYTES = 4 << 30
"""Size in bytes above which codes are assumed to be on disk, not in the system's cache."""
_SCORE_ROWS = 512
"""Number of rows scored at a time, so that the rows stay in a core's cache."""

Queries = npt.NDArray[np.float32]
"""Query vectors [B, D], or one query vector [D]."""
DeletedRows = npt.NDArray[np.int64]
"""Sorted rows of deleted passages, which a search never returns."""
NO_ROWS: DeletedRows = np.empty(0, np.int64)
"""Value of ``DeletedRows`` if no passage is deleted."""


class Vectors(Protocol):
    """Interface of vectors [N, D]: a numpy array, or an object that is read like one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of vectors N and their width D."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> npt.NDArray[np.floating]:
        """Return the rows of a slice or an array of row numbers, as float16 or float32."""


class StackedVectors:
    """Rows of several arrays [N_i, D], one after the other."""

    def __init__(self, parts: Sequence[Vectors]) -> None:
        """Stack one or more parts; raise DamagedArtefact if they differ in width."""
        if len({part.shape[1] for part in parts}) != 1:
            raise DamagedArtefact("the files of vectors have different widths: make the index again")
        self._parts = parts
        self._borders = np.cumsum([0, *map(len, parts)])
        self.shape = (int(self._borders[-1]), int(parts[0].shape[1]))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any, /) -> npt.NDArray[np.floating]:
        if isinstance(rows, slice):
            return self._slice(*rows.indices(len(self))[:2])
        rows = np.asarray(rows)
        part_of = np.searchsorted(self._borders, rows, side="right") - 1
        pieces = [self._parts[n][rows[part_of == n] - self._borders[n]] for n in np.unique(part_of)]
        if not pieces:
            return self._parts[0][:0]
        order = np.argsort(part_of, kind="stable")
        result = np.empty((len(rows), self.shape[1]), np.result_type(*pieces))
        result[order] = np.concatenate(pieces)
        return result

    def _slice(self, start: int, stop: int) -> npt.NDArray[np.floating]:
        first, end = int(np.searchsorted(self._borders, start, "right")) - 1, int(np.searchsorted(self._borders, stop))
        borders = self._borders[first:end].tolist()
        parts = zip(self._parts[first:end], borders, strict=True)
        pieces = [part[max(0, start - border) : stop - border] for part, border in parts]
        pieces = pieces or [self._parts[0][:0]]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def release_pages(self) -> None:
        """Release the mapped pages of all parts."""
        for part in self._parts:
            release_pages(part)


class SelectedVectors:
    """Selection of rows of other vectors, in any order."""

    def __init__(self, vectors_ND: Vectors, rows: Rows) -> None:
        self._vectors, self._rows = vectors_ND, rows
        self.shape = (len(rows), int(vectors_ND.shape[1]))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Any, /) -> npt.NDArray[np.floating]:
        return self._vectors[self._rows[rows]]

    def release_pages(self) -> None:
        """Release the mapped pages of the other vectors."""
        release_pages(self._vectors)


class CodedVectors:
    """Vectors with 8 bits per value and one scale per row.

    They take half the space of float16 and lower recall@20 by 0.006. After many reads, the process releases the mapped
    pages; the system can still cache them.
    """

    def __init__(self, codes_ND: npt.NDArray[np.int8], scale_N: npt.NDArray[np.float32]) -> None:
        self._codes, self._scale = codes_ND, scale_N
        self.shape = (int(codes_ND.shape[0]), int(codes_ND.shape[1]))
        self._rows_read = 0
        self._is_large = codes_ND.nbytes > _LARGE_BYTES
        self._buffers = _Buffers(self.shape[1])

    def __len__(self) -> int:
        return len(self._codes)

    def __getitem__(self, rows: Any, /) -> npt.NDArray[np.floating]:
        codes = self._codes[rows].astype(np.float32)
        self._count_read(len(codes))
        values: npt.NDArray[np.float32] = codes * self._scale[rows, None]
        return values

    def score(self, rows_K: Rows, query_D: Queries) -> Scores:
        """Return the inner products [K] of rows and a query [D], in single precision."""
        if self._is_large:
            self._prefetch(rows_K)
        products = np.empty(len(rows_K), np.float32)
        for first in range(0, len(rows_K), _SCORE_ROWS):
            rows = rows_K[first : first + _SCORE_ROWS]
            codes, values = self._buffers.codes[: len(rows)], self._buffers.values[: len(rows)]
            np.take(self._codes, rows, axis=0, out=codes, mode="clip")  # mode "raise" would allocate a buffer
            values[:] = codes
            np.dot(values, query_D, out=products[first : first + _SCORE_ROWS])
        self._count_read(len(rows_K))
        # Scaling the products takes one multiplication per row; scaling the codes would take one per value.
        scores: Scores = products * self._scale[rows_K]
        return scores

    def _prefetch(self, rows_K: Rows) -> None:
        """Request the pages of these rows at once; otherwise the system reads 31 more with each."""
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


class _Buffers(threading.local):
    """Buffers of one thread; to allocate them for each question would take longer than scoring."""

    def __init__(self, width: int) -> None:
        self.codes, self.values = np.empty((_SCORE_ROWS, width), np.int8), np.empty((_SCORE_ROWS, width), np.float32)


def release_pages(vectors_ND: Any) -> None:
    """Release the mapped pages of vectors from the memory of this process."""
    mapped = getattr(vectors_ND, "base", None)
    if hasattr(vectors_ND, "release_pages"):
        vectors_ND.release_pages()
    elif isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def iter_chunks(vectors_ND: Vectors, first: int = 0, last: int | None = None) -> Iterator[tuple[Queries, int]]:
    """Yield chunks of rows as float32 [C, D], each with the number of rows yielded so far.

    Args:
        vectors_ND: vectors to read.
        first: first row.
        last: last row (exclusive); None for the end of the vectors.

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
    """Return the vectors at sorted rows as float32 [K, D], with few pages mapped at a time.

    Raises:
        DamagedArtefact: a vector is not finite.
    """
    result = np.empty((len(rows_K), int(vectors_ND.shape[1])), np.float32)
    for start in range(0, len(rows_K), _GATHER_ROWS):
        result[start : start + _GATHER_ROWS] = vectors_ND[rows_K[start : start + _GATHER_ROWS]]
        release_pages(vectors_ND)
    if (place := find_not_finite(result)) is not None:
        check_finite(result[place : place + 1], int(rows_K[place]))  # the error names the row
    return result


def check_finite(vectors_ND: npt.NDArray[np.floating], first: int = 0) -> None:
    """Raise DamagedArtefact if a vector is not finite; the message counts rows from ``first``."""
    if (row := find_not_finite(vectors_ND)) is not None:
        raise DamagedArtefact(f"the vector of passage {first + row} is not finite: make the index again")


def find_not_finite(vectors_ND: npt.NDArray[np.floating]) -> int | None:
    """Return the first row with a value that is not finite; None if all values are finite."""
    finite = np.isfinite(vectors_ND)
    return None if finite.all() else int(finite.all(axis=1).argmin())
