"""Plain text and Markdown: a file is a document, its first heading the title."""

import re
from collections.abc import Iterator
from pathlib import PurePath

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument

# A longer first line is a paragraph that happens to begin with a hash sign.
_HEADING = re.compile(r"\s*+#[ \t]++([^\r\n]{1,300})(?=[\r\n]|\Z)")
_CLOSING_HASHES = re.compile(r"(?:^|[ \t]+)#+[ \t]*$")


def read(source: InputFile) -> Iterator[NumberedDocument]:
    """The file as one document; ``# …`` in its first line is the title and not part of the body."""
    text = source.text()
    heading = _HEADING.match(text)
    title = _CLOSING_HASHES.sub("", heading[1]).strip() if heading else ""
    body = heading.end() if heading else 0
    yield 0, Document(source.path, title or title_of(source), text, source.path, body)


def title_of(source: InputFile) -> str:
    """The title that a file's name stands for: its stem, with ``-`` and ``_`` as spaces."""
    return PurePath(source.name).stem.replace("-", " ").replace("_", " ").strip()
