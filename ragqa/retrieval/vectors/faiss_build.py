"""Indexes by FAISS, made of parts: a quantiser is trained on a sample, rows are added part by part, parts are merged.

    trained      the index without a vector                         train
    part-…       the same, with the codes of a range of rows        add, in any order, by whoever is free
    faiss.index  all of them; more than one part lie in             merge
    faiss.lists

No more than a part, or the sample, is in memory while it is made, except for the graph of ``hnsw``, which is one part
and grows with the corpus (by 2 bytes a dimension and 280 a vector).

Shapes: N passages, D width.
"""

import ctypes
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ragqa.errors import BadInput, DamagedArtefact, MissingExtra
from ragqa.retrieval.vectors.exact import no_gpu
from ragqa.retrieval.vectors.kinds import GPU_KINDS, SPECS, IndexKind
from ragqa.retrieval.vectors.store import Queries, Vectors, chunks, gathered

FILE, LISTS = "faiss.index", "faiss.lists"
PART = 262_144
"""Rows of a part: 200 MB of float16 at a width of 384."""

_PER_LIST = 39
"""Training vectors for each centroid; with fewer FAISS warns."""
_MOST_LISTS = 8192
"""To add a vector is to compare it with every centroid: with more, 21 million would take a CPU hours."""
_ROUNDS = 10
"""Of k-means; FAISS's 25 gain nothing that could be measured."""
_CODES = 256


def build_faiss(
    vectors_ND: Vectors, kind: str, folder: Path, *, device: str, progress: Callable[[int], None] | None
) -> None:
    """Write ``folder/faiss.index``, an index of ``kind`` over ``vectors_ND`` for inner products.

    Raises:
        MissingExtra: FAISS is not installed.
        BadInput: ``device`` cannot make this kind, or a file cannot be written.
        DamagedArtefact: a vector is not finite.
    """
    work = folder / ".parts"
    work.mkdir()
    train(vectors_ND, kind, work / "trained", device=device)
    files = []
    for number, (first, last) in enumerate(parts(len(vectors_ND), kind)):

        def told(done: int, before: int = first) -> None:
            if progress:
                progress(before + done)

        files.append(work / f"part-{number:05d}")
        add(work / "trained", vectors_ND, first, last, files[-1], device=device, progress=told)
    merge(work / "trained", files, folder)
    shutil.rmtree(work)


def parts(count: int, kind: str, size: int | None = None) -> list[tuple[int, int]]:
    """First and last row of each part, ``size`` rows or ``PART``; at least one, and only one of a graph."""
    size = count if SPECS[kind].is_graph else size or PART
    return [(first, min(first + size, count)) for first in range(0, count, max(1, size))] or [(0, 0)]


def train(vectors_ND: Vectors, kind: str, file: Path, *, device: str = "cpu") -> None:
    """Write an index of ``kind`` without a vector, trained on a sample of ``vectors_ND``; raises as ``build_faiss``."""
    faiss = load_faiss(kind, device)
    count, width = vectors_ND.shape
    lists = max(1, min(int(4 * math.sqrt(count)), count // _PER_LIST, _MOST_LISTS))
    recipe = SPECS[kind].recipe.format(lists=lists, parts=_sub_vectors(width))
    index = faiss.index_factory(width, recipe, faiss.METRIC_INNER_PRODUCT)
    if SPECS[kind].is_graph:
        index.hnsw.efConstruction = 100
        index.keep_max_size_level0 = True  # else near-duplicate passages become islands
    else:
        index.cp.niter = _ROUNDS
        lists = index.nlist
    if kind == IndexKind.SQ8:
        index.by_residual = False
    if kind == IndexKind.IVF_PQ:
        index.pq.cp.min_points_per_centroid = 1  # a small corpus is no reason to warn
    if device != "cpu":
        index = to_gpu(faiss, index, device)
    if count:
        index.train(_sample(vectors_ND, _PER_LIST * max(lists, 2 * _CODES)))
    write(faiss, faiss.index_gpu_to_cpu(index) if device != "cpu" else index, file)


def add(
    trained: Path,
    vectors_ND: Vectors,
    first: int,
    last: int,
    file: Path,
    *,
    device: str = "cpu",
    progress: Callable[[int], None] | None = None,
) -> None:
    """Write the part of rows ``first … last`` of ``vectors_ND``, by their numbers; raises as ``build_faiss``."""
    faiss = load_faiss(IndexKind.FLAT, "cpu")
    index = faiss.read_index(str(trained))
    if device != "cpu":
        index = to_gpu(faiss, index, device)
    for chunk, done in chunks(vectors_ND, first, last):
        if hasattr(index, "nlist"):
            index.add_with_ids(chunk, np.arange(first + done - len(chunk), first + done))
        else:
            index.add(chunk)
        if progress:
            progress(done)
    write(faiss, faiss.index_gpu_to_cpu(index) if device != "cpu" else index, file)


def merge(trained: Path, files: Sequence[Path], folder: Path) -> None:
    """Make one index of the parts, whose order does not matter; they stay, a single one as another name of the index.

    Raises:
        BadInput: there is no room for it.
        DamagedArtefact: the parts are not whole, or not of one index.
    """
    (folder / LISTS).unlink(missing_ok=True)  # left by a run that was killed: it would take the room
    (folder / FILE).unlink(missing_ok=True)
    if len(files) == 1:
        _link(files[0], folder / FILE)
        return
    faiss = load_faiss(IndexKind.FLAT, "cpu")
    needed = sum(file.stat().st_size for file in files)
    free = shutil.disk_usage(folder).free
    if needed > free:  # FAISS writes through a memory map, and a full disk would kill the process
        raise BadInput(f"cannot write {folder / LISTS}: it needs {needed / 1e9:.1f} GB, and {free / 1e9:.1f} are free")
    try:
        _write_merged(faiss, trained, files, folder)
    except RuntimeError as error:
        raise DamagedArtefact(f"the parts of {folder / FILE} do not make an index: {reason(error)}") from error


def _write_merged(faiss: Any, trained: Path, files: Sequence[Path], folder: Path) -> None:
    opened = [faiss.read_index(str(file), faiss.IO_FLAG_MMAP) for file in files]
    pieces = faiss.InvertedListsPtrVector()
    for part in opened:
        pieces.push_back(part.invlists)
    index = faiss.read_index(str(trained))
    with _hushed():
        lists = faiss.OnDiskInvertedLists(index.nlist, index.code_size, str(folder / LISTS))
        index.ntotal = lists.merge_from_multiple(pieces.data(), pieces.size())
    lists.filename = LISTS  # whoever opens it knows the folder
    index.replace_invlists(lists)
    write(faiss, index, folder / FILE)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


@contextmanager
def _hushed() -> Iterator[None]:
    """Keep what FAISS's C++ side prints off standard output, where results go."""
    flush = ctypes.CDLL(None).fflush
    sys.stdout.flush()
    flush(None)
    kept = os.dup(1)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        yield
        flush(None)
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def read_mapped(file: Path, kind: str) -> Any:
    """The index in ``file`` with its codes on disk: in a file of their own, within ``file``, or with a graph's links.

    Raises RuntimeError as FAISS does.
    """
    faiss = load_faiss(kind, "cpu")
    if SPECS[kind].is_graph:
        return faiss.read_index(str(file), faiss.IO_FLAG_MMAP_IFC)
    apart = file.parent / LISTS
    if not apart.is_file():
        index = faiss.read_index(str(file), faiss.IO_FLAG_MMAP)
        if faiss.downcast_InvertedLists(index.invlists).filename == LISTS:
            raise RuntimeError(f"{LISTS} is missing")
        return index
    index = faiss.read_index(str(file), faiss.IO_FLAG_SKIP_IVF_DATA | faiss.IO_FLAG_READ_ONLY)
    lists = faiss.downcast_InvertedLists(index.invlists)
    if getattr(lists, "totsize", None) != apart.stat().st_size:
        raise RuntimeError(f"{LISTS} is not whole")
    lists.filename = str(apart)
    lists.do_mmap()
    return index


def on_disk(index: Any) -> Any:
    """The lists of an index that was read mapped; None where they are in memory, or there are none."""
    lists = getattr(index, "invlists", None)
    if lists is None:
        return None
    import faiss

    found = faiss.downcast_InvertedLists(lists)
    return found if hasattr(found, "prefetch_nthread") else None


def write(faiss: Any, index: Any, file: Path) -> None:
    """Write an index aside and rename it; raises BadInput where it cannot be written."""
    aside = file.with_name(f".{file.name}.writing")
    try:
        faiss.write_index(index, str(aside))
    except RuntimeError as error:
        aside.unlink(missing_ok=True)
        raise BadInput(f"cannot write {file}: {reason(error)}") from error
    aside.replace(file)


def load_faiss(kind: str, device: str) -> Any:
    """faiss, once it is known to do ``kind`` on ``device``; raises MissingExtra or BadInput."""
    on_gpu = device != "cpu"
    if on_gpu and kind not in GPU_KINDS:
        raise BadInput(f"kind {kind} works on the CPU only: use device cpu, or kind {', '.join(GPU_KINDS)}")
    try:
        import faiss
    except ImportError as error:
        raise MissingExtra(f"an index of kind {kind}", "gpu" if on_gpu else "cpu") from error
    if on_gpu and not hasattr(faiss, "StandardGpuResources"):
        raise MissingExtra(f"FAISS on {device}", "gpu")
    if on_gpu and not faiss.get_num_gpus():
        raise no_gpu(device, "FAISS")
    return faiss


def to_gpu(faiss: Any, index: Any, device: str) -> Any:
    """``index`` on the GPU that ``device`` names."""
    options = faiss.GpuClonerOptions()
    options.useFloat16 = True
    number = int(device.partition(":")[2] or 0)
    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), number, index, options)


def reason(error: RuntimeError) -> str:
    """FAISS's own words, without the C++ they come wrapped in."""
    return str(error).strip().split("\n")[0].split("Error: ")[-1]


def _sub_vectors(width: int) -> int:
    """Sub-vectors of a product code: of 4 values, or as near to that as divides ``width``; a byte each."""
    return width // next(size for size in (4, 5, 6, 3, 7, 8, 2, 1) if width % size == 0)


def _sample(vectors_ND: Vectors, size: int) -> Queries:
    """Training vectors drawn at random; few are repeated, since FAISS wants more points than codes."""
    count = len(vectors_ND)
    if count > size:
        rows = np.sort(np.random.default_rng(0).choice(count, size, replace=False))
    else:
        rows = np.resize(np.arange(count), max(count, _CODES))
    return gathered(vectors_ND, rows)
