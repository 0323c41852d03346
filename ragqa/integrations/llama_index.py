"""Retriever for LlamaIndex."""

from typing import Any

from ragqa.corpus.document_list import format_reference
from ragqa.errors import MissingPackage
from ragqa.integrations.loaded import find_hits, make_metadata

try:
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
except ImportError as error:
    raise MissingPackage("ragqa.integrations.llama_index", "llama-index-core") from error

_OFFSETS = ("start", "end", "document")
"""Names of metadata that language models and encoders do not get, since it does not help them."""


class LlamaIndexRetriever(BaseRetriever):
    """Retriever that finds the passages of an index nearest to a question."""

    def __init__(
        self,
        index: str,
        similarity_top_k: int = 10,
        retriever: str | None = None,
        paths: tuple[str, ...] = (),
        **options: Any,
    ) -> None:
        """Make the retriever; the first call loads the index.

        Args:
            index: directory of an index or a pipeline, or the URL of a served index.
            similarity_top_k: number of passages.
            retriever: kind of retriever, such as ``bm25``; None for the kind of the index.
            paths: patterns of files and folders to search; empty for all.
            options: further arguments of LlamaIndex's retrievers.
        """
        super().__init__(**options)
        self.index, self.similarity_top_k, self.retriever, self.paths = index, similarity_top_k, retriever, paths

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = find_hits(self.index, self.retriever, query_bundle.query_str, self.similarity_top_k, self.paths)
        return [
            NodeWithScore(
                node=TextNode(
                    id_=format_reference(hit.passage),
                    text=hit.passage.text,
                    metadata=make_metadata(hit),
                    excluded_llm_metadata_keys=list(_OFFSETS),
                    excluded_embed_metadata_keys=list(_OFFSETS),
                    start_char_idx=hit.passage.start,
                    end_char_idx=hit.passage.end,
                ),
                score=hit.score,
            )
            for hit in hits
        ]
