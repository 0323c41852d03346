"""LlamaIndex finds passages, and its query engines read them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llama_index.core", reason="llama-index-core is not installed; `make test-slow` installs it")

from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine

from ragqa import Pipeline
from ragqa.integrations.llama_index import LlamaIndexRetriever

pytestmark = pytest.mark.filterwarnings("ignore")
QUESTION = "Who built Skarvik Lighthouse?"


def test_the_retriever_gives_the_passages_of_the_index(index: Path) -> None:
    retriever = LlamaIndexRetriever(str(index), similarity_top_k=3)
    hits = Pipeline.load(index).retriever.search([QUESTION], 3)[0]
    nodes: list[Any] = list(retriever.retrieve(QUESTION))
    assert [(n.node.text, n.score) for n in nodes] == [(hit.passage.text, hit.score) for hit in hits]
    best, first = hits[0].passage, nodes[0].node
    assert (first.start_char_idx, first.end_char_idx) == (best.start, best.end)
    assert first.metadata["line"] == best.number and first.node_id == f"{best.document}#{best.start}"
    assert [n.node_id for n in asyncio.run(retriever.aretrieve(QUESTION))] == [n.node_id for n in nodes]


def test_a_query_engine_gives_the_passages_to_the_language_model(index: Path) -> None:
    engine = RetrieverQueryEngine.from_args(LlamaIndexRetriever(str(index), 2), llm=MockLLM())
    response = engine.query(QUESTION)
    assert len(response.source_nodes) == 2
    assert response.source_nodes[0].node.get_content() in str(response)  # the stand-in repeats its prompt
