"""Maximum inner product search over passage vectors: the kinds of index, and how one is made and opened."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np

from ragqa.errors import BadInput
from ragqa.retrieval.base import Ranking, best
from ragqa.retrieval.exact import ExactIndex
from ragqa.retrieval.faiss_index import build_faiss, check_faiss, flat_faiss, open_faiss
from ragqa.retrieval.vectors import CHUNK, NONE, VECTORS, Deleted, Vectors, check_finite, open_all, open_vectors

__all__ = ["ENGINES", "KINDS", "VECTORS", "ExactIndex", "Mips", "build", "check", "open_index"]

KINDS = ("flat", "hnsw", "ivf-flat", "ivf-pq", "sq8")
ENGINES = ("auto", "numpy", "torch", "faiss")
"""What searches an index of kind flat; the other kinds are FAISS's."""
DEVICES = ("cpu", "cuda")


class Mips(Protocol):
    """Finds the vectors with the largest inner product."""

    vectors: Vectors | None
    """All vectors [N, D], where they are at hand."""
    width: int
    """D."""

    def __len__(self) -> int: ...

    def search(self, queries_BD: np.ndarray, k: int) -> list[Ranking]:
        """The ``k`` best rows, or all if they are fewer, for each query [D]."""
        ...


def check(kind: str, device: str) -> None:
    """Raise what ``build`` would raise for this kind and device, before there are vectors."""
    _check("kind", kind, KINDS)
    _check("device", device.partition(":")[0], DEVICES)
    if kind != "flat":
        check_faiss(kind, device)


def build(
    vectors: Vectors,
    kind: str,
    folder: Path,
    *,
    device: str = "cpu",
    progress: Callable[[int], None] | None = None,
) -> None:
    """Write what ``kind`` needs beside ``folder/vectors.npy``: ``folder/faiss.index``, or nothing if flat.

    Args:
        vectors: float16 [N, D], the same as in ``folder/vectors.npy``; may be memory-mapped.
        kind: one of ``KINDS``.
        device: where FAISS trains and adds, ``cpu`` or ``cuda``.
        progress: told the number of vectors that are in.

    Raises:
        BadInput: an unknown kind or device, or a kind that ``device`` cannot make.
        MissingExtra: FAISS is not installed.
        DamagedArtefact: a vector is not finite.
    """
    check(kind, device)
    if kind != "flat":
        return build_faiss(vectors, kind, folder, device=device, progress=progress)
    for first in range(0, len(vectors), CHUNK):
        check_finite(vectors[first : first + CHUNK], first)
        if progress:
            progress(min(first + CHUNK, len(vectors)))


class WithAdded:
    """An index over the first rows, and exact search over those that updates have added since."""

    def __init__(self, first: Mips, added: Mips, vectors_ND: Vectors) -> None:
        self.vectors: Vectors | None = vectors_ND
        self.width = first.width
        self._first, self._added = first, added

    def __len__(self) -> int:
        return len(self._first) + len(self._added)

    def search(self, queries_BD: np.ndarray, k: int) -> list[Ranking]:
        """The best of both, scores being exact in either."""
        found = self._first.search(queries_BD, k), self._added.search(queries_BD, k)
        return [
            best(np.concatenate([old.rows, new.rows + len(self._first)]), np.concatenate([old.scores, new.scores]), k)
            for old, new in zip(*found, strict=True)
        ]


def open_index(folder: Path, kind: str, *, device: str = "cpu", engine: str = "auto", deleted: Deleted = NONE) -> Mips:
    """The index of ``kind`` in ``folder``.

    Args:
        folder: holds ``vectors.npy``, and ``faiss.index`` unless the kind is flat.
        kind: one of ``KINDS``.
        device: ``cpu`` or ``cuda``.
        engine: one of ``ENGINES``, for kind flat; ``auto`` is numpy on a CPU, else torch where it is
            installed, else FAISS.
        deleted: rows that no search returns, sorted.

    Raises:
        BadInput: an unknown kind, engine or device, or a device that is not there or cannot search it.
        MissingExtra: FAISS or torch is not installed.
        DamagedArtefact: a file is missing or broken, or the files do not belong together.
    """
    _check("kind", kind, KINDS)
    _check("engine", engine, ENGINES)
    _check("device", device.partition(":")[0], DEVICES)
    if kind != "flat" and engine not in ("auto", "faiss"):
        raise BadInput(f"engine {engine} searches kind flat only, and {folder} is of kind {kind}")
    if engine == "numpy" and device != "cpu":
        raise BadInput(f"engine numpy works on the CPU only: device cpu, or engine torch for {device}")
    if kind != "flat":
        return _open_faiss(folder, kind, device, deleted)
    vectors = open_all(folder)
    if engine == "auto":
        engine = "numpy" if device == "cpu" else "torch" if find_spec("torch") else "faiss"
    if engine == "faiss":
        return flat_faiss(vectors, device=device, deleted=deleted)
    return ExactIndex(vectors, deleted=deleted, engine=engine, device=device)


def _open_faiss(folder: Path, kind: str, device: str, deleted: Deleted) -> Mips:
    """FAISS over the rows that it was built of; rows that were added since are few, and searched exactly."""
    vectors = open_vectors(folder / VECTORS)
    border = np.searchsorted(deleted, len(vectors))
    first = open_faiss(vectors, kind, folder, device=device, deleted=deleted[:border])
    everything = open_all(folder)
    if len(everything) == len(vectors):
        return first
    added = everything[len(vectors) : len(everything)]
    return WithAdded(first, ExactIndex(added, deleted=deleted[border:] - len(vectors)), everything)


def _check(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise BadInput(f"{name} {value}: choose one of {', '.join(allowed)}")
