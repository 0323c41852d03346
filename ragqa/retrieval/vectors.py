"""The file of passage vectors, and the exact scores that are computed from it.

Shapes: N passages, B questions, K rows, D width.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from ragqa.errors import BadInput, DamagedArtefact, Mismatch
from ragqa.retrieval.base import Scores

VECTORS = "vectors.npy"
"""Float16 [N, D], row i of it is passage i."""
CHUNK = 65_536
"""Rows that are widened to float32 at a time: 100 MB at a width of 384."""

Vectors = npt.NDArray[np.float16]
Queries = npt.NDArray[np.float32]


def open_vectors(file: Path) -> Vectors:
    """The vectors [N, D] of a file, memory-mapped.

    Raises:
        DamagedArtefact: the file is missing, or not what its header says.
    """
    try:
        vectors: np.memmap = np.load(file, mmap_mode="r")
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
