"""HTML: the visible text of a page, without scripts, styles and navigation.

Two libraries were tried instead. inscriptis adds its own characters for lists and tables. selectolax only parses, so
the rules below would still be needed.
"""

import re
from collections.abc import Iterator
from html.parser import HTMLParser

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument

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
    """Yield the page as one document; passage offsets are positions in its extracted text.

    Raises:
        BadInput: the page cannot be parsed, and bad input is not skipped.
    """
    page = _HtmlPage()
    try:
        page.feed(file.read_text())
        page.close()
    except AssertionError as error:  # html.parser raises AssertionError on unknown declarations
        file.reject(f"not HTML that can be read: {error}")
        return
    yield 0, Document(file.path, page.get_title() or file.make_title(), page.get_text(), file.path)


class _HtmlPage(HTMLParser):
    """Parser that collects the title and the visible text of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._pieces: list[str] = []
        self._titles: list[str] = []
        self._invisible_depth = 0
        self._pre_depth = 0
        self._in_title = False

    def get_title(self) -> str:
        return _SPACES.sub(" ", self._titles[0] if self._titles else "").strip()

    def get_text(self) -> str:
        return _BLANK_LINES.sub("\n\n", "".join(self._pieces)).strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _INVISIBLE:
            self._invisible_depth += 1
        elif tag == "title":
            self._in_title = True
            self._titles.append("")
        elif _PARAGRAPH_TAGS.fullmatch(tag):
            self._end_block("\n\n")
            self._in_title = False  # some pages do not close their title
        elif tag in _LINE_TAGS:
            self._end_block("\n")
        elif tag in _CELL_TAGS and not self._ends_in_space():
            self._pieces.append("\t")
        if tag == "pre":
            self._pre_depth += 1

    def handle_endtag(self, tag: str) -> None:
        if tag in _INVISIBLE:
            self._invisible_depth = max(0, self._invisible_depth - 1)
        elif tag == "title":
            self._in_title = False
        elif _PARAGRAPH_TAGS.fullmatch(tag):
            self._end_block("\n\n")
        if tag == "pre":
            self._pre_depth = max(0, self._pre_depth - 1)

    def handle_data(self, data: str) -> None:
        if self._invisible_depth:
            return
        if self._in_title:
            self._titles[-1] += data
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
