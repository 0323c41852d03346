"""Components for Haystack: a retriever, and a reader that marks answers in documents."""

from typing import Any

from ragqa.corpus.document_list import format_reference
from ragqa.errors import MissingPackage
from ragqa.integrations.loaded import find_hits, load_pipeline, load_reader, make_metadata, read_hits
from ragqa.types import Alternative, Answer, Hit, Passage

try:
    from haystack import Document, ExtractedAnswer, component, default_from_dict, default_to_dict
except ImportError as error:
    raise MissingPackage("ragqa.integrations.haystack", "haystack-ai") from error


@component
class HaystackRetriever:
    """Component that finds the passages of an index nearest to a question."""

    def __init__(self, index: str, top_k: int = 10, retriever: str | None = None, paths: list[str] | None = None):
        """Make the component; ``warm_up`` or the first run loads the index.

        Args:
            index: directory of an index or a pipeline, or the URL of a served index.
            top_k: number of passages.
            retriever: kind of retriever, such as ``bm25``; None for the kind of the index.
            paths: patterns of files and folders to search; None for all.
        """
        self.index, self.top_k, self.retriever, self.paths = str(index), top_k, retriever, paths

    def warm_up(self) -> None:
        """Load the index; errors are as for ``Pipeline.load``."""
        load_pipeline(self.index, self.retriever)

    @component.output_types(documents=list[Document])
    def run(self, query: str, top_k: int | None = None) -> dict[str, list[Document]]:
        """Return the list ``documents`` of passages, best first, with their places in ``meta``.

        Args:
            query: the question.
            top_k: number of passages; by default ``top_k`` of the component.

        Raises:
            RagqaError: as for ``find_hits``.
        """
        hits = find_hits(self.index, self.retriever, query, top_k or self.top_k, tuple(self.paths or ()))
        return {
            "documents": [
                Document(
                    id=format_reference(hit.passage), content=hit.passage.text, meta=make_metadata(hit), score=hit.score
                )
                for hit in hits
            ]
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the settings, for a saved pipeline."""
        return default_to_dict(self, index=self.index, top_k=self.top_k, retriever=self.retriever, paths=self.paths)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "HaystackRetriever":
        """Make the component from saved settings."""
        return default_from_dict(cls, data)


@component
class HaystackReader:
    """Component that marks answers in documents, with calibrated probabilities."""

    def __init__(self, reader: str | None = None, top_k: int = 5, no_answer: bool = True):
        """Make the component; ``warm_up`` or the first run loads the reader.

        Args:
            reader: directory of a span reader; None for the reader that ragqa ships, which needs no torch.
            top_k: maximum number of answers besides the one of ``no_answer``; a reader gives at most 5.
            no_answer: True to add an answer whose ``data`` is None, with the probability that no answer is right.
        """
        self.reader, self.top_k, self.no_answer = reader, top_k, no_answer

    def warm_up(self) -> None:
        """Load the reader; errors are as for ``open_reader``."""
        load_reader(self.reader)

    @component.output_types(answers=list[ExtractedAnswer])
    def run(self, query: str, documents: list[Document], top_k: int | None = None) -> dict[str, list[ExtractedAnswer]]:
        """Return the list ``answers``, best first; with ``no_answer``, one stands for no answer.

        Args:
            query: the question.
            documents: documents to read; documents without text are skipped.
            top_k: as for the component, which sets the default.

        Raises:
            RagqaError: as for ``read_hits``.
        """
        texts = [document for document in documents if document.content]
        answer = read_hits(self.reader, query, [_to_hit(number, document) for number, document in enumerate(texts)])
        candidates: list[Answer | Alternative] = [answer, *answer.alternatives] if answer.text is not None else []
        answers = []
        for candidate in candidates[: top_k or self.top_k]:
            source = candidate.sources[0]
            document, span = texts[source.hit.passage.id], source.span
            place = ExtractedAnswer.Span(span.start, span.end) if span else None
            answers.append(
                ExtractedAnswer(
                    query=query,
                    data=candidate.text,
                    score=candidate.confidence,
                    document=document,
                    context=document.content,
                    document_offset=place,
                    context_offset=place,
                )
            )
        if self.no_answer:
            rest = max(0.0, 1.0 - sum(candidate.confidence for candidate in candidates))
            answers.append(ExtractedAnswer(query=query, data=None, score=rest))
            answers.sort(key=lambda candidate: -candidate.score)
        return {"answers": answers}

    def to_dict(self) -> dict[str, Any]:
        """Return the settings, for a saved pipeline."""
        return default_to_dict(self, reader=self.reader, top_k=self.top_k, no_answer=self.no_answer)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "HaystackReader":
        """Make the component from saved settings."""
        return default_from_dict(cls, data)


def _to_hit(number: int, document: Document) -> Hit:
    meta, text = document.meta, document.content or ""
    passage = Passage(
        id=number,
        document=document.id,
        title=str(meta.get("title", "")),
        text=text,
        path=str(meta.get("path", document.id)),
        start=0,
        end=len(text),
        headings=tuple(map(str, meta.get("headings", ()))),
    )
    return Hit(passage, document.score or 0.0)
