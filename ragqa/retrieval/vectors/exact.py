"""Exact search over all vectors, with numpy on the CPU or with torch on any device.

Legend: N passages, B queries, C rows of a chunk, D width.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from ragqa.errors import BadInput, MissingExtra
from ragqa.retrieval.base import Ranking, Rows, Scores, check_k, merge_rankings, select_best
from ragqa.retrieval.vectors.arrays import (
    CHUNK_ROWS,
    NO_ROWS,
    DeletedRows,
    Queries,
    SelectedVectors,
    Vectors,
    check_finite,
    release_pages,
)
from ragqa.retrieval.vectors.index_kinds import FlatEngine
from ragqa.retrieval.vectors.scores import check_queries, exact_scores

_QUERIES = 256
"""Number of queries scored at a time; their scores take 16 MB per chunk."""
_CACHED_BYTES = 2**30
"""Maximum size of cached float32 vectors in bytes: 700,000 rows of width 384."""


class ExactIndex:
    """Index for exact maximum inner product search; rows of equal score are in ascending order."""

    def __init__(
        self,
        vectors_ND: Vectors,
        *,
        deleted: DeletedRows = NO_ROWS,
        engine: str = FlatEngine.NUMPY,
        device: str = "cpu",
        cache: bool = True,
    ) -> None:
        """Make an index over vectors.

        Args:
            vectors_ND: vectors of all passages; torch copies them to ``device``.
            deleted: sorted rows that no search returns.
            engine: ``numpy`` or ``torch``.
            device: ``cpu``, ``cuda`` or ``cuda:N``; numpy needs ``cpu``.
            cache: True to cache the vectors as float32 for later searches, if they take at most 1 GiB (numpy only).

        Raises:
            MissingExtra: torch is not installed.
            BadInput: ``device`` is a GPU, and torch sees none.
        """
        self.vectors = vectors_ND
        self.width = int(vectors_ND.shape[1])
        self._deleted = deleted
        on_torch = engine == FlatEngine.TORCH
        # A scan stores nothing about a search, so many threads can search at once.
        self._scan: _NumpyScan | _TorchScan = (
            _TorchScan(vectors_ND, device) if on_torch else _NumpyScan(vectors_ND, cache)
        )

    def __len__(self) -> int:
        return len(self.vectors)

    def search(self, queries_BD: np.ndarray, k: int) -> list[Ranking]:
        """Return the ``k`` rows with the largest inner products for each query, best first.

        Args:
            queries_BD: query vectors [B, D].
            k: maximum number of rows of a query.

        Raises:
            BadInput: ``k`` is less than 1, or a query is not finite.
            Mismatch: the queries have another width than the vectors.
            DamagedArtefact: a vector is not finite.
        """
        check_k(k)
        queries = check_queries(queries_BD, self.width)
        rankings = [Ranking(np.empty(0, np.int64), np.empty(0, np.float32))] * len(queries)
        for first in range(0, len(self) if rankings else 0, CHUNK_ROWS):
            last = min(first + CHUNK_ROWS, len(self))
            chunk_CD = self._scan.load_chunk(first, last)
            deleted = self._deleted[slice(*np.searchsorted(self._deleted, (first, last)))] - first
            for start in range(0, len(queries), _QUERIES):
                part = slice(start, start + _QUERIES)
                # Only scores above the k-th best so far count: at equal scores, earlier rows win.
                floors = [ranking.scores[-1] if len(ranking) == k else -np.inf for ranking in rankings[part]]
                new = self._scan.find_above(chunk_CD, first, deleted, queries[part], np.array(floors, np.float32), k)
                pairs = zip(rankings[part], new, strict=True)
                rankings[part] = [merge_rankings(old, candidates, k) for old, candidates in pairs]
        # The rounding of a matrix product depends on its shape, so the best rows are scored again.
        return [
            select_best(ranking.rows, exact_scores(self.vectors, ranking.rows, query), k)
            for ranking, query in zip(rankings, queries, strict=True)
        ]


def search_rows(vectors_ND: Vectors, rows: Rows, queries_BD: np.ndarray, k: int) -> list[Ranking]:
    """Return the ``k`` of ``rows`` with the largest inner products for each query, best first.

    Args:
        vectors_ND: vectors of all passages.
        rows: sorted rows to search.
        queries_BD: query vectors [B, D].
        k: maximum number of rows of a query.

    Raises:
        BadInput, Mismatch, DamagedArtefact: as for ``ExactIndex.search``.
    """
    rankings = ExactIndex(SelectedVectors(vectors_ND, rows), cache=False).search(queries_BD, k)
    return [Ranking(rows[ranking.rows], ranking.scores) for ranking in rankings]


class _NumpyScan:
    """Scan of vectors by numpy, chunk by chunk.

    To convert a chunk to float32 takes ten times as long as to multiply it by one query. So with ``cache``, a chunk is
    stored at its second use, if all vectors as float32 take at most ``_CACHED_BYTES``.
    """

    def __init__(self, vectors_ND: Vectors, cache: bool) -> None:
        self._vectors = vectors_ND
        self._use_cache = cache and vectors_ND.shape[0] * vectors_ND.shape[1] * 4 <= _CACHED_BYTES
        self._loaded_once: set[int] = set()
        self._cache: dict[int, npt.NDArray[np.float32]] = {}

    def load_chunk(self, first: int, last: int) -> npt.NDArray[np.float32]:
        """Return the vectors at rows ``first`` to ``last`` (exclusive) as float32 [C, D]."""
        if first in self._cache:
            return self._cache[first]
        chunk_CD = self._vectors[first:last].astype(np.float32)
        if not self._use_cache:
            release_pages(self._vectors)
        elif first in self._loaded_once:
            self._cache[first] = chunk_CD
        self._loaded_once.add(first)
        return chunk_CD

    def find_above(
        self, chunk_CD: Any, first: int, deleted: Rows, queries_BD: Queries, floor_B: Scores, k: int
    ) -> list[Ranking]:
        """Return the ``k`` best rows of a chunk for each query, with ties, in any order.

        ``first`` is the row of the chunk's first vector, ``deleted`` has positions in the chunk, and the score of a
        row must exceed the query's floor.
        """
        score_BC = queries_BD @ chunk_CD.T
        if not np.isfinite(score_BC.sum()):
            check_finite(chunk_CD, first)
        score_BC[:, deleted] = -np.inf
        rankings = []
        for score_C, floor in zip(score_BC, floor_B, strict=True):
            rows = np.flatnonzero(score_C > floor)
            if len(rows) > k:
                scores = score_C[rows]
                rows = rows[scores >= np.partition(scores, -k)[-k]]
            rankings.append(Ranking(first + rows, score_C[rows]))
        return rankings


class _TorchScan:
    """Scan of float16 vectors on a device by torch."""

    def __init__(self, vectors_ND: Vectors, device: str) -> None:
        self._torch = _import_torch(device)
        self._device = device
        self._chunks = {
            first: self._torch.from_numpy(np.array(vectors_ND[first : first + CHUNK_ROWS])).to(device)
            for first in range(0, len(vectors_ND), CHUNK_ROWS)
        }

    def load_chunk(self, first: int, last: int) -> Any:
        return self._chunks[first].float()

    def find_above(
        self, chunk_CD: Any, first: int, deleted: Rows, queries_BD: Queries, floor_B: Scores, k: int
    ) -> list[Ranking]:
        queries, floors = (self._torch.from_numpy(array).to(self._device) for array in (queries_BD, floor_B))
        score_BC = queries @ chunk_CD.T
        if not bool(score_BC.sum().isfinite()):
            check_finite(chunk_CD.cpu().numpy(), first)
        score_BC[:, self._torch.from_numpy(deleted).to(self._device)] = -self._torch.inf
        last_B1 = score_BC.topk(min(k, score_BC.shape[1])).values[:, -1:]
        query_of, rows = ((score_BC >= last_B1) & (score_BC > floors[:, None])).nonzero(as_tuple=True)
        borders = np.searchsorted(query_of.cpu().numpy(), np.arange(1, len(queries_BD)))
        arrays = first + rows.cpu().numpy(), score_BC[query_of, rows].cpu().numpy()
        return [Ranking(*pair) for pair in zip(*(np.split(array, borders) for array in arrays), strict=True)]


def _import_torch(device: str) -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingExtra(f"exact search by torch on {device}", "torch" if device == "cpu" else "gpu") from error
    if device != "cpu" and not torch.cuda.is_available():
        raise make_gpu_error(device, "torch")
    return torch


def make_gpu_error(device: str, library: str) -> BadInput:
    """Return the error for a GPU ``device`` on a machine where ``library`` sees no GPU."""
    return BadInput(
        f"device {device}: {library} sees no GPU here; use device cpu (the extra 'gpu' is for a machine with one)"
    )
