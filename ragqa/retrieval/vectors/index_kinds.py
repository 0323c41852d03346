"""Kinds of vector index, and the effort of a search in one.

To add a FAISS index, add its name and one entry to ``SPECS``.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

DEFAULT_RECALL = 0.95
"""Share of the nearest passages that a search of an approximate kind must find."""
TUNED_K = 20
"""Number of nearest passages over which recall is measured and tuned."""


class IndexKind(StrEnum):
    """A kind of vector index, by its name on command lines and in manifests."""

    FLAT = "flat"
    """Exact search; all other kinds are approximate and need FAISS."""
    HNSW = "hnsw"
    IVF_FLAT = "ivf-flat"
    IVF_PQ = "ivf-pq"
    IVF_RABITQ = "ivf-rabitq"
    SQ8 = "sq8"


class FlatEngine(StrEnum):
    """A library that searches an index of kind flat."""

    AUTO = "auto"
    """numpy on a CPU, else torch where it is installed, else FAISS."""
    NUMPY = "numpy"
    TORCH = "torch"
    FAISS = "faiss"


DEFAULT_KIND = IndexKind.FLAT


@dataclass(frozen=True, kw_only=True)
class KindSpec:
    """Settings with which an approximate kind is built and searched."""

    recipe: str
    """FAISS ``index_factory`` string with the fields ``{lists}`` and ``{parts}`` (sub-vectors)."""
    factors: tuple[int, ...]
    """Numbers of candidates per passage that tuning tries; coarser codes need more."""
    runs_on_gpu: bool = False
    is_graph: bool = False
    """True for a graph, which is built as one part and searched from neighbour to neighbour."""
    stores_codes: bool = False
    """True if the stored vectors have 8 bits instead of 16, so that a search reads less."""


SPECS: dict[str, KindSpec] = {
    # Vectors are float16 already, so the half memory of fp16 codes costs nothing.
    IndexKind.HNSW: KindSpec(recipe="HNSW32_SQfp16", factors=(1,), is_graph=True),
    IndexKind.IVF_FLAT: KindSpec(recipe="IVF{lists},SQfp16", factors=(1,), runs_on_gpu=True),
    # np: no polysemous codes, which are slow to train and not used here.
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
    """Number of candidates per passage to score again when k is 20."""

    def count_candidates(self, k: int) -> int:
        """Return the number of candidates to score again, which grows with the root of ``k``.

        Measured at 165,871 vectors with ivf-rabitq: recall@100 is 0.948 with 894 candidates and 0.954 with 2,000;
        recall@5 is 0.968 with 200 and 0.957 with 100.
        """
        return k if self.factor == 1 else max(2 * k, round(self.factor * math.sqrt(TUNED_K * k)))

    @classmethod
    def from_manifest(cls, search: dict[str, Any] | None) -> "Effort | None":
        """Read the effort from a manifest's ``search`` entry; None if every search is exact."""
        return cls(search["reach"], search["factor"]) if search else None
