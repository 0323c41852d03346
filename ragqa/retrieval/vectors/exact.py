"""Exact search: every vector is scored, by numpy, or by torch on any device.

Shapes: N passages, B questions, C rows of a chunk, D width.
"""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ragqa.errors import BadInput, MissingExtra
from ragqa.retrieval.base import Ranking, Rows, Scores, check_k, select_best
from ragqa.retrieval.vectors.kinds import FlatEngine
from ragqa.retrieval.vectors.store import (
    CHUNK,
    NONE,
    Deleted,
    Queries,
    Vectors,
    check_finite,
    check_queries,
    exact_scores,
    forget,
)

_QUERIES = 256
"""Queries that are scored at a time: 64 MiB of scores a chunk."""

_KEPT = 2**30
"""Bytes of widened vectors that a process keeps: 700,000 rows of width 384."""

_Found = tuple[npt.NDArray[np.int64], Rows, Scores]
"""Query, row and score of every candidate, by rising query."""


class _Scan(Protocol):
    """Scores chunks of vectors; holds nothing of a search, so that many threads can search at once."""

    def chunk(self, first: int, last: int) -> Any:
        """The vectors of rows ``first … last`` as float32 [C, D], where they are multiplied."""
        ...

    def above(self, chunk_CD: Any, first: int, gone: Rows, queries_BD: Queries, floor_B: Scores, k: int) -> _Found:
        """What in the chunk of rows ``first …`` is above a query's floor and in its best ``k``, with ties.

        Rows ``first + gone`` are passed over.

        Raises DamagedArtefact where a vector is not finite.
        """
        ...


class ExactIndex:
    """Maximum inner product search over all vectors, with the rows of equal score in ascending order."""

    def __init__(
        self,
        vectors_ND: Vectors,
        *,
        deleted: Deleted = NONE,
        engine: str = FlatEngine.NUMPY,
        device: str = "cpu",
        keep: bool = True,
    ) -> None:
        """Over ``vectors_ND``, which stay on disk with ``numpy`` and are copied to ``device`` with ``torch``.

        The rows ``deleted`` are never found. Without ``keep``, nothing that numpy reads stays in memory.

        Raises:
            MissingExtra, BadInput: torch, or the GPU that ``device`` names, is not there.
        """
        self.vectors: Vectors | None = vectors_ND
        self.width = int(vectors_ND.shape[1])
        self._all, self._deleted = vectors_ND, deleted
        self._scan: _Scan = (
            _TorchScan(vectors_ND, device) if engine == FlatEngine.TORCH else _NumpyScan(vectors_ND, keep)
        )

    def __len__(self) -> int:
        return len(self._all)

    def search(self, queries_BD: np.ndarray, k: int) -> list[Ranking]:
        """The ``k`` vectors, or all if they are fewer, with the largest inner product for each query.

        Raises:
            BadInput: ``k`` < 1, or a query is not finite.
            Mismatch: the queries have another width.
            DamagedArtefact: a vector is not finite.
        """
        check_k(k)
        queries = check_queries(queries_BD, self.width)
        nothing = Ranking(np.empty(0, np.int64), np.empty(0, np.float32))
        found = [nothing] * len(queries)
        for first in range(0, len(self) if found else 0, CHUNK):
            last = min(first + CHUNK, len(self))
            chunk_CD = self._scan.chunk(first, last)
            gone = self._deleted[slice(*np.searchsorted(self._deleted, (first, last)))] - first
            for at in range(0, len(queries), _QUERIES):
                part = slice(at, at + _QUERIES)
                new = self._scan.above(chunk_CD, first, gone, queries[part], _floors(found[part], k), k)
                found[part] = _merged(found[part], new, k)
        return [
            select_best(each.rows, exact_scores(self._all, each.rows, query), k)
            for each, query in zip(found, queries, strict=True)
        ]


def _floors(found: list[Ranking], k: int) -> Scores:
    """The scores [B] that a later row must exceed: one that only equals the k-th best so far loses to it."""
    return np.array([each.scores[-1] if len(each) == k else -np.inf for each in found], np.float32)


def _merged(found: list[Ranking], new: _Found, k: int) -> list[Ranking]:
    """The best ``k`` of what was found before and of the new candidates, for each query."""
    which, rows, scores = new
    borders = np.searchsorted(which, np.arange(len(found) + 1))
    return [
        select_best(np.concatenate([old.rows, rows[i:j]]), np.concatenate([old.scores, scores[i:j]]), k)
        for old, i, j in zip(found, borders[:-1], borders[1:], strict=True)
    ]


class _NumpyScan:
    """Vectors stay on disk; BLAS multiplies.

    To widen them takes ten times as long as to multiply them, so whoever searches more than once keeps
    the widened chunks, up to ``_KEPT`` bytes.
    """

    def __init__(self, vectors_ND: Vectors, keep: bool) -> None:
        self._vectors = vectors_ND
        self._keep = keep and vectors_ND.shape[0] * vectors_ND.shape[1] * 4 <= _KEPT
        self._seen: set[int] = set()
        self._kept: dict[int, npt.NDArray[np.float32]] = {}

    def chunk(self, first: int, last: int) -> npt.NDArray[np.float32]:
        if first in self._kept:
            return self._kept[first]
        chunk_CD = self._vectors[first:last].astype(np.float32)
        if not self._keep:
            forget(self._vectors)
        elif first in self._seen:
            self._kept[first] = chunk_CD
        self._seen.add(first)
        return chunk_CD

    def above(self, chunk_CD: Any, first: int, gone: Rows, queries_BD: Queries, floor_B: Scores, k: int) -> _Found:
        score_BC = queries_BD @ chunk_CD.T
        if not np.isfinite(score_BC.sum()):
            check_finite(chunk_CD, first)
        score_BC[:, gone] = -np.inf  # above no floor
        rows = [_top(scores, floor, k) for scores, floor in zip(score_BC, floor_B, strict=True)]
        which = np.repeat(np.arange(len(rows)), [len(each) for each in rows])
        all_rows = np.concatenate(rows)
        return which, first + all_rows, score_BC[which, all_rows]


def _top(score_C: Scores, floor: np.float32, k: int) -> Rows:
    """Places of scores above ``floor`` and among the ``k`` highest, all that equal the last included."""
    places = np.flatnonzero(score_C > floor)
    if len(places) > k:
        scores = score_C[places]
        places = places[scores >= np.partition(scores, -k)[-k]]
    return places


class _TorchScan:
    """All vectors in float16 on the device, each chunk widened there."""

    def __init__(self, vectors_ND: Vectors, device: str) -> None:
        self._torch = _torch_for(device)
        self._device = device
        self._chunks = {
            first: self._torch.from_numpy(np.array(vectors_ND[first : first + CHUNK])).to(device)
            for first in range(0, len(vectors_ND), CHUNK)
        }

    def chunk(self, first: int, last: int) -> Any:
        return self._chunks[first].float()

    def above(self, chunk_CD: Any, first: int, gone: Rows, queries_BD: Queries, floor_B: Scores, k: int) -> _Found:
        queries, floors = (self._torch.from_numpy(array).to(self._device) for array in (queries_BD, floor_B))
        score_BC = queries @ chunk_CD.T
        if not bool(score_BC.sum().isfinite()):
            check_finite(chunk_CD.cpu().numpy(), first)
        score_BC[:, self._torch.from_numpy(gone).to(self._device)] = -self._torch.inf
        last_B1 = score_BC.topk(min(k, score_BC.shape[1])).values[:, -1:]
        which, rows = ((score_BC >= last_B1) & (score_BC > floors[:, None])).nonzero(as_tuple=True)
        return which.cpu().numpy(), first + rows.cpu().numpy(), score_BC[which, rows].cpu().numpy()


def _torch_for(device: str) -> Any:
    """torch, once it is known to see ``device``."""
    on_gpu = device.startswith("cuda")
    try:
        import torch
    except ImportError as error:
        raise MissingExtra(f"exact search by torch on {device}", "gpu" if on_gpu else "torch") from error
    if on_gpu and not torch.cuda.is_available():
        raise no_gpu(device, "torch")
    return torch


def no_gpu(device: str, who: str) -> BadInput:
    """The error for a device that is not there."""
    return BadInput(
        f"device {device}: {who} sees no GPU here; use device cpu (the extra 'gpu' is for a machine with one)"
    )
