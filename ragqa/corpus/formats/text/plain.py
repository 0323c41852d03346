"""Read plain text, source code, logs and settings: each file is one document of lines."""

import re
from collections.abc import Iterator

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument
from ragqa.corpus.formats.markdown import CLOSING_HASHES
from ragqa.corpus.formats.outline import Outline

# A longer line is a paragraph that happens to begin with a hash sign.
_HEADING = re.compile(r"\s*+#[ \t]++([^\r\n]{1,300})(?=[\r\n]|\Z)")


def read(file: InputFile) -> Iterator[NumberedDocument]:
    """Yield the file as one document; a heading ``# …`` in its first line is the title.

    Blank lines before the heading do not count.

    Raises:
        LimitError: as for ``InputFile.read_bytes``.
    """
    text, outline = file.read_text(), Outline()
    if heading := _HEADING.match(text):
        outline.add_heading(1, CLOSING_HASHES.sub("", heading[1]), 0, heading.end())
    sections = outline.finish(text)
    yield 0, Document(file.path, outline.title or file.make_title(), text, file.path, sections, "line")


def read_lines(file: InputFile) -> Iterator[NumberedDocument]:
    """Yield the file as one document without headings, since ``#`` can begin a comment.

    Raises:
        LimitError: as for ``InputFile.read_bytes``.
    """
    yield 0, make_document(file.read_text(), file)


def make_document(text: str, file: InputFile) -> Document:
    """Return a document without headings, whose title comes from the name of the file."""
    return Document(file.path, file.make_title(), text, file.path, unit="line")
