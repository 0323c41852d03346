"""The file of passage vectors, and the exact scores that are computed from it.

Shapes: N passages, B questions, K rows, D width.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ragqa import npy
from ragqa.errors import BadInput, DamagedArtefact, Mismatch
from ragqa.retrieval.base import Scores

VECTORS = "vectors.npy"
"""Float16 [N, D], row i of it is passage i."""
ADDED = "added-{:06d}.npy"
"""Rows that an update added, one file an update, numbered from 1; they follow those before them."""
CHUNK = 65_536
"""Rows that are widened to float32 at a time: 100 MB at a width of 384."""

Queries = npt.NDArray[np.float32]
Deleted = npt.NDArray[np.int64]
"""Rows, sorted, that no search returns."""
NONE: Deleted = np.empty(0, np.int64)


class Vectors(Protocol):
    """Rows of float16 [N, D]: an array, or the arrays of several files one after the other."""

    @property
    def shape(self) -> tuple[int, ...]:
        """N, D."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> npt.NDArray[np.float16]:
        """The rows of a slice without a step, or of an array of row numbers."""
        ...


class Stacked:
    """The rows of several arrays [N_i, D], one after the other; nothing is copied but what is asked for."""

    def __init__(self, parts: Sequence[npt.NDArray[np.float16]]) -> None:
        """Raises DamagedArtefact where they are not equally wide."""
        if len({part.shape[1] for part in parts}) != 1:
            raise DamagedArtefact("the files of vectors are not equally wide: make the index again")
        self._parts = parts
        self._first = np.cumsum([0, *map(len, parts)])
        self.shape = (int(self._first[-1]), int(parts[0].shape[1]))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any, /) -> npt.NDArray[np.float16]:
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self))
            slices = zip(self._parts, self._first, strict=False)
            cut = [part[max(0, start - at) : max(0, stop - at)] for part, at in slices]
            held = [piece for piece in cut if len(piece)]
            return held[0] if len(held) == 1 else np.concatenate(held or cut[:1])
        rows = np.asarray(rows)
        found = np.empty((len(rows), self.shape[1]), np.float16)
        part_of = np.searchsorted(self._first, rows, side="right") - 1
        for number in np.unique(part_of):
            inside = part_of == number
            found[inside] = self._parts[number][rows[inside] - self._first[number]]
        return found


def open_all(folder: Path) -> Vectors:
    """The vectors [N, D] in ``folder``, those of updates included, memory-mapped; raises as ``open_vectors`` does."""
    added = sorted(folder.glob("added-*.npy"))
    first = open_vectors(folder / VECTORS)
    return Stacked([first, *map(open_vectors, added)]) if added else first


def open_vectors(file: Path) -> npt.NDArray[np.float16]:
    """The vectors [N, D] of a file, memory-mapped.

    Raises:
        DamagedArtefact: the file is missing, or not what its header says.
    """
    try:
        vectors: np.memmap = npy.load(file, mapped=True)
    except FileNotFoundError as error:
        raise DamagedArtefact(f"{file} is missing: make the index again") from error
    except (ValueError, EOFError) as error:
        raise DamagedArtefact(f"{file} is damaged: {error}; make the index again") from error
    if vectors.dtype != np.float16 or vectors.ndim != 2:
        raise DamagedArtefact(
            f"{file} holds {vectors.dtype} {vectors.shape} instead of rows of float16: make the index again"
        )
    surplus = file.stat().st_size - vectors.offset - vectors.nbytes
    if surplus:
        raise DamagedArtefact(f"{file} is {surplus} bytes longer than its vectors: make the index again")
    return vectors


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
        raise BadInput(f"the vector of question {bad} is not finite: the encoder that made it is broken")
    return queries


def check_finite(vectors_ND: npt.NDArray[np.floating], first: int = 0) -> None:
    """Raise DamagedArtefact naming the row (counted from ``first``) of a vector that is not finite."""
    if not np.isfinite(vectors_ND).all():
        bad = first + int(np.flatnonzero(~np.isfinite(vectors_ND).all(axis=1))[0])
        raise DamagedArtefact(f"the vector of passage {bad} is not finite: make the index again")


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
