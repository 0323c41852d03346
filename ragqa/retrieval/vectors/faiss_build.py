"""Build FAISS indexes from parts: train on a sample, add rows, merge the parts.

    trained      trained index without vectors                     train_index
    part-…       trained index with the codes of a range of rows   add_part, in any order, on any machine
    faiss.index  index of all rows                                 merge_parts
    faiss.lists  the codes, if there was more than one part

Only one part, or the sample, is in memory at a time. The single part of a graph (``hnsw``) takes 2 bytes per dimension,
and another 280 bytes, for each vector of the corpus.

Legend: N passages, D width.
"""

import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ragqa import artefacts
from ragqa.errors import BadInput, DamagedArtefact
from ragqa.retrieval.vectors import faiss_files
from ragqa.retrieval.vectors.arrays import Queries, Vectors, gather_rows, iter_chunks
from ragqa.retrieval.vectors.faiss_files import INDEX_FILE, LISTS_FILE, load_faiss
from ragqa.retrieval.vectors.index_kinds import SPECS, IndexKind

PART_ROWS = 262_144
"""Default number of rows in a part: 200 MB of float16 at a width of 384."""
_VECTORS_PER_LIST = 39
"""Number of training vectors per centroid; FAISS warns if there are fewer."""
_MAX_LISTS = 8192
"""Maximum number of lists; each added vector is compared with all their centroids."""
_KMEANS_ROUNDS = 10
"""Number of k-means rounds; FAISS's default of 25 has no measurable advantage."""
_CODES = 256
"""Number of centroids of each sub-quantiser: one for each value of a byte."""


def build_faiss(vectors_ND: Vectors, kind: str, folder: Path, *, device: str, progress: Callable[[int], None]) -> None:
    """Build a FAISS index of ``kind`` for inner products, and write it to ``folder``.

    Args:
        vectors_ND: vectors of all passages.
        kind: an approximate ``IndexKind``.
        folder: directory for ``faiss.index``, and for ``faiss.lists`` if there are several parts.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        progress: function called with the number of rows added so far.

    Raises:
        MissingExtra: FAISS is not installed.
        BadInput: FAISS cannot build this kind on ``device``, or a file cannot be written.
        DamagedArtefact: a vector is not finite.
    """
    work = folder / ".parts"
    work.mkdir()
    train_index(vectors_ND, kind, work / "trained", device=device)
    files = list[Path]()
    for first, last in split_parts(len(vectors_ND), kind):
        files.append(work / f"part-{len(files):05d}")
        add_part(work / "trained", vectors_ND, first, last, files[-1], device=device, progress=progress)
    merge_parts(work / "trained", files, folder)
    shutil.rmtree(work)


def split_parts(count: int, kind: str, size: int | None = None) -> list[tuple[int, int]]:
    """Return the first and last row (exclusive) of each part; a graph is one part.

    Args:
        count: number of rows of the index.
        kind: an approximate ``IndexKind``.
        size: number of rows in a part; by default ``PART_ROWS``.
    """
    size = count if SPECS[kind].is_graph else size or PART_ROWS
    return [(first, min(first + size, count)) for first in range(0, count, max(1, size))] or [(0, 0)]


def train_index(vectors_ND: Vectors, kind: str, file: Path, *, device: str = "cpu") -> None:
    """Train a FAISS index of ``kind`` on a random sample, and write it without vectors.

    Args:
        vectors_ND: vectors of all passages, from which the sample is drawn.
        kind: an approximate ``IndexKind``.
        file: file to write.
        device: ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        MissingExtra, BadInput, DamagedArtefact: as for ``build_faiss``.
    """
    faiss = load_faiss(kind, device)
    count, width = vectors_ND.shape
    lists = max(1, min(int(4 * math.sqrt(count)), count // _VECTORS_PER_LIST, _MAX_LISTS))
    # Each sub-vector of a product code has 4 values, or another small number that divides the width.
    sub_vectors = width // next(size for size in (4, 5, 6, 3, 7, 8, 2, 1) if width % size == 0)
    recipe = SPECS[kind].recipe.format(lists=lists, parts=sub_vectors)
    index = faiss.index_factory(width, recipe, faiss.METRIC_INNER_PRODUCT)
    if SPECS[kind].is_graph:
        index.hnsw.efConstruction = 100
        index.keep_max_size_level0 = True  # else groups of near-duplicate passages become unreachable
    else:
        index.cp.niter = _KMEANS_ROUNDS
        lists = index.nlist
    if kind == IndexKind.SQ8:
        index.by_residual = False
    if kind == IndexKind.IVF_PQ:
        index.pq.cp.min_points_per_centroid = 1  # FAISS would warn about every small corpus
    index = faiss_files.move_to(faiss, index, device)
    if count:
        index.train(_draw_sample(vectors_ND, _VECTORS_PER_LIST * max(lists, 2 * _CODES)))
    faiss_files.write_index(faiss, index, file, device)


def add_part(
    trained: Path,
    vectors_ND: Vectors,
    first: int,
    last: int,
    file: Path,
    *,
    device: str = "cpu",
    progress: Callable[[int], None] = lambda row: None,
) -> None:
    """Add a range of rows to a trained index, and write the result as a part.

    Args:
        trained: file that ``train_index`` wrote.
        vectors_ND: vectors of all passages.
        first: first row.
        last: last row (exclusive).
        file: file to write.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        progress: function called with the row number up to which rows are added.

    Raises:
        MissingExtra, BadInput, DamagedArtefact: as for ``build_faiss``.
    """
    faiss = load_faiss(IndexKind.FLAT, "cpu")
    index = faiss_files.move_to(faiss, faiss.read_index(str(trained)), device)
    for chunk, done in iter_chunks(vectors_ND, first, last):
        if hasattr(index, "nlist"):
            index.add_with_ids(chunk, np.arange(first + done - len(chunk), first + done))
        else:
            index.add(chunk)
        progress(first + done)
    faiss_files.write_index(faiss, index, file, device)


def merge_parts(trained: Path, files: Sequence[Path], folder: Path) -> None:
    """Merge parts into one index in ``folder``, without deleting the parts.

    Args:
        trained: file that ``train_index`` wrote.
        files: files of the parts, in any order.
        folder: directory of the index.

    Raises:
        MissingExtra: FAISS is not installed.
        BadInput: the disk has too little space for the index, or a file cannot be written.
        DamagedArtefact: a part is damaged, or the parts belong to different indexes.
    """
    file, lists_file = folder / INDEX_FILE, folder / LISTS_FILE
    lists_file.unlink(missing_ok=True)  # a file of an interrupted run would take space
    file.unlink(missing_ok=True)
    if len(files) == 1:
        artefacts.link_file(files[0], file)
        return
    faiss = load_faiss(IndexKind.FLAT, "cpu")
    needed, free = sum(part.stat().st_size for part in files), shutil.disk_usage(folder).free
    if needed > free:  # FAISS writes through a memory map, so a full disk would kill the process
        raise BadInput(f"cannot write {lists_file}: it needs {needed / 1e9:.1f} GB, and {free / 1e9:.1f} are free")
    try:
        parts = [faiss.read_index(str(part), faiss.IO_FLAG_MMAP) for part in files]
        pieces = faiss.InvertedListsPtrVector()
        for part in parts:
            pieces.push_back(part.invlists)
        index = faiss.read_index(str(trained))
        with faiss_files.mute_stdout():
            lists = faiss.OnDiskInvertedLists(index.nlist, index.code_size, str(lists_file))
            index.ntotal = lists.merge_from_multiple(pieces.data(), pieces.size())
    except RuntimeError as error:
        reason = faiss_files.describe_error(error)
        raise DamagedArtefact(f"the parts of {file} do not make an index: {reason}") from error
    lists.filename = LISTS_FILE  # a bare name, so that the index can be moved; read_mapped adds the folder
    index.replace_invlists(lists)
    faiss_files.write_index(faiss, index, file)


def _draw_sample(vectors_ND: Vectors, size: int) -> Queries:
    """Sample training vectors; repeat a small set, since FAISS needs a vector for each code."""
    count = len(vectors_ND)
    if count > size:
        rows = np.sort(np.random.default_rng(0).choice(count, size, replace=False))
    else:
        rows = np.resize(np.arange(count), max(count, _CODES))
    return gather_rows(vectors_ND, rows)
