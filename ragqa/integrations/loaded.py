"""Pipelines and readers that the components of other frameworks share.

Frameworks copy, pickle and save components. So a component has settings only, and finds the loaded model here.
"""

from functools import lru_cache
from threading import Lock
from typing import Any

from ragqa.pipeline import Pipeline
from ragqa.reading.base import Reader
from ragqa.reading.registry import open_reader
from ragqa.retrieval.filters import PassageFilter
from ragqa.types import Answer, Hit, Source

MAX_LOADED = 8
"""Maximum number of indexes, and of readers, that stay loaded."""
_LOCK = Lock()  # frameworks call components from many threads, and one search uses all cores


@lru_cache(MAX_LOADED)
def load_pipeline(index: str, retriever: str | None) -> Pipeline:
    """Return the pipeline of an index; it searches the newest version of the index.

    Arguments are as for ``find_hits``, errors as for ``Pipeline.load``.
    """
    return Pipeline.load(index, retriever=retriever)


@lru_cache(MAX_LOADED)
def load_reader(reader: str | None) -> Reader:
    """Return the reader in a directory; for None, the reader that ragqa ships.

    Errors: as for ``open_reader``.
    """
    return open_reader(reader)


def find_hits(index: str, retriever: str | None, query: str, k: int, paths: tuple[str, ...] = ()) -> list[Hit]:
    """Return at most ``k`` hits of a question, best first.

    Args:
        index: directory of an index or a pipeline, or the URL of a served index.
        retriever: kind of retriever; None for the kind of the index.
        query: the question.
        k: number of passages.
        paths: patterns of files and folders to search; empty for all.

    Raises:
        RagqaError: as for ``Pipeline.load``, ``Pipeline.retrieve`` and ``PassageFilter``.
    """
    with _LOCK:
        return load_pipeline(index, retriever).retrieve([query], k=k, filter=PassageFilter(paths) or None)[0].hits


def read_hits(reader: str | None, query: str, hits: list[Hit]) -> Answer:
    """Return the answer of a reader to a question, with less probable answers as alternatives.

    Args:
        reader: directory of a reader; None for the reader that ragqa ships.
        query: the question.
        hits: passages to read.

    Raises:
        RagqaError: as for ``open_reader`` and ``Reader.read``.
    """
    with _LOCK:
        return load_reader(reader).read([query], [hits])[0]


def make_metadata(hit: Hit) -> dict[str, Any]:
    """Return the known values of a passage's title, path and place, as JSON values by name.

    ``start`` and ``end`` are offsets in the document in characters, and ``place`` is the place in words.
    """
    row = Source(hit, None, 0.0).to_dict()
    left_out = ("text", "answer_start", "answer_end", "weight")
    return {name: value for name, value in row.items() if name not in left_out and value not in (None, [])}
