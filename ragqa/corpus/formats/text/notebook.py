"""Read Jupyter notebooks (``.ipynb``): cells, their headings, and short results."""

import json
from collections.abc import Iterator
from typing import Any

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument
from ragqa.corpus.formats.outline import MAX_HEADING_CHARACTERS, Outline
from ragqa.corpus.formats.text import plain
from ragqa.corpus.formats.text.markup import find_markdown_headings

_MAX_OUTPUT = 2_000
"""Maximum length of a cell's result in characters; longer results, such as logs, are left out."""


def read(file: InputFile) -> Iterator[NumberedDocument]:
    """Yield the notebook as one document, in which each cell ends with a form feed.

    If the file is not a notebook, it is read as plain text.

    Raises:
        LimitError: as for ``InputFile.read_bytes``.
    """
    source = file.read_text()
    try:
        notebook = json.loads(source)
        cells = list(_iter_cells(notebook))
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        yield 0, plain.make_document(source, file)
        return
    text, outline, position = "".join(f"{cell}\f" for _, cell in cells), Outline(), 0
    for is_markdown, cell in cells:
        outline.skip(position, position)  # a passage belongs to one cell
        end = position + len(cell)
        for level, heading, start, after in find_markdown_headings(text, position, end) if is_markdown else ():
            if len(heading) <= MAX_HEADING_CHARACTERS:
                outline.add_heading(level, heading, start, after)
        position = end + 1
    sections = outline.finish(text)
    yield 0, Document(file.path, outline.title or file.make_title(), text, file.path, sections, "cell")


def _iter_cells(notebook: Any) -> Iterator[tuple[bool, str]]:
    """Yield two values for each cell: True if it is Markdown, and its text with short results."""
    cells = notebook["cells"] if "cells" in notebook else notebook["worksheets"][0]["cells"]  # format 3, before 2015
    for cell in cells:
        parts = [_join(cell["source"] if "source" in cell else cell["input"])]
        for output in cell.get("outputs", ()):
            result = _join(output.get("text") or output.get("data", {}).get("text/plain") or "")
            parts += [result] * (0 < len(result) <= _MAX_OUTPUT)
        yield cell["cell_type"] == "markdown", "\n".join(parts).replace("\f", "\n")


def _join(lines: str | list[str]) -> str:
    return lines if isinstance(lines, str) else "".join(lines)
