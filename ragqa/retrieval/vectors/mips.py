"""Maximum inner product search over passage vectors: build, tune and open an index.

Legend: N passages, B queries, D width.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np

from ragqa.errors import BadInput
from ragqa.progress import SILENT, Progress
from ragqa.retrieval.base import Ranking, merge_rankings
from ragqa.retrieval.vectors import store
from ragqa.retrieval.vectors.arrays import NO_ROWS, DeletedRows, StackedVectors, Vectors
from ragqa.retrieval.vectors.exact import ExactIndex
from ragqa.retrieval.vectors.faiss_build import build_faiss
from ragqa.retrieval.vectors.faiss_files import load_faiss
from ragqa.retrieval.vectors.faiss_search import make_flat_faiss, open_faiss
from ragqa.retrieval.vectors.index_kinds import DEFAULT_RECALL, SPECS, Effort, FlatEngine, IndexKind
from ragqa.retrieval.vectors.tuning import TuningResult, tune

_CHOICES = {"kind": tuple(IndexKind), "engine": tuple(FlatEngine), "device": ("cpu", "cuda")}


class Mips(Protocol):
    """Index for maximum inner product search."""

    vectors: Vectors
    """All vectors [N, D]."""
    width: int
    """Width D of the vectors."""

    def __len__(self) -> int: ...

    def search(self, queries_BD: np.ndarray, k: int) -> list[Ranking]:
        """Return the ``k`` rows with the largest inner products for each query, best first.

        Args:
            queries_BD: query vectors [B, D].
            k: maximum number of rows of a query.

        Raises:
            BadInput: ``k`` is less than 1 or more than a GPU returns, or a query is not finite.
            Mismatch: the queries have another width than the vectors.
            DamagedArtefact: a vector is not finite.
        """


def check_kind(kind: str, device: str) -> None:
    """Check that FAISS can build ``kind`` on ``device``, before the slow work of embedding.

    Args:
        kind: an ``IndexKind``.
        device: ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        BadInput: the kind or device is unknown, or FAISS cannot build the kind on ``device``.
        MissingExtra: FAISS is not installed.
    """
    _check_choices(kind=kind, device=device)
    if kind != IndexKind.FLAT:
        load_faiss(kind, device)


def build(
    vectors: Vectors,
    kind: str,
    folder: Path,
    *,
    device: str = "cpu",
    recall: float = DEFAULT_RECALL,
    queries: np.ndarray | None = None,
    progress: Progress = SILENT,
) -> TuningResult | None:
    """Write vectors into ``folder`` and, except for kind flat, build and tune a FAISS index.

    Args:
        vectors: passage vectors [N, D], in memory or memory-mapped.
        kind: an ``IndexKind``.
        folder: existing directory without files of an index.
        device: device on which FAISS builds: ``cpu``, ``cuda`` or ``cuda:N``.
        recall: target of tuning: mean share of the 20 nearest vectors that a search finds, from 0 to 1.
        queries: vectors [B, D] of sample questions for tuning; None to make synthetic queries.
        progress: receiver of progress reports.

    Returns:
        The effort for ``open_index`` with its recall; None for kind flat, whose search is exact.

    Raises:
        BadInput: the kind or device is unknown, FAISS cannot build the kind on ``device``, a file cannot be written, or
            a query is not finite.
        Mismatch: the queries have another width than the vectors.
        MissingExtra: FAISS is not installed.
        DamagedArtefact: a vector is not finite.
    """
    check_kind(kind, device)
    write_rows(vectors, kind, folder)
    if kind == IndexKind.FLAT:
        return None
    with progress.step(kind, len(vectors), "passages") as step:
        build_faiss(vectors, kind, folder, device=device, progress=step.advance_to)
    return tune_index(vectors, kind, folder, recall=recall, queries=queries, progress=progress)


def write_rows(vectors: Vectors, kind: str, folder: Path) -> None:
    """Write the vectors into ``folder`` in the precision of ``kind``: 8 bits or float16.

    Raises:
        DamagedArtefact: a vector is not finite.
    """
    if kind in SPECS and SPECS[kind].stores_codes:
        store.write_codes(vectors, folder)
    else:
        store.write_vectors(vectors, folder / store.VECTORS_FILE)


def tune_index(
    vectors: Vectors,
    kind: str,
    folder: Path,
    *,
    recall: float = DEFAULT_RECALL,
    queries: np.ndarray | None = None,
    progress: Progress = SILENT,
) -> TuningResult:
    """Find the search effort for the FAISS index in ``folder``.

    Arguments and returned value: as for ``build``. Errors: as for ``open_faiss`` and ``tune``.
    """
    index = open_faiss(store.open_built_vectors(folder), kind, folder, device="cpu")
    with progress.step("tuning", len(vectors), "passages") as step:
        return tune(index, vectors, kind, target=recall, queries_BD=queries, progress=step.advance_to)


class _UpdatedIndex:
    """Built index, with exact search over the rows that updates added later."""

    def __init__(self, built: Mips, added: Mips, vectors_ND: Vectors) -> None:
        self.vectors, self.width = vectors_ND, built.width
        self._built, self._added = built, added

    def __len__(self) -> int:
        return len(self._built) + len(self._added)

    def search(self, queries_BD: np.ndarray, k: int) -> list[Ranking]:
        """Return the best ``k`` rows of both parts; arguments and errors: as for ``Mips.search``."""
        rankings = self._built.search(queries_BD, k), self._added.search(queries_BD, k)
        return [
            merge_rankings(built, Ranking(added.rows + len(self._built), added.scores), k)
            for built, added in zip(*rankings, strict=True)
        ]


def open_index(
    folder: Path,
    kind: str,
    *,
    effort: Effort | None = None,
    device: str = "cpu",
    engine: str = FlatEngine.AUTO,
    deleted: DeletedRows = NO_ROWS,
) -> Mips:
    """Open the index of ``kind`` in ``folder``.

    Args:
        folder: directory with the vectors, and ``faiss.index`` unless the kind is flat.
        kind: an ``IndexKind``.
        effort: search effort that ``build`` chose; None for a medium effort.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        engine: a ``FlatEngine``; kinds other than flat need ``auto`` or ``faiss``.
        deleted: sorted rows that no search returns.

    Raises:
        BadInput: the kind, engine or device is unknown, or the engine cannot search the kind on the device.
        MissingExtra: FAISS or torch is not installed.
        DamagedArtefact: a file is missing or damaged, or the files do not belong together.
    """
    _check_choices(kind=kind, engine=engine, device=device)
    if kind != IndexKind.FLAT and engine not in (FlatEngine.AUTO, FlatEngine.FAISS):
        raise BadInput(f"engine {engine} searches kind flat only, and {folder} is of kind {kind}")
    if engine == FlatEngine.NUMPY and device != "cpu":
        raise BadInput(f"engine numpy works on the CPU only: device cpu, or engine torch for {device}")
    if kind != IndexKind.FLAT:
        return _open_approximate(folder, kind, device, effort, deleted)
    vectors = store.open_vectors(folder)
    if engine == FlatEngine.AUTO:
        on_gpu = FlatEngine.TORCH if find_spec("torch") else FlatEngine.FAISS
        engine = FlatEngine.NUMPY if device == "cpu" else on_gpu
    if engine == FlatEngine.FAISS:
        return make_flat_faiss(vectors, device=device, deleted=deleted)
    return ExactIndex(vectors, deleted=deleted, engine=engine, device=device)


def _open_approximate(folder: Path, kind: str, device: str, effort: Effort | None, deleted: DeletedRows) -> Mips:
    vectors = store.open_built_vectors(folder)
    border = np.searchsorted(deleted, len(vectors))
    built = open_faiss(vectors, kind, folder, device=device, effort=effort, deleted=deleted[:border])
    added = store.open_added_vectors(folder)
    if added is None:
        return built
    exact = ExactIndex(added, deleted=deleted[border:] - len(vectors))
    return _UpdatedIndex(built, exact, StackedVectors([vectors, added]))


def _check_choices(**choices: str) -> None:
    for name, value in choices.items():
        if value.partition(":")[0] not in _CHOICES[name]:
            raise BadInput(f"{name} {value.partition(':')[0]}: choose one of {', '.join(_CHOICES[name])}")
