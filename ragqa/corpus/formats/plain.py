"""Plain text, source code, logs and configuration: each file is one document, found by its lines."""

import re
from collections.abc import Iterator

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument
from ragqa.corpus.formats.outline import Outline

# A longer first line is a paragraph that happens to begin with a hash sign.
_HEADING = re.compile(r"\s*+#[ \t]++([^\r\n]{1,300})(?=[\r\n]|\Z)")
_CLOSING_HASHES = re.compile(r"(?:^|[ \t]+)#+[ \t]*$")


def read(file: InputFile) -> Iterator[NumberedDocument]:
    """Yield the file as one document; a heading ``# …`` in its first line is the title."""
    text, outline = file.read_text(), Outline()
    if heading := _HEADING.match(text):
        outline.add_heading(1, _CLOSING_HASHES.sub("", heading[1]), 0, heading.end())
    sections = outline.finish(text)
    yield 0, Document(file.path, outline.title or file.make_title(), text, file.path, sections, "line")
