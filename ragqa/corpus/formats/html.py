"""HTML: the visible text of a page, without scripts, styles and navigation.

Two libraries were tried instead. inscriptis adds its own characters for lists and tables. selectolax only parses, so
the rules below would still be needed.
"""

import re
from collections.abc import Iterable, Iterator

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument
from ragqa.corpus.formats.html_tokens import Token, iter_tokens

_INVISIBLE = frozenset(("script", "style", "nav", "template", "noscript"))
_PARAGRAPH_TAGS = re.compile(
    "address|article|aside|blockquote|body|caption|center|details|dialog|div|dl|fieldset|figcaption|figure"
    "|footer|form|h[1-6]|header|hr|main|ol|p|pre|section|summary|table|ul"
)
_LINE_TAGS = frozenset(("br", "dd", "dt", "li", "option", "tr"))
_CELL_TAGS = frozenset(("td", "th"))
_SPACES = re.compile(r"[ \t\n\r\f\v]+")
_BLANK_LINES = re.compile(r"\n[ \t\n]*\n")


def read(file: InputFile) -> Iterator[NumberedDocument]:
    """Yield the page as one document; passage offsets are positions in its extracted text."""
    page = _HtmlPage()
    page.read(iter_tokens(file.read_text()))
    yield 0, Document(file.path, page.get_title() or file.make_title(), page.get_text(), file.path)


class _HtmlPage:
    """Title and visible text of a page."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._titles: list[list[str]] = []
        self._invisible_depth = 0
        self._pre_depth = 0
        self._in_title = False

    def read(self, tokens: Iterable[Token]) -> None:
        """Add the tags and texts of a page."""
        handlers = {"start": self._handle_start_tag, "end": self._handle_end_tag, "text": self._handle_text}
        for kind, value in tokens:
            handlers[kind](value)

    def get_title(self) -> str:
        """Return the first title of the page, or an empty string; later titles belong to icons."""
        return _SPACES.sub(" ", "".join(self._titles[0] if self._titles else [])).strip()

    def get_text(self) -> str:
        """Return the visible text."""
        return _BLANK_LINES.sub("\n\n", "".join(self._pieces)).strip()

    def _handle_start_tag(self, tag: str) -> None:
        if tag in _INVISIBLE:
            self._invisible_depth += 1
        elif tag == "title":
            self._in_title = True
            self._titles.append([])
        elif _PARAGRAPH_TAGS.fullmatch(tag):
            self._end_block("\n\n")
            self._in_title = False  # some pages do not close their title
        elif tag in _LINE_TAGS:
            self._end_block("\n")
        elif tag in _CELL_TAGS and not self._ends_in_space():
            self._pieces.append("\t")
        if tag == "pre":
            self._pre_depth += 1

    def _handle_end_tag(self, tag: str) -> None:
        if tag in _INVISIBLE:
            self._invisible_depth = max(0, self._invisible_depth - 1)
        elif tag == "title":
            self._in_title = False
        elif _PARAGRAPH_TAGS.fullmatch(tag):
            self._end_block("\n\n")
        if tag == "pre":
            self._pre_depth = max(0, self._pre_depth - 1)

    def _handle_text(self, data: str) -> None:
        if self._invisible_depth:
            return
        if self._in_title:
            self._titles[-1].append(data)
            return
        if not self._pre_depth:
            data = _SPACES.sub(" ", data)
            if self._ends_in_space():
                data = data.removeprefix(" ")
        if data:
            self._pieces.append(data)

    def _ends_in_space(self) -> bool:
        return not self._pieces or self._pieces[-1][-1:].isspace()

    def _end_block(self, line_ends: str) -> None:
        if self._pieces and not self._pre_depth:
            self._pieces[-1] = self._pieces[-1].rstrip(" ")
        self._pieces.append(line_ends)
