"""Retriever for LangChain."""

from typing import Any

from ragqa.corpus.document_list import format_reference
from ragqa.errors import MissingPackage
from ragqa.integrations.loaded import find_hits, make_metadata

try:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
except ImportError as error:
    raise MissingPackage("ragqa.integrations.langchain", "langchain-core") from error


class LangChainRetriever(BaseRetriever):
    """Retriever that finds the passages of an index nearest to a question.

    The first call loads the index.
    """

    index: str
    """Directory of an index or a pipeline, or the URL of a served index."""
    k: int = 10
    """Number of passages."""
    retriever: str | None = None
    """Kind of retriever, such as ``bm25``; None for the kind of the index."""
    paths: tuple[str, ...] = ()
    """Patterns of files and folders to search; empty for all."""

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        k = options.get("k", self.k)
        return [
            Document(
                id=format_reference(hit.passage),
                page_content=hit.passage.text,
                metadata={**make_metadata(hit), "score": hit.score},
            )
            for hit in find_hits(self.index, self.retriever, query, k, self.paths)
        ]
