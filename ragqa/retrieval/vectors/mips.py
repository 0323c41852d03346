"""Maximum inner product search over passage vectors: the kinds of index, and how one is made and opened."""

from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np

from ragqa.errors import BadInput
from ragqa.progress import SILENT, Progress
from ragqa.retrieval.base import Ranking, select_best
from ragqa.retrieval.vectors.exact import ExactIndex
from ragqa.retrieval.vectors.faiss_build import build_faiss, load_faiss
from ragqa.retrieval.vectors.faiss_index import Effort, flat_faiss, open_faiss
from ragqa.retrieval.vectors.kinds import SPECS, FlatEngine, IndexKind
from ragqa.retrieval.vectors.store import (
    NONE,
    VECTORS,
    Deleted,
    Stacked,
    Vectors,
    open_added,
    open_all,
    open_first,
    write_codes,
    write_vectors,
)
from ragqa.retrieval.vectors.tuning import RECALL, Tuned, tune

__all__ = [
    "RECALL",
    "VECTORS",
    "Effort",
    "ExactIndex",
    "Mips",
    "Tuned",
    "build",
    "check",
    "open_index",
]

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
    _check("kind", kind, tuple(IndexKind))
    _check("device", device.partition(":")[0], DEVICES)
    if kind != IndexKind.FLAT:
        load_faiss(kind, device)


def build(
    vectors: Vectors,
    kind: str,
    folder: Path,
    *,
    device: str = "cpu",
    recall: float = RECALL,
    queries: np.ndarray | None = None,
    progress: Progress = SILENT,
) -> Tuned | None:
    """Write an index of ``kind`` over ``vectors`` into ``folder``: their file, and FAISS's unless it is flat.

    Args:
        vectors: [N, D]; may be memory-mapped, of one file or of many.
        kind: an ``IndexKind``.
        folder: holds nothing of the kind.
        device: where FAISS trains and adds, ``cpu`` or ``cuda``.
        recall: share of the 20 best that a search is to find.
        queries: [B, D], a sample of questions on which that is tried; by default some are made up.
        progress: told how far it is.

    Returns:
        How hard the index is to be searched, for ``open_index``; None where every search is exact.

    Raises:
        BadInput: an unknown kind or device, or a kind that ``device`` cannot make.
        MissingExtra: FAISS is not installed.
        DamagedArtefact: a vector is not finite.
    """
    check(kind, device)
    write_rows(vectors, kind, folder)
    if kind == IndexKind.FLAT:
        return None
    with progress.step(kind, len(vectors), "passages") as step:
        build_faiss(vectors, kind, folder, device=device, progress=step.at)
    return tuned(vectors, kind, folder, recall=recall, queries=queries, progress=progress)


def write_rows(vectors: Vectors, kind: str, folder: Path) -> None:
    """Write the vectors as ``kind`` keeps them: in 8 bits where a search must not read more, else in float16."""
    if kind in SPECS and SPECS[kind].stores_codes:
        write_codes(vectors, folder)
    else:
        write_vectors(vectors, folder / VECTORS)


def tuned(
    vectors: Vectors,
    kind: str,
    folder: Path,
    *,
    recall: float = RECALL,
    queries: np.ndarray | None = None,
    progress: Progress = SILENT,
) -> Tuned:
    """How hard the index in ``folder`` is to be searched; arguments as for ``build``."""
    index = open_faiss(open_first(folder), kind, folder, device="cpu")
    with progress.step("tuning", len(vectors), "passages") as step:
        return tune(index, vectors, kind, wanted=recall, queries_BD=queries, progress=step.at)


class WithAdded:
    """An index over the first rows, and exact search over those that updates have added since."""

    def __init__(self, first: Mips, added: Mips, vectors_ND: Vectors) -> None:
        self.vectors: Vectors | None = vectors_ND
        self.width = first.width
        self._first, self._added = first, added

    def __len__(self) -> int:
        return len(self._first) + len(self._added)

    def search(self, queries_BD: np.ndarray, k: int) -> list[Ranking]:
        """The best of both; scores are inner products with what is kept, in 8 bits or in 16."""
        found = self._first.search(queries_BD, k), self._added.search(queries_BD, k)
        return [
            select_best(
                np.concatenate([old.rows, new.rows + len(self._first)]), np.concatenate([old.scores, new.scores]), k
            )
            for old, new in zip(*found, strict=True)
        ]


def open_index(
    folder: Path,
    kind: str,
    *,
    effort: Effort | None = None,
    device: str = "cpu",
    engine: str = FlatEngine.AUTO,
    deleted: Deleted = NONE,
) -> Mips:
    """The index of ``kind`` in ``folder``.

    Args:
        folder: holds the vectors, and ``faiss.index`` unless the kind is flat.
        kind: an ``IndexKind``.
        effort: how hard it is searched, as ``build`` found it; without it a middling one.
        device: ``cpu`` or ``cuda``.
        engine: a ``FlatEngine``, for kind flat; ``auto`` is numpy on a CPU, else torch where it is
            installed, else FAISS.
        deleted: rows that no search returns, sorted.

    Raises:
        BadInput: an unknown kind, engine or device, or a device that is not there or cannot search it.
        MissingExtra: FAISS or torch is not installed.
        DamagedArtefact: a file is missing or broken, or the files do not belong together.
    """
    _check("kind", kind, tuple(IndexKind))
    _check("engine", engine, tuple(FlatEngine))
    _check("device", device.partition(":")[0], DEVICES)
    if kind != IndexKind.FLAT and engine not in (FlatEngine.AUTO, FlatEngine.FAISS):
        raise BadInput(f"engine {engine} searches kind flat only, and {folder} is of kind {kind}")
    if engine == FlatEngine.NUMPY and device != "cpu":
        raise BadInput(f"engine numpy works on the CPU only: device cpu, or engine torch for {device}")
    if kind != IndexKind.FLAT:
        return _open_faiss(folder, kind, device, effort, deleted)
    vectors = open_all(folder)
    if engine == FlatEngine.AUTO:
        engine = _choose_engine(device)
    if engine == FlatEngine.FAISS:
        return flat_faiss(vectors, device=device, deleted=deleted)
    return ExactIndex(vectors, deleted=deleted, engine=engine, device=device)


def _choose_engine(device: str) -> FlatEngine:
    if device == "cpu":
        return FlatEngine.NUMPY
    return FlatEngine.TORCH if find_spec("torch") else FlatEngine.FAISS


def _open_faiss(folder: Path, kind: str, device: str, effort: Effort | None, deleted: Deleted) -> Mips:
    """FAISS over the rows that it was built of; rows that were added since are few, and searched exactly."""
    vectors = open_first(folder)
    border = np.searchsorted(deleted, len(vectors))
    first = open_faiss(vectors, kind, folder, device=device, effort=effort, deleted=deleted[:border])
    added = open_added(folder)
    if added is None:
        return first
    since = ExactIndex(added, deleted=deleted[border:] - len(vectors))
    return WithAdded(first, since, Stacked([vectors, added]))


def _check(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise BadInput(f"{name} {value}: choose one of {', '.join(allowed)}")
