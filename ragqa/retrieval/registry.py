"""Names and implementations of all retrievers, fusions and BM25 engines.

To add a retriever, write its file with a function ``open_ranker(index)``, and add one member to ``RetrieverKind`` and
one entry to ``_RETRIEVERS``. A retriever with data of its own also needs steps in ``ragqa/indexing``
(docs/architecture.md). This module names the implementations without importing them, so it loads fast.
"""

from dataclasses import dataclass
from enum import StrEnum
from pkgutil import resolve_name
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ragqa.retrieval.base import IndexVersion, Ranker

VECTORS_FOLDER, TERMS_FOLDER = "dense", "bm25"
"""Folders of an index with the passage vectors and with the terms of BM25."""


class RetrieverKind(StrEnum):
    """Kind of retriever, by its name on command lines and in manifests."""

    HYBRID = "hybrid"
    DENSE = "dense"
    BM25 = "bm25"

    @property
    def needs_vectors(self) -> bool:
        """True if the retriever searches passage vectors, for which it needs an encoder."""
        return _RETRIEVERS[self].needs_vectors

    @property
    def needs_terms(self) -> bool:
        """True if the retriever searches the terms of BM25."""
        return _RETRIEVERS[self].needs_terms

    @property
    def can_fuse(self) -> bool:
        """True if the retriever fuses two rankings, so that a ``Fusion`` can be chosen."""
        return _RETRIEVERS[self].can_fuse

    @property
    def has_inner_products(self) -> bool:
        """True if the scores of the retriever are inner products of the encoder's vectors."""
        return _RETRIEVERS[self].has_inner_products

    def can_search_as(self, other: "RetrieverKind") -> bool:
        """Return True if an index for this kind has the vectors and terms that ``other`` needs."""
        return other.needs_vectors <= self.needs_vectors and other.needs_terms <= self.needs_terms

    def with_vectors(self) -> "RetrieverKind":
        """Return the kind that an index of this kind has after vectors are added."""
        if self.needs_vectors:
            return self
        return RetrieverKind.HYBRID if self.needs_terms else RetrieverKind.DENSE

    def open_ranker(self, index: "IndexVersion") -> "Ranker":
        """Open a ranker of this kind over an index.

        Raises:
            BadInput: the engine, fusion or device is unknown.
            MissingExtra: a library that the ranker needs is not installed.
            Mismatch: the encoder has changed since the index was made, or an earlier ragqa made the index.
            ArtefactError, DamagedArtefact: the encoder or another file is missing or damaged.
        """
        ranker: Ranker = resolve_name(_RETRIEVERS[self].opener)(index)
        return ranker


DEFAULT_RETRIEVER = RetrieverKind.HYBRID


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """Implementation of a retriever, and its properties (see ``RetrieverKind``)."""

    opener: str
    """Dotted name of a function from an ``IndexVersion`` to a ``Ranker``."""
    needs_vectors: bool = False
    needs_terms: bool = False
    can_fuse: bool = False
    has_inner_products: bool = False


_RETRIEVERS = {
    RetrieverKind.HYBRID: _Entry(
        opener="ragqa.retrieval.hybrid:open_ranker", needs_vectors=True, needs_terms=True, can_fuse=True
    ),
    RetrieverKind.DENSE: _Entry(
        opener="ragqa.retrieval.dense:open_ranker", needs_vectors=True, has_inner_products=True
    ),
    RetrieverKind.BM25: _Entry(opener="ragqa.retrieval.bm25:open_ranker", needs_terms=True),
}


class Fusion(StrEnum):
    """Method that fuses the rankings of dense retrieval and BM25."""

    WEIGHTED = "weighted"
    """Sum of the inner product and the weighted BM25 score."""
    RECIPROCAL_RANK = "rrf"
    """Sum of reciprocal ranks (see ``ragqa.retrieval.hybrid.fuse_ranks``)."""


DEFAULT_FUSION = Fusion.WEIGHTED


class TermEngine(StrEnum):
    """Engine of BM25: the library that indexes and searches the terms."""

    TANTIVY = "tantivy"
    LUCENE = "lucene"

    @property
    def can_update(self) -> bool:
        """True if passages can be added to and deleted from an index of this engine."""
        return self is TermEngine.TANTIVY


DEFAULT_ENGINE = TermEngine.TANTIVY
TERM_ENGINES = {
    TermEngine.TANTIVY: "ragqa.retrieval.engines.tantivy:Tantivy",
    TermEngine.LUCENE: "ragqa.retrieval.engines.lucene:Lucene",
}
"""Dotted names of the classes that implement the engines."""
