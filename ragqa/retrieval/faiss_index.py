"""Indexes by FAISS: made in bounded memory, tuned against exact search, and read from where they lie on disk.

What FAISS proposes is scored again from the vectors themselves, so that a score is the true inner
product whatever the kind of index.

Shapes: N passages, B questions, D width.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ragqa.errors import BadInput, DamagedArtefact, MissingExtra
from ragqa.retrieval.base import Ranking, Rows, best, check_k
from ragqa.retrieval.exact import ExactIndex, no_gpu
from ragqa.retrieval.vectors import CHUNK, NONE, Deleted, Queries, Vectors, check_finite, check_queries, exact_scores

FILE = "faiss.index"
GPU_LIMIT = 2048
"""Most results that FAISS returns for a query on a GPU (faiss issue 1384)."""

_RECIPES = {
    "hnsw": "HNSW32_SQfp16",  # vectors are float16 already, so half the memory of HNSW32 costs nothing
    "ivf-flat": "IVF{lists},SQfp16",
    "ivf-pq": "IVF{lists},PQ{parts}np",  # np: no polysemous codes, which are not used here and slow to train
    "sq8": "SQ8",
}
_ON_GPU = ("flat", "ivf-flat", "ivf-pq")
_PROPOSALS = {"flat": 1, "hnsw": 1, "ivf-flat": 1, "ivf-pq": 4, "sq8": 2}
"""Candidates for each passage asked for: the coarser the code, the more are scored again."""
_PER_LIST = 39
"""Training vectors for each centroid; with fewer FAISS warns."""
_CODES = 256
_PROBES = 200
_RECALL = 0.99
"""Recall@20 at which tuning stops: above the 0.95 wanted of questions, which are a little harder than the probes."""


def build_faiss(
    vectors_ND: Vectors, kind: str, folder: Path, *, device: str, progress: Callable[[int], None] | None
) -> None:
    """Write ``folder/faiss.index``, an index of ``kind`` over ``vectors_ND`` for inner products.

    Raises:
        MissingExtra: FAISS is not installed.
        BadInput: ``device`` cannot make this kind, or the file cannot be written.
        DamagedArtefact: a vector is not finite.
    """
    faiss = _faiss(kind, device)
    count, width = vectors_ND.shape
    lists = max(1, min(int(4 * math.sqrt(count)), count // _PER_LIST))
    recipe = _RECIPES[kind].format(lists=lists, parts=_parts(width))
    index = faiss.index_factory(width, recipe, faiss.METRIC_INNER_PRODUCT)
    if kind == "hnsw":
        index.hnsw.efConstruction = 100
        index.keep_max_size_level0 = True  # else near-duplicate passages become islands
    if kind == "ivf-pq":
        index.pq.cp.min_points_per_centroid = 1  # a small corpus is no reason to warn
    if device != "cpu":
        index = _to_gpu(faiss, index, device)
    if count:
        index.train(_sample(vectors_ND, _PER_LIST * max(lists, 2 * _CODES)))
    for chunk, done in _chunks(vectors_ND):
        index.add(chunk)
        if progress:
            progress(done)
    if device != "cpu":
        index = faiss.index_gpu_to_cpu(index)
    _tune(index, vectors_ND, kind)
    try:
        faiss.write_index(index, str(folder / FILE))
    except RuntimeError as error:
        raise BadInput(f"cannot write {folder / FILE}: {_reason(error)}") from error


class FaissIndex:
    """Maximum inner product search by a FAISS index whose proposals are scored exactly."""

    def __init__(
        self, index: Any, vectors_ND: Vectors, kind: str, *, deleted: Deleted = NONE, on_gpu: bool = False
    ) -> None:
        """``index`` of ``kind`` over ``vectors_ND``; the rows ``deleted`` are never found."""
        self.vectors: Vectors | None = vectors_ND
        self.width = int(vectors_ND.shape[1])
        self._index, self._all, self._kind, self._on_gpu = index, vectors_ND, kind, on_gpu
        self._deleted = deleted
        live = np.ones(len(vectors_ND), bool)
        live[deleted] = False
        self._live = np.packbits(live, bitorder="little")

    def __len__(self) -> int:
        return len(self._all)

    def search(self, queries_BD: np.ndarray, k: int) -> list[Ranking]:
        """About the ``k`` vectors, or all if they are fewer, with the largest inner product for each query.

        Raises:
            BadInput: ``k`` < 1 or more than a GPU returns, or a query is not finite.
            Mismatch: the queries have another width.
            DamagedArtefact: a vector is not finite.
        """
        check_k(k)
        queries = check_queries(queries_BD, self.width)
        # A GPU cannot pass rows over: it is asked for as many more.
        wanted = min(len(self), k * _PROPOSALS[self._kind] + self._on_gpu * len(self._deleted))
        if self._on_gpu:
            if k > GPU_LIMIT:
                raise BadInput(
                    f"k = {k}: FAISS on a GPU returns at most {GPU_LIMIT}; "
                    "ask for fewer, search on the CPU, or use kind flat with torch"
                )
            wanted = min(wanted, GPU_LIMIT)
        if not len(queries) or not wanted:
            return [Ranking(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in queries]
        found = self._propose(queries, wanted)
        return [self._ranking(query, ids[ids >= 0], k) for query, ids in zip(queries, found, strict=True)]

    def _propose(self, queries_BD: Queries, wanted: int) -> np.ndarray:
        """Rows [B, wanted], -1 where FAISS came upon no more."""
        ids: np.ndarray = self._index.search(queries_BD, wanted, params=self._parameters(wanted))[1]
        return ids

    def _parameters(self, wanted: int) -> Any:
        """What FAISS is told beside the queries: the rows to pass over, and how far a graph is walked."""
        if self._on_gpu or (self._kind != "hnsw" and not len(self._deleted)):
            return None
        faiss = _faiss(self._kind, "cpu")
        passed = {"sel": faiss.IDSelectorBitmap(self._live)} if len(self._deleted) else {}
        if self._kind == "hnsw":  # the walk ends when it has seen efSearch passages, and that may be too soon
            return faiss.SearchParametersHNSW(efSearch=max(self._index.hnsw.efSearch, wanted), **passed)
        if self._kind.startswith("ivf"):
            made = faiss.IVFPQSearchParameters if self._kind == "ivf-pq" else faiss.SearchParametersIVF
            return made(nprobe=self._index.nprobe, **passed)
        return faiss.SearchParameters(**passed)

    def _ranking(self, query_D: Queries, rows: Rows, k: int) -> Ranking:
        rows = np.setdiff1d(rows, self._deleted)
        # More may be wanted than the lists that were probed hold, or a graph reaches.
        if len(rows) < min(k, len(self) - len(self._deleted)):
            return ExactIndex(self._all, deleted=self._deleted).search(query_D[None], k)[0]
        return best(rows, exact_scores(self._all, rows, query_D), k)


def open_faiss(vectors_ND: Vectors, kind: str, folder: Path, *, device: str, deleted: Deleted = NONE) -> FaissIndex:
    """The index of ``kind`` in ``folder``, memory-mapped on a CPU.

    Raises:
        MissingExtra, BadInput: FAISS, or the GPU that ``device`` names, is not there, or cannot do this kind.
        DamagedArtefact: the file is missing or broken, or is not about these vectors.
    """
    faiss = _faiss(kind, device)
    on_gpu = device != "cpu"
    file = folder / FILE
    if not file.is_file():
        raise DamagedArtefact(f"{file} is missing: make the index again")
    try:
        index = faiss.read_index(str(file), 0 if on_gpu else _mapped(faiss, kind))
    except RuntimeError as error:
        raise DamagedArtefact(f"{file} is damaged: {_reason(error)}; make the index again") from error
    if (index.ntotal, index.d) != vectors_ND.shape:
        raise DamagedArtefact(
            f"{file} holds {index.ntotal} vectors of width {index.d} instead of {len(vectors_ND)} "
            f"of width {vectors_ND.shape[1]}: make the index again"
        )
    moved = _to_gpu(faiss, index, device) if on_gpu else index
    return FaissIndex(moved, vectors_ND, kind, deleted=deleted, on_gpu=on_gpu)


def flat_faiss(vectors_ND: Vectors, *, device: str, deleted: Deleted = NONE) -> FaissIndex:
    """All vectors in float16 in memory, scored by FAISS: many times faster than numpy for one question.

    Rows of equal score are sorted, but which of them make the cut at k is FAISS's choice.

    Raises:
        MissingExtra, BadInput: FAISS, or the GPU that ``device`` names, is not there.
        DamagedArtefact: a vector is not finite.
    """
    faiss = _faiss("flat", device)
    on_gpu = device != "cpu"
    width = vectors_ND.shape[1]
    if on_gpu:
        index = _to_gpu(faiss, faiss.IndexFlatIP(width), device)
    else:
        half = faiss.ScalarQuantizer.QT_fp16
        index = faiss.IndexScalarQuantizer(width, half, faiss.METRIC_INNER_PRODUCT)
    for chunk, _ in _chunks(vectors_ND):
        index.add(chunk)
    return FaissIndex(index, vectors_ND, "flat", deleted=deleted, on_gpu=on_gpu)


def check_faiss(kind: str, device: str) -> None:
    """Raise MissingExtra or BadInput unless FAISS is there and does ``kind`` on ``device``."""
    _faiss(kind, device)


def _faiss(kind: str, device: str) -> Any:
    """faiss, once it is known to do ``kind`` on ``device``."""
    on_gpu = device != "cpu"
    if on_gpu and kind not in _ON_GPU:
        raise BadInput(f"kind {kind} works on the CPU only: use device cpu, or kind {', '.join(_ON_GPU)}")
    try:
        import faiss
    except ImportError as error:
        raise MissingExtra(f"an index of kind {kind}", "gpu" if on_gpu else "cpu") from error
    if on_gpu and not hasattr(faiss, "StandardGpuResources"):
        raise MissingExtra(f"FAISS on {device}", "gpu")
    if on_gpu and not faiss.get_num_gpus():
        raise no_gpu(device, "FAISS")
    return faiss


def _mapped(faiss: Any, kind: str) -> int:
    """The flag by which FAISS maps a file: one is for inverted lists, the other for codes and links."""
    flag: int = faiss.IO_FLAG_MMAP if kind.startswith("ivf") else faiss.IO_FLAG_MMAP_IFC
    return flag


def _to_gpu(faiss: Any, index: Any, device: str) -> Any:
    options = faiss.GpuClonerOptions()
    options.useFloat16 = True
    number = int(device.partition(":")[2] or 0)
    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), number, index, options)


def _parts(width: int) -> int:
    """Sub-vectors of a product code: of 4 values, or as near to that as divides ``width``; a byte each."""
    return width // next(size for size in (4, 5, 6, 3, 7, 8, 2, 1) if width % size == 0)


def _sample(vectors_ND: Vectors, size: int) -> Queries:
    """Training vectors drawn at random; few are repeated, since FAISS wants more points than codes."""
    count = len(vectors_ND)
    if count > size:
        rows = np.sort(np.random.default_rng(0).choice(count, size, replace=False))
    else:
        rows = np.resize(np.arange(count), max(count, _CODES))
    sample = vectors_ND[rows].astype(np.float32)
    check_finite(sample)
    return sample


def _chunks(vectors_ND: Vectors) -> Iterator[tuple[Queries, int]]:
    """Each chunk of the vectors as float32, and how many rows are done with it."""
    for first in range(0, len(vectors_ND), CHUNK):
        chunk = vectors_ND[first : first + CHUNK].astype(np.float32)
        check_finite(chunk, first)
        yield chunk, first + len(chunk)


def _tune(index: Any, vectors_ND: Vectors, kind: str) -> None:
    """Set how hard the index searches so that recall@20 against exact search is ``_RECALL``; stored with the index."""
    if kind == "sq8" or not len(vectors_ND):
        return
    probes = _probes(vectors_ND)
    truth = ExactIndex(vectors_ND).search(probes, 20)
    search = FaissIndex(index, vectors_ND, kind)
    effort, most = 8, index.nlist if kind.startswith("ivf") else 1024
    while True:
        effort = min(effort, most)
        if kind == "hnsw":
            index.hnsw.efSearch = effort
        else:
            index.nprobe = effort
        found = search.search(probes, 20)
        hits = sum(len(np.intersect1d(a.rows, b.rows)) for a, b in zip(found, truth, strict=True))
        if effort == most or hits >= _RECALL * sum(map(len, truth)):
            return
        effort *= 2


def _probes(vectors_ND: Vectors) -> Queries:
    """Passages with so much noise that the cosine is 0.5: as far off, and as hard to find, as questions are."""
    rng = np.random.default_rng(1)
    passages = vectors_ND[rng.integers(len(vectors_ND), size=_PROBES)].astype(np.float32)
    noise = rng.standard_normal(passages.shape, np.float32)
    noise *= np.linalg.norm(passages, axis=1, keepdims=True) / np.linalg.norm(noise, axis=1, keepdims=True)
    return 0.5 * passages + math.sqrt(0.75) * noise


def _reason(error: RuntimeError) -> str:
    """FAISS's own words, without the C++ they come wrapped in."""
    return str(error).strip().split("\n")[0].split("Error: ")[-1]
