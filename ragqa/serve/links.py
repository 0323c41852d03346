"""Addresses of passages."""

from pathlib import Path
from urllib.parse import urlencode

from ragqa.types import Source


def make_page_link(base_url: str, index: str, source: Source) -> str:
    """Return the address at which the page shows a source, marked in its document.

    Args:
        base_url: address of the server, with ``/`` at its end.
        index: name of the index.
        source: passage, with the span to mark; without one, the whole passage is marked.
    """
    passage, span = source.hit.passage, source.span
    start, end = (span.start, span.end) if span else (0, len(passage.text))
    query = {
        "index": index,
        "document": passage.document,
        "path": passage.path,
        "start": passage.start + start,
        "end": passage.start + end,
    }
    return f"{base_url}?{urlencode(query)}"


def make_file_link(source: Source) -> str:
    """Return the address of a source's file; its path if it is relative."""
    path = Path(source.hit.passage.path)
    return path.as_uri() if path.is_absolute() else str(path)
