"""Indexes of vectors for tests, and a slow search to compare them with."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ragqa.retrieval.base import Ranking
from ragqa.retrieval.vectors import mips
from ragqa.retrieval.vectors.index_kinds import IndexKind
from ragqa.retrieval.vectors.store import ADDED_FILE

APPROXIMATE_KINDS = [kind for kind in IndexKind if kind != "flat"]
ENGINES = ["numpy", "torch", "faiss"]
KINDS_AND_ENGINES = [*[("flat", engine) for engine in ENGINES], *[(kind, "auto") for kind in APPROXIMATE_KINDS]]
"""Each kind of index with each engine that can search it."""


def open_vectors(
    folder: Path,
    vectors: np.ndarray,
    kind: str = "flat",
    engine: str = "auto",
    *,
    added: Sequence[np.ndarray] = (),
    deleted: Sequence[int] = (),
) -> mips.Mips:
    """Build an index of ``vectors``, add and delete rows as updates do, and open it."""
    if kind != "flat" or engine == "faiss":
        pytest.importorskip("faiss", reason="needs the extra 'cpu'")
    if engine == "torch":
        pytest.importorskip("torch", reason="needs the extra 'torch'")
    tuned = mips.build(np.asarray(vectors, np.float16), kind, folder)
    for number, part in enumerate(added, 1):
        np.save(folder / ADDED_FILE.format(number), part)
    effort = tuned and tuned.effort
    return mips.open_index(folder, kind, effort=effort, engine=engine, deleted=np.array(sorted(deleted), np.int64))


def score_tolerance(kind: str) -> float:
    """Return how far a score may be from the inner product; only 8-bit vectors are inexact."""
    return 0.01 if kind == "ivf-rabitq" else 1e-6


def make_unit_vectors(count: int, width: int, seed: int = 0) -> np.ndarray:
    """Return random unit vectors in clusters, as texts about the same subject are."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((max(1, count // 20), width))
    vectors = centres[rng.integers(len(centres), size=count)] + 0.7 * rng.standard_normal((count, width))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)


def search_by_sorting(vectors: np.ndarray, query: np.ndarray, k: int) -> list[tuple[int, float]]:
    """Return the k best rows and scores: all inner products in plain Python, ties by row."""
    scores = [sum(float(a) * float(b) for a, b in zip(row, query, strict=True)) for row in vectors]
    return sorted(enumerate(scores), key=lambda pair: (-pair[1], pair[0]))[:k]


def measure_recall(found: list[Ranking], truth: list[Ranking]) -> float:
    """Return the share of the true rows that were found."""
    hits = sum(len(np.intersect1d(a.rows, b.rows)) for a, b in zip(found, truth, strict=True))
    return hits / sum(len(ranking) for ranking in truth)
