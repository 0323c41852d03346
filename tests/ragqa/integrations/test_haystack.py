"""Haystack finds passages and marks answers in its own documents."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("haystack", reason="haystack-ai is not installed; `make test-slow` installs it")

from haystack import Document, ExtractedAnswer
from haystack import Pipeline as HaystackPipeline

import ragqa
from ragqa.errors import ArtefactError
from ragqa.integrations.haystack import HaystackReader, HaystackRetriever

pytestmark = pytest.mark.filterwarnings("ignore")
QUESTION = "Who built Skarvik Lighthouse?"


def test_the_retriever_gives_the_passages_of_the_index(index: Path) -> None:
    retriever = HaystackRetriever(str(index), top_k=3)
    hits = ragqa.Pipeline.load(index).retriever.search([QUESTION], 3)[0]
    documents = retriever.run(QUESTION)["documents"]
    assert [(d.content, d.score) for d in documents] == [(hit.passage.text, hit.score) for hit in hits]
    first, best = documents[0], hits[0].passage
    assert first.id == f"{best.document}#{best.start}" and first.meta["line"] == best.number
    assert (first.meta["title"], first.meta["path"]) == (best.title, best.path) and "page" not in first.meta
    assert len(retriever.run(QUESTION, top_k=1)["documents"]) == 1
    assert HaystackRetriever(str(index), paths=["*.none"]).run(QUESTION)["documents"] == []


def test_answers_have_offsets_in_any_documents() -> None:
    documents = [
        Document(content="The ferry leaves at noon.", id="ferry"),
        Document(content=None, id="empty"),
        Document(content="Skarvik Lighthouse was built by Ada Holm in 1871.", id="tower", meta={"title": "Skarvik"}),
    ]
    answers = HaystackReader(top_k=2).run(QUESTION, documents)["answers"]
    assert isinstance(answers[0], ExtractedAnswer)
    best: Any = answers[0]
    assert best.data == "Ada Holm" and best.document.id == "tower"
    assert (
        (best.document_offset.start, best.document_offset.end)
        == (32, 40)
        == (
            best.context_offset.start,
            best.context_offset.end,
        )
    )
    assert sum(answer.data is None for answer in answers) == 1 and len(answers) == 3
    assert [a.score for a in answers] == sorted((a.score for a in answers), reverse=True)
    assert len(HaystackReader(no_answer=False).run(QUESTION, documents, top_k=1)["answers"]) == 1
    (none,) = HaystackReader().run(QUESTION, [])["answers"]
    assert none.data is None and none.score == 1.0


def test_a_pipeline_answers_and_can_be_saved(index: Path) -> None:
    pipeline = HaystackPipeline()
    pipeline.add_component("retriever", HaystackRetriever(str(index), top_k=5))
    pipeline.add_component("reader", HaystackReader(top_k=3))
    pipeline.connect("retriever.documents", "reader.documents")
    inputs = {"retriever": {"query": QUESTION}, "reader": {"query": QUESTION}}
    result = pipeline.run(inputs)
    assert result["reader"]["answers"][0].data == ragqa.Pipeline.load(index).ask(QUESTION, k=5).text
    loaded = HaystackPipeline.loads(pipeline.dumps(), allowed_modules=["ragqa.integrations.haystack"])
    assert loaded.run(inputs) == result
    settings = HaystackRetriever(str(index), 4, "bm25", ["a/*"]).to_dict()
    again = HaystackRetriever.from_dict(json.loads(json.dumps(settings)))
    assert (again.index, again.top_k, again.retriever, again.paths) == (str(index), 4, "bm25", ["a/*"])


def test_a_missing_index_is_named(tmp_path: Path) -> None:
    retriever = HaystackRetriever(str(tmp_path / "none"))
    with pytest.raises(ArtefactError, match="none"):
        retriever.warm_up()
