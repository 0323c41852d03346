"""LangChain finds passages in chains."""

import asyncio
import pickle
from pathlib import Path

import pytest

pytest.importorskip("langchain_core", reason="langchain-core is not installed; `make test-slow` installs it")

from langchain_core.runnables import RunnableLambda

from ragqa import Pipeline
from ragqa.integrations.langchain import LangChainRetriever

pytestmark = pytest.mark.filterwarnings("ignore")
QUESTION = "Who built Skarvik Lighthouse?"


def test_the_retriever_gives_the_passages_of_the_index(index: Path) -> None:
    retriever = LangChainRetriever(index=str(index), k=3)
    hits = Pipeline.load(index).retriever.search([QUESTION], 3)[0]
    documents = retriever.invoke(QUESTION)
    assert [(d.page_content, d.metadata["score"]) for d in documents] == [(h.passage.text, h.score) for h in hits]
    best = hits[0].passage
    assert documents[0].id == f"{best.document}#{best.start}" and documents[0].metadata["line"] == best.number
    assert len(retriever.invoke(QUESTION, k=1)) == 1
    assert asyncio.run(retriever.ainvoke(QUESTION)) == documents
    assert retriever.batch([QUESTION] * 5) == [documents] * 5
    assert pickle.loads(pickle.dumps(retriever)).invoke(QUESTION) == documents


def test_chains(index: Path) -> None:
    chain = LangChainRetriever(index=str(index)) | RunnableLambda(lambda documents: documents[0].metadata["title"])
    pipeline = Pipeline.load(index)
    assert chain.invoke(QUESTION) == pipeline.retriever.search([QUESTION], 1)[0][0].passage.title
    answering = RunnableLambda(pipeline.ask) | (lambda answer: answer.text)
    assert answering.invoke(QUESTION) == pipeline.ask(QUESTION).text
