"""Links to passages, on the page and in files."""

from pathlib import Path
from urllib.parse import urlencode

from ragqa.types import Source


def make_page_link(base_url: str, index: str, source: Source) -> str:
    """Return the address at which the page marks a source in its document.

    Args:
        base_url: address of the server; it ends with ``/``.
        index: name of the index.
        source: passage with the span to mark; without a span, the whole passage is marked.
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
    """Return the ``file:`` address of a source's file, or its path if the path is relative."""
    path = Path(source.hit.passage.path)
    return path.as_uri() if path.is_absolute() else str(path)
