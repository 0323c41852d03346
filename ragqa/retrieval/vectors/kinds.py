"""The kinds of vector index, each said once.

To add a kind of FAISS's, add its name and one entry to ``SPECS``.
"""

from dataclasses import dataclass
from enum import StrEnum


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
    """How an approximate kind is built and searched."""

    recipe: str
    """Description for FAISS's ``index_factory``, with places for ``lists`` and ``parts`` (sub-vectors)."""
    factors: tuple[int, ...]
    """Candidates to score again for each passage asked for, as tuning tries them: coarser codes need more."""
    runs_on_gpu: bool = False
    is_graph: bool = False
    """Built as one part, searched by walking from neighbour to neighbour."""
    stores_codes: bool = False
    """Whether the vectors beside the index are kept in 8 bits, so that a search reads less, and not in float16."""


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
