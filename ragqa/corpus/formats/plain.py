"""Plain text and Markdown: each file is one document."""

import re
from collections.abc import Iterator

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument

# A longer first line is a paragraph that happens to begin with a hash sign.
_HEADING = re.compile(r"\s*+#[ \t]++([^\r\n]{1,300})(?=[\r\n]|\Z)")
_CLOSING_HASHES = re.compile(r"(?:^|[ \t]+)#+[ \t]*$")


def read(file: InputFile) -> Iterator[NumberedDocument]:
    """Yield the file as one document; a heading ``# …`` in its first line is the title."""
    text = file.read_text()
    heading = _HEADING.match(text)
    title = _CLOSING_HASHES.sub("", heading[1]).strip() if heading else ""
    body = heading.end() if heading else 0
    yield 0, Document(file.path, title or file.make_title(), text, file.path, body)
