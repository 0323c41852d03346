"""Inner products of queries with passage vectors, and checks of queries.

Legend: N passages, B queries, K rows, D width.
"""

import numpy as np
import numpy.typing as npt

from ragqa.errors import BadInput, DamagedArtefact, Mismatch
from ragqa.retrieval.base import Rows, Scores
from ragqa.retrieval.vectors.arrays import CodedVectors, Queries, Vectors, find_not_finite


def check_queries(queries_BD: npt.ArrayLike, width: int) -> Queries:
    """Check query vectors and return them as contiguous float32 [B, D].

    Args:
        queries_BD: query vectors [B, D].
        width: width D of the index's vectors.

    Raises:
        Mismatch: the shape of the queries is not [B, D].
        BadInput: a value is not finite.
    """
    queries = np.ascontiguousarray(queries_BD, np.float32)
    if queries.ndim != 2 or queries.shape[1] != width:
        raise Mismatch(f"queries of shape {queries.shape} for an index of vectors of width {width}")
    if (row := find_not_finite(queries)) is not None:
        raise BadInput(
            f"the vector of question {row} is not finite: the encoder is damaged, or its learning rate too high"
        )
    return queries


def rough_scores(vectors_ND: Vectors, rows_K: Rows, query_D: Queries) -> Scores:
    """Return inner products [K] of rows and one query in single precision, for a preselection."""
    if isinstance(vectors_ND, CodedVectors):
        return vectors_ND.score(rows_K, query_D)
    scores: Scores = vectors_ND[rows_K].astype(np.float32) @ query_D
    return scores


def exact_scores(vectors_ND: Vectors, rows_K: npt.ArrayLike, query_D: Queries) -> Scores:
    """Return the inner products [K] of rows and one query, summed in double precision.

    The scores depend neither on the engine that found the rows nor on the number of rows.

    Raises:
        DamagedArtefact: a vector is not finite.
    """
    rows = np.asarray(rows_K, np.int64)
    scores: Scores = (vectors_ND[rows].astype(np.float64) @ query_D.astype(np.float64)).astype(np.float32)
    if not np.isfinite(scores).all():
        bad = int(rows[~np.isfinite(scores)].min())
        raise DamagedArtefact(f"the vector of passage {bad} is not finite: make the index again")
    return scores
