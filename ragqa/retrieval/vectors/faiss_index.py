"""Search by FAISS: what it proposes is scored again from the vectors themselves.

So a score is the inner product with the stored vector, whatever the kind of index.

Shapes: N passages, B questions, D width.
"""

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from ragqa.errors import BadInput, DamagedArtefact
from ragqa.retrieval.base import Ranking, Rows, check_k, select_best
from ragqa.retrieval.vectors.exact import ExactIndex
from ragqa.retrieval.vectors.faiss_build import FILE, LISTS, load_faiss, on_disk, read_mapped, reason, to_gpu
from ragqa.retrieval.vectors.kinds import IndexKind
from ragqa.retrieval.vectors.store import (
    NONE,
    Deleted,
    Queries,
    Vectors,
    check_queries,
    chunks,
    exact_scores,
    rough_scores,
)

GPU_LIMIT = 2048
"""Most results that FAISS returns for a query on a GPU, and most lists that it probes (faiss issue 1384)."""
_TUNED_AT = 20
"""Passages asked for where recall is tuned."""
_QUERY_BITS = 4
"""Of a question's value against one-bit codes; with 8 a tenth slower, and no more is found."""
_WORTH_SHARING = 30_000
"""Codes that are looked through for a single question, from which on the cores share its lists."""
_READ_OFTEN = 4
"""Lists that were probed, for each that there is, after which all are taken to have been read."""
_SHARED = 8
"""Queries of a batch from which on threads are worth their start."""
_SHORT = 4
"""Candidates for each passage asked for that are scored in double precision."""


@dataclass(frozen=True)
class Effort:
    """How hard an index searches: what ``tuning`` finds for a wanted recall, and a manifest keeps."""

    reach: int = 64
    """Lists that are probed (FAISS's nprobe), or passages that a walk through a graph keeps (efSearch)."""
    factor: int = 4
    """Candidates that are scored again, for each passage asked for where 20 are."""

    def candidates(self, k: int) -> int:
        """How many are scored again for ``k`` passages: not k / 20 times as many as for 20, but the root of that.

        At 165,871 vectors, ivf-rabitq: recall@100 0.948 with 894 candidates, 0.954 with 2,000; recall@5 0.968 with
        200, 0.957 with 100.
        """
        return k if self.factor == 1 else max(2 * k, round(self.factor * math.sqrt(_TUNED_AT * k)))

    @classmethod
    def from_manifest(cls, search: dict[str, Any] | None) -> "Effort | None":
        """Read the effort from a manifest's ``search`` entry; None where every search is exact."""
        return cls(search["reach"], search["factor"]) if search else None


class FaissIndex:
    """Maximum inner product search by a FAISS index whose proposals are scored from the vectors."""

    def __init__(
        self,
        index: Any,
        vectors_ND: Vectors,
        *,
        effort: Effort | None = None,
        deleted: Deleted = NONE,
        on_gpu: bool = False,
    ) -> None:
        """``index`` over ``vectors_ND``; the rows ``deleted`` are never found."""
        self.vectors: Vectors | None = vectors_ND
        self.width = int(vectors_ND.shape[1])
        self.effort = effort or Effort()
        self._index, self._all, self._on_gpu = index, vectors_ND, on_gpu
        self._deleted = deleted
        live = np.ones(len(vectors_ND), bool)
        live[deleted] = False
        self._live = np.packbits(live, bitorder="little")
        self._ahead, self._probed = on_disk(index), 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def lists(self) -> int:
        """Inverted lists, 1 of a graph."""
        return int(getattr(self._index, "nlist", 1))

    def with_effort(self, effort: Effort) -> "FaissIndex":
        """The same index searched harder or less hard; on a CPU."""
        return FaissIndex(self._index, self._all, effort=effort, deleted=self._deleted)

    def search(self, queries_BD: np.ndarray, k: int) -> list[Ranking]:
        """About the ``k`` vectors, or all if they are fewer, with the largest inner product for each query.

        Raises:
            BadInput: ``k`` < 1 or more than a GPU returns, or a query is not finite.
            Mismatch: the queries have another width.
            DamagedArtefact: a vector is not finite.
        """
        check_k(k)
        queries = check_queries(queries_BD, self.width)
        found = self.propose(queries, self.effort.candidates(k), at_least=k)
        return self.rankings(queries, found, k)

    def rankings(self, queries_BD: Queries, proposed: list[Rows], k: int) -> list[Ranking]:
        """The best ``k`` of the rows proposed for each query; the cores share the queries of a batch."""
        if len(proposed) < _SHARED:
            return [self._ranking(query, rows, k) for query, rows in zip(queries_BD, proposed, strict=True)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(self._ranking, queries_BD, proposed, repeat(k)))

    def propose(self, queries_BD: Queries, wanted: int, *, at_least: int = 1) -> list[Rows]:
        """The ``wanted`` rows that FAISS holds to be the best of each query, best first; fewer where it found fewer.

        Raises BadInput where a GPU would not give ``at_least`` so many.
        """
        # A GPU cannot pass rows over: it is asked for as many more.
        wanted = min(len(self), wanted + self._on_gpu * len(self._deleted))
        if self._on_gpu:
            if at_least > GPU_LIMIT:
                raise BadInput(
                    f"k = {at_least}: FAISS on a GPU returns at most {GPU_LIMIT}; "
                    "ask for fewer, search on the CPU, or use kind flat with torch"
                )
            wanted = min(wanted, GPU_LIMIT)
        if not len(queries_BD) or not wanted:
            return [np.empty(0, np.int64)] * len(queries_BD)
        if hasattr(self._index, "parallel_mode"):
            scanned = len(self) * self.effort.reach // self.lists
            self._index.parallel_mode = int(len(queries_BD) == 1 and scanned > _WORTH_SHARING)
            self._fetch_ahead(len(queries_BD))
        ids = self._index.search(queries_BD, wanted, params=self._parameters(wanted))[1]
        return [row[row >= 0] for row in ids]

    def _fetch_ahead(self, queries: int) -> None:
        """Have FAISS read lists on disk side by side, until each will have been read: then it only costs time.

        At 2 million vectors, 362 of 5,656 lists: 4.6 ms a question with its 32 threads, 1.6 without.
        """
        if self._ahead is None:
            return
        if self._probed > _READ_OFTEN * self.lists:
            self._ahead.prefetch_nthread, self._ahead = 0, None
        self._probed += queries * self.effort.reach

    def _parameters(self, wanted: int) -> Any:
        """What FAISS is told beside the queries: how far to look, and the rows to pass over."""
        if self._on_gpu:
            return None
        faiss, reach = load_faiss(IndexKind.FLAT, "cpu"), self.effort.reach
        passed = {"sel": faiss.IDSelectorBitmap(self._live)} if len(self._deleted) else {}
        if hasattr(self._index, "hnsw"):  # the walk ends when it has seen efSearch passages, and that may be too soon
            return faiss.SearchParametersHNSW(efSearch=max(reach, wanted), **passed)
        if not hasattr(self._index, "nlist"):
            return faiss.SearchParameters(**passed) if passed else None
        probes = {"nprobe": min(reach, self._index.nlist), **passed}
        if hasattr(self._index, "rabitq"):
            return faiss.IVFRaBitQSearchParameters(qb=_QUERY_BITS, **probes)
        made = faiss.IVFPQSearchParameters if hasattr(self._index, "pq") else faiss.SearchParametersIVF
        return made(**probes)

    def _ranking(self, query_D: Queries, rows: Rows, k: int) -> Ranking:
        if len(self._deleted):
            rows = np.setdiff1d(rows, self._deleted)
        # More may be wanted than the lists that were probed hold, or a graph reaches.
        if len(rows) < min(k, len(self) - len(self._deleted)):
            return ExactIndex(self._all, deleted=self._deleted).search(query_D[None], k)[0]
        if len(rows) > 2 * _SHORT * k:
            rows = select_best(rows, rough_scores(self._all, rows, query_D), _SHORT * k).rows
        return select_best(rows, exact_scores(self._all, rows, query_D), k)


def open_faiss(
    vectors_ND: Vectors,
    kind: str,
    folder: Path,
    *,
    device: str,
    effort: Effort | None = None,
    deleted: Deleted = NONE,
) -> FaissIndex:
    """The index of ``kind`` in ``folder``, memory-mapped on a CPU.

    Raises:
        MissingExtra, BadInput: FAISS, or the GPU that ``device`` names, is not there, or cannot do this kind.
        DamagedArtefact: the file is missing or broken, or is not about these vectors.
    """
    faiss = load_faiss(kind, device)
    on_gpu = device != "cpu"
    file = folder / FILE
    if not file.is_file():
        raise DamagedArtefact(f"{file} is missing: make the index again")
    try:
        index = faiss.read_index(str(file)) if on_gpu and not (folder / LISTS).exists() else read_mapped(file, kind)
    except RuntimeError as error:
        raise DamagedArtefact(f"{file} is damaged: {reason(error)}; make the index again") from error
    if (index.ntotal, index.d) != vectors_ND.shape:
        raise DamagedArtefact(
            f"{file} holds {index.ntotal} vectors of width {index.d} instead of {len(vectors_ND)} "
            f"of width {vectors_ND.shape[1]}: make the index again"
        )
    if on_gpu:
        index = to_gpu(faiss, index, device)
        index.nprobe = min((effort or Effort()).reach, GPU_LIMIT)
    return FaissIndex(index, vectors_ND, effort=effort, deleted=deleted, on_gpu=on_gpu)


def flat_faiss(vectors_ND: Vectors, *, device: str, deleted: Deleted = NONE) -> FaissIndex:
    """All vectors in float16 in memory, scored by FAISS: many times faster than numpy for one question.

    Rows of equal score are sorted, but which of them make the cut at k is FAISS's choice.

    Raises:
        MissingExtra, BadInput: FAISS, or the GPU that ``device`` names, is not there.
        DamagedArtefact: a vector is not finite.
    """
    faiss = load_faiss(IndexKind.FLAT, device)
    on_gpu = device != "cpu"
    width = vectors_ND.shape[1]
    if on_gpu:
        index = to_gpu(faiss, faiss.IndexFlatIP(width), device)
    else:
        half = faiss.ScalarQuantizer.QT_fp16
        index = faiss.IndexScalarQuantizer(width, half, faiss.METRIC_INNER_PRODUCT)
    for chunk, _ in chunks(vectors_ND):
        index.add(chunk)
    return FaissIndex(index, vectors_ND, effort=Effort(factor=1), deleted=deleted, on_gpu=on_gpu)
