"""Load FAISS, and read and write its files."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ragqa import artefacts
from ragqa.errors import BadInput, MissingExtra, summarize_error
from ragqa.retrieval.vectors.exact import make_gpu_error
from ragqa.retrieval.vectors.index_kinds import GPU_KINDS, SPECS

INDEX_FILE, LISTS_FILE = "faiss.index", "faiss.lists"
"""Files of an index: the index, and its codes if it was merged from parts."""


def load_faiss(kind: str, device: str) -> Any:
    """Return the module ``faiss`` for an index of ``kind`` on ``device``.

    Args:
        kind: an ``IndexKind``.
        device: ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        MissingExtra: FAISS is not installed, or ``device`` is a GPU and FAISS was built without GPU support.
        BadInput: ``device`` is a GPU, and the kind works on the CPU only or FAISS sees no GPU.
    """
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
        raise make_gpu_error(device, "FAISS")
    return faiss


def move_to(faiss: Any, index: Any, device: str) -> Any:
    """Return a half-precision copy of an index on a GPU, or the index itself for ``cpu``.

    Args:
        faiss: module that ``load_faiss`` returned.
        index: index of FAISS on the CPU.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
    """
    if device == "cpu":
        return index
    options = faiss.GpuClonerOptions()
    options.useFloat16 = True
    number = int(device.partition(":")[2] or 0)
    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), number, index, options)


def write_index(faiss: Any, index: Any, file: Path, device: str = "cpu") -> None:
    """Write an index to a file, so that the file appears whole or not at all.

    Args:
        faiss: module that ``load_faiss`` returned.
        index: index of FAISS.
        file: file to write.
        device: device of the index: ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        BadInput: the file cannot be written.
    """
    try:
        with artefacts.replace_file(file) as temporary:
            faiss.write_index(index if device == "cpu" else faiss.index_gpu_to_cpu(index), str(temporary))
    except RuntimeError as error:
        raise BadInput(f"cannot write {file}: {describe_error(error)}") from error


def read_mapped(file: Path, kind: str) -> Any:
    """Open the index in ``file`` by memory mapping, so that its codes stay on disk.

    Args:
        file: file that ``write_index`` wrote.
        kind: ``IndexKind`` of the index.

    Raises:
        MissingExtra: FAISS is not installed.
        RuntimeError: FAISS cannot read the file, or ``faiss.lists`` is missing or incomplete.
    """
    faiss = load_faiss(kind, "cpu")
    if SPECS[kind].is_graph:
        return faiss.read_index(str(file), faiss.IO_FLAG_MMAP_IFC)
    lists_file = file.parent / LISTS_FILE
    if not lists_file.is_file():
        index = faiss.read_index(str(file), faiss.IO_FLAG_MMAP)
        if faiss.downcast_InvertedLists(index.invlists).filename == LISTS_FILE:
            raise RuntimeError(f"{LISTS_FILE} is missing")
        return index
    index = faiss.read_index(str(file), faiss.IO_FLAG_SKIP_IVF_DATA | faiss.IO_FLAG_READ_ONLY)
    lists = faiss.downcast_InvertedLists(index.invlists)
    if getattr(lists, "totsize", None) != lists_file.stat().st_size:
        raise RuntimeError(f"{LISTS_FILE} is not whole")
    lists.filename = str(lists_file)
    lists.do_mmap()
    return index


def find_disk_lists(index: Any) -> Any:
    """Return the inverted lists of an index if they are on disk, else None."""
    if not hasattr(index, "invlists"):
        return None
    import faiss

    lists = faiss.downcast_InvertedLists(index.invlists)
    return lists if hasattr(lists, "prefetch_nthread") else None


def describe_error(error: RuntimeError) -> str:
    """Return FAISS's message without the C++ location before it."""
    return summarize_error(error).split("Error: ")[-1]


@contextmanager
def mute_stdout() -> Iterator[None]:
    """Suppress the output of FAISS's C++ code in the block; standard output is for results."""
    flush = ctypes.CDLL(None).fflush
    sys.stdout.flush()
    flush(None)
    saved = os.dup(1)
    with open(os.devnull, "wb") as null:
        os.dup2(null.fileno(), 1)
    try:
        yield
        flush(None)
    finally:
        os.dup2(saved, 1)
        os.close(saved)
