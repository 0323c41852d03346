"""Search by FAISS, and scoring of the candidates that FAISS finds.

The score of a passage is the inner product of the query and the passage's stored vector, for every kind of index.

Legend: N passages, B queries, D width.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from ragqa.errors import BadInput, DamagedArtefact
from ragqa.retrieval.base import Ranking, Rows, check_k, select_best
from ragqa.retrieval.vectors import faiss_files
from ragqa.retrieval.vectors.arrays import NO_ROWS, DeletedRows, Queries, Vectors, iter_chunks
from ragqa.retrieval.vectors.exact import ExactIndex
from ragqa.retrieval.vectors.faiss_files import load_faiss
from ragqa.retrieval.vectors.index_kinds import Effort, IndexKind
from ragqa.retrieval.vectors.scores import check_queries, exact_scores, rough_scores

GPU_LIMIT = 2048
"""Maximum number of results, and of probed lists, for a query on a GPU (faiss issue 1384)."""
_QUERY_BITS = 4
"""Bits per value of a query on one-bit codes; with 8 bits, recall is equal and search 10 % slower."""
_PARALLEL_CODES = 30_000
"""Number of scanned codes above which all cores share a query; for fewer codes, one core is faster."""
_PREFETCH_READS = 4
"""Mean number of probes of a list after which all lists are assumed to be in the system's cache."""
_PARALLEL_QUERIES = 8
"""Minimum number of queries for which threads save time."""
_EXACT_FACTOR = 4
"""Number of candidates per returned passage to score in double precision, if there are more than twice as many."""


class FaissIndex:
    """Index for maximum inner product search by FAISS, with exact scores of the candidates."""

    def __init__(
        self, index: Any, vectors_ND: Vectors, effort: Effort, deleted: DeletedRows, *, on_gpu: bool = False
    ) -> None:
        """Combine FAISS's index with the stored vectors.

        Args:
            index: FAISS's index of the vectors.
            vectors_ND: stored vectors, from which candidates are scored.
            effort: search effort.
            deleted: sorted rows that no search returns.
            on_gpu: True if ``index`` is on a GPU.
        """
        self.vectors = vectors_ND
        self.width = int(vectors_ND.shape[1])
        self.effort = effort
        self._index, self._deleted, self._on_gpu = index, deleted, on_gpu
        live = np.ones(len(vectors_ND), bool)
        live[deleted] = False
        self._live = np.packbits(live, bitorder="little")
        self._disk_lists, self._probed = faiss_files.find_disk_lists(index), 0

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def lists(self) -> int:
        """Number of inverted lists of the index; 1 for an index without lists."""
        return int(getattr(self._index, "nlist", 1))

    def with_effort(self, effort: Effort) -> "FaissIndex":
        """Return the index with another search effort; not for an index on a GPU."""
        return FaissIndex(self._index, self.vectors, effort, self._deleted)

    def search(self, queries_BD: np.ndarray, k: int) -> list[Ranking]:
        """Return the ``k`` nearest rows that FAISS finds for each query, best first.

        Args:
            queries_BD: query vectors [B, D].
            k: maximum number of rows of a query.

        Raises:
            BadInput: ``k`` is less than 1 or more than a GPU returns, or a query is not finite.
            Mismatch: the queries have another width than the vectors.
            DamagedArtefact: a vector is not finite.
        """
        check_k(k)
        queries = check_queries(queries_BD, self.width)
        candidates = self.propose(queries, self.effort.count_candidates(k), at_least=k)
        return self.rank_candidates(queries, candidates, k)

    def rank_candidates(self, queries_BD: Queries, candidates: list[Rows], k: int) -> list[Ranking]:
        """Return the best ``k`` of the candidate rows for each query, by exact scores.

        Args:
            queries_BD: query vectors [B, D].
            candidates: candidate rows of each query.
            k: maximum number of rows of a query.

        Raises:
            DamagedArtefact: a vector is not finite.
        """
        if len(candidates) < _PARALLEL_QUERIES:
            return [self._rank_one(query, rows, k) for query, rows in zip(queries_BD, candidates, strict=True)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(self._rank_one, queries_BD, candidates, repeat(k)))

    def propose(self, queries_BD: Queries, count: int, *, at_least: int = 1) -> list[Rows]:
        """Return the rows that FAISS finds for each query, best first by FAISS's own scores.

        Args:
            queries_BD: query vectors [B, D].
            count: number of candidates. On a GPU, the result can also have deleted rows, but not more than
                ``GPU_LIMIT`` rows in all.
            at_least: number of candidates that the caller needs.

        Raises:
            BadInput: a GPU cannot return ``at_least`` rows.
        """
        # FAISS on a GPU cannot leave out deleted rows, so request one more candidate for each of them.
        count = min(len(self), count + self._on_gpu * len(self._deleted))
        if self._on_gpu and at_least > GPU_LIMIT:
            raise BadInput(
                f"k = {at_least}: FAISS on a GPU returns at most {GPU_LIMIT}; "
                "ask for fewer, search on the CPU, or use kind flat with torch"
            )
        count = min(count, GPU_LIMIT) if self._on_gpu else count
        if not len(queries_BD) or not count:
            return [np.empty(0, np.int64)] * len(queries_BD)
        if hasattr(self._index, "parallel_mode"):
            scanned = len(self) * self.effort.reach // self.lists
            self._index.parallel_mode = int(len(queries_BD) == 1 and scanned > _PARALLEL_CODES)
            self._prefetch(len(queries_BD))
        ids = self._index.search(queries_BD, count, params=self._make_parameters(count))[1]
        return [row[row >= 0] for row in ids]

    def _prefetch(self, queries: int) -> None:
        """Stop FAISS's threads for reading lists from disk once all lists are probably cached.

        The threads then only cost time: for 2 million vectors and 362 of 5,656 lists, a query takes 4.6 ms with 32
        threads and 1.6 ms without them.
        """
        if self._disk_lists is None:
            return
        if self._probed > _PREFETCH_READS * self.lists:
            self._disk_lists.prefetch_nthread, self._disk_lists = 0, None
        self._probed += queries * self.effort.reach

    def _make_parameters(self, count: int) -> Any:
        """Return FAISS's parameters for the effort and the deleted rows; None if FAISS needs none."""
        if self._on_gpu:
            return None
        faiss, reach = load_faiss(IndexKind.FLAT, "cpu"), self.effort.reach
        row_filter = {"sel": faiss.IDSelectorBitmap(self._live)} if len(self._deleted) else {}
        if hasattr(self._index, "hnsw"):  # the search of a graph returns at most efSearch rows
            return faiss.SearchParametersHNSW(efSearch=max(reach, count), **row_filter)
        if not hasattr(self._index, "nlist"):
            return faiss.SearchParameters(**row_filter) if row_filter else None
        probes = {"nprobe": min(reach, self._index.nlist), **row_filter}
        if hasattr(self._index, "rabitq"):
            return faiss.IVFRaBitQSearchParameters(qb=_QUERY_BITS, **probes)
        parameters = faiss.IVFPQSearchParameters if hasattr(self._index, "pq") else faiss.SearchParametersIVF
        return parameters(**probes)

    def _rank_one(self, query_D: Queries, rows: Rows, k: int) -> Ranking:
        if len(self._deleted):
            rows = np.setdiff1d(rows, self._deleted)
        # If the probed lists, or the visited part of a graph, have fewer than k rows, search exactly.
        if len(rows) < min(k, len(self) - len(self._deleted)):
            return ExactIndex(self.vectors, deleted=self._deleted).search(query_D[None], k)[0]
        if len(rows) > 2 * _EXACT_FACTOR * k:
            rows = select_best(rows, rough_scores(self.vectors, rows, query_D), _EXACT_FACTOR * k).rows
        return select_best(rows, exact_scores(self.vectors, rows, query_D), k)


def open_faiss(
    vectors_ND: Vectors,
    kind: str,
    folder: Path,
    *,
    device: str,
    effort: Effort | None = None,
    deleted: DeletedRows = NO_ROWS,
) -> FaissIndex:
    """Open the FAISS index in ``folder``: on the CPU by memory mapping, on a GPU in its memory.

    Args:
        vectors_ND: vectors from which the index was built.
        kind: an approximate ``IndexKind``.
        folder: directory with ``faiss.index``.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        effort: search effort; None for a medium effort.
        deleted: sorted rows that no search returns.

    Raises:
        MissingExtra: FAISS is not installed.
        BadInput: ``device`` is a GPU, and FAISS sees none or cannot search this kind on it.
        DamagedArtefact: a file is missing or damaged, or has another number or width of vectors than ``vectors_ND``.
    """
    faiss = load_faiss(kind, device)
    on_gpu, effort = device != "cpu", effort or Effort()
    file = folder / faiss_files.INDEX_FILE
    if not file.is_file():
        raise DamagedArtefact(f"{file} is missing: make the index again")
    try:
        in_memory = on_gpu and not (folder / faiss_files.LISTS_FILE).exists()
        index = faiss.read_index(str(file)) if in_memory else faiss_files.read_mapped(file, kind)
    except RuntimeError as error:
        reason = faiss_files.describe_error(error)
        raise DamagedArtefact(f"{file} is damaged: {reason}; make the index again") from error
    if (index.ntotal, index.d) != vectors_ND.shape:
        raise DamagedArtefact(
            f"{file} holds {index.ntotal} vectors of width {index.d} instead of {len(vectors_ND)} "
            f"of width {vectors_ND.shape[1]}: make the index again"
        )
    if on_gpu:
        index = faiss_files.move_to(faiss, index, device)
        index.nprobe = min(effort.reach, GPU_LIMIT)
    return FaissIndex(index, vectors_ND, effort, deleted, on_gpu=on_gpu)


def make_flat_faiss(vectors_ND: Vectors, *, device: str, deleted: DeletedRows = NO_ROWS) -> FaissIndex:
    """Load all vectors into the memory of a device as float16, for exact search by FAISS.

    If rows of equal score compete for the last places, any of them can be found.

    Args:
        vectors_ND: vectors of all passages.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        deleted: sorted rows that no search returns.

    Raises:
        MissingExtra: FAISS is not installed.
        BadInput: ``device`` is a GPU, and FAISS sees none.
        DamagedArtefact: a vector is not finite.
    """
    faiss, width = load_faiss(IndexKind.FLAT, device), vectors_ND.shape[1]
    if device == "cpu":
        half = faiss.ScalarQuantizer.QT_fp16
        index = faiss.IndexScalarQuantizer(width, half, faiss.METRIC_INNER_PRODUCT)
    else:
        index = faiss_files.move_to(faiss, faiss.IndexFlatIP(width), device)
    for chunk, _ in iter_chunks(vectors_ND):
        index.add(chunk)
    return FaissIndex(index, vectors_ND, Effort(factor=1), deleted, on_gpu=device != "cpu")
