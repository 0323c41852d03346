"""Kinds of retrievers and engines: their implementations, and the parts of an index that they need."""

import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

from ragqa.retrieval.registry import TERM_ENGINES, RetrieverKind, TermEngine


@pytest.mark.parametrize("engine", TermEngine)
def test_every_engine_is_implemented_under_its_name(engine: TermEngine) -> None:
    assert resolve_name(TERM_ENGINES[engine]).name is engine


@pytest.mark.parametrize(
    ("kind", "vectors", "terms"),
    [(RetrieverKind.HYBRID, True, True), (RetrieverKind.DENSE, True, False), (RetrieverKind.BM25, False, True)],
)
def test_a_kind_knows_the_parts_it_needs(kind: RetrieverKind, vectors: bool, terms: bool) -> None:
    assert (kind.needs_vectors, kind.needs_terms) == (vectors, terms)


@pytest.mark.parametrize("page", ["ask.md", "index.md", "train/fid.md"])
def test_the_documents_list_every_kind(page: str) -> None:
    text = (Path(__file__).parents[3] / "docs" / page).read_text("utf-8")
    (choices,) = re.findall(r"(?m)^\| `--retriever` \| (.+) \|$", text)
    assert set(re.findall(r"`(\w+)`", choices)) == set(RetrieverKind)


def test_a_hybrid_index_serves_every_kind_and_others_only_their_own() -> None:
    kinds = RetrieverKind.HYBRID, RetrieverKind.DENSE, RetrieverKind.BM25
    served = {made: {kind for kind in kinds if made.can_search_as(kind)} for made in kinds}
    assert served == {kind: set(kinds) if kind is RetrieverKind.HYBRID else {kind} for kind in kinds}


@pytest.mark.parametrize(
    ("made", "with_vectors"),
    [
        (RetrieverKind.HYBRID, RetrieverKind.HYBRID),
        (RetrieverKind.DENSE, RetrieverKind.DENSE),
        (RetrieverKind.BM25, RetrieverKind.HYBRID),
    ],
)
def test_an_index_that_gets_vectors_searches_all_that_it_has(made: RetrieverKind, with_vectors: RetrieverKind) -> None:
    assert made.with_vectors() is with_vectors
