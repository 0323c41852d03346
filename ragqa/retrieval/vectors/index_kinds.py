"""Kinds of vector indexes, and the search effort of approximate kinds.

To add a kind of FAISS index, add one member to ``IndexKind`` and one entry to ``SPECS``.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ragqa.artefacts import check_count

DEFAULT_RECALL = 0.95
"""Default target of tuning: mean share of the 20 nearest passages that a search of an approximate kind finds."""
TUNED_K = 20
"""Number of nearest passages over which recall is measured and tuned."""


class IndexKind(StrEnum):
    """Kind of vector index, by its name on command lines and in manifests."""

    FLAT = "flat"
    """Exact search; all other kinds are approximate and need FAISS."""
    HNSW = "hnsw"
    IVF_FLAT = "ivf-flat"
    IVF_PQ = "ivf-pq"
    IVF_RABITQ = "ivf-rabitq"
    SQ8 = "sq8"


class FlatEngine(StrEnum):
    """Library that searches an index of kind ``flat``."""

    AUTO = "auto"
    """numpy on a CPU; on a GPU, torch if it is installed, else FAISS."""
    NUMPY = "numpy"
    TORCH = "torch"
    FAISS = "faiss"


DEFAULT_KIND = IndexKind.FLAT


@dataclass(frozen=True, kw_only=True)
class KindSpec:
    """Settings for building and tuning an approximate kind."""

    recipe: str
    """String for FAISS's ``index_factory``; fields: ``{lists}`` and ``{parts}``, the number of sub-vectors."""
    factors: tuple[int, ...]
    """Values of ``Effort.factor`` that tuning tries; coarser codes need more candidates."""
    runs_on_gpu: bool = False
    is_graph: bool = False
    """True if the index is a graph, which is built as one part."""
    stores_codes: bool = False
    """True if the stored vectors have 8 bits per value instead of 16, so that a search reads less."""


SPECS: dict[str, KindSpec] = {
    # The stored vectors are float16, so fp16 codes lose nothing and take half the memory of float32.
    IndexKind.HNSW: KindSpec(recipe="HNSW32_SQfp16", factors=(1,), is_graph=True),
    IndexKind.IVF_FLAT: KindSpec(recipe="IVF{lists},SQfp16", factors=(1,), runs_on_gpu=True),
    # np turns off polysemous codes, which are slow to train and not used here.
    IndexKind.IVF_PQ: KindSpec(recipe="IVF{lists},PQ{parts}np", factors=(4, 8, 16), runs_on_gpu=True),
    IndexKind.IVF_RABITQ: KindSpec(recipe="IVF{lists},RaBitQ", factors=(10, 20, 40, 80), stores_codes=True),
    # One list makes a flat index whose parts can be merged and memory-mapped.
    IndexKind.SQ8: KindSpec(recipe="IVF1,SQ8", factors=(2,)),
}
GPU_KINDS = (IndexKind.FLAT, *(kind for kind, spec in SPECS.items() if spec.runs_on_gpu))


@dataclass(frozen=True)
class Effort:
    """Search effort of an approximate index, chosen by ``tuning`` for a target recall."""

    reach: int = 64
    """Number of lists to probe (nprobe), or of candidates in a graph search (efSearch)."""
    factor: int = 4
    """Number of candidates to score again per returned passage, if a search returns 20 passages."""

    def count_candidates(self, k: int) -> int:
        """Return the number of candidates to score again for ``k`` passages.

        For factor 1 it is ``k``. Otherwise it grows with the square root of ``k``, but is at least 2k: a fixed number
        per passage is too small for a small ``k``, and slow for a large one.
        """
        return k if self.factor == 1 else max(2 * k, round(self.factor * math.sqrt(TUNED_K * k)))

    @classmethod
    def from_manifest(cls, search: dict[str, Any] | None) -> "Effort | None":
        """Read the effort from the entry ``search`` of a manifest; None if the search is exact.

        Raises:
            ValueError, KeyError, TypeError: the entry is damaged.
        """
        if not search:
            return None
        for name in ("reach", "factor"):
            check_count(search[name], name)
        return cls(search["reach"], search["factor"])
