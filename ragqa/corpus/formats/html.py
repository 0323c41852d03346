"""HTML: the text that a browser would show, without scripts, styles and navigation."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument
from ragqa.corpus.formats.plain import title_of

_UNSEEN = frozenset(("script", "style", "nav", "template", "noscript"))
_PARAGRAPHS = re.compile(
    "address|article|aside|blockquote|body|caption|center|details|dialog|div|dl|fieldset|figcaption|figure"
    "|footer|form|h[1-6]|header|hr|main|ol|p|pre|section|summary|table|ul"
)
_LINES = frozenset(("br", "dd", "dt", "li", "option", "tr"))
_CELLS = frozenset(("td", "th"))
_SPACES = re.compile(r"[ \t\n\r\f\v]+")
_BLANK_LINES = re.compile(r"\n[ \t\n]*\n")


def read(source: InputFile) -> Iterator[NumberedDocument]:
    """The page as one document; its characters are counted in the extracted text, not in the file."""
    page = _Page()
    try:
        page.feed(source.text())
        page.close()
    except AssertionError as error:  # what html.parser raises on a declaration it does not know
        source.bad(f"not HTML that can be read: {error}")
        return
    yield 0, Document(source.path, page.title() or title_of(source), page.text(), source.path)


class _Page(HTMLParser):
    """Collects the title and the visible text of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._pieces: list[str] = []
        self._titles: list[str] = []
        self._unseen = 0
        self._preformatted = 0
        self._in_title = False

    def title(self) -> str:
        return _SPACES.sub(" ", self._titles[0] if self._titles else "").strip()

    def text(self) -> str:
        return _BLANK_LINES.sub("\n\n", "".join(self._pieces)).strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _UNSEEN:
            self._unseen += 1
        elif tag == "title":
            self._in_title = True
            self._titles.append("")
        elif _PARAGRAPHS.fullmatch(tag):
            self._break("\n\n")
            self._in_title = False  # of a page that forgot to close it
        elif tag in _LINES:
            self._break("\n")
        elif tag in _CELLS and not self._after_space():
            self._pieces.append("\t")
        if tag == "pre":
            self._preformatted += 1

    def handle_endtag(self, tag: str) -> None:
        if tag in _UNSEEN:
            self._unseen = max(0, self._unseen - 1)
        elif tag == "title":
            self._in_title = False
        elif _PARAGRAPHS.fullmatch(tag):
            self._break("\n\n")
        if tag == "pre":
            self._preformatted = max(0, self._preformatted - 1)

    def handle_data(self, data: str) -> None:
        if self._unseen:
            return
        if self._in_title:
            self._titles[-1] += data
            return
        if not self._preformatted:
            data = _SPACES.sub(" ", data)
            if self._after_space():
                data = data.removeprefix(" ")
        if data:
            self._pieces.append(data)

    def _after_space(self) -> bool:
        return not self._pieces or self._pieces[-1][-1:].isspace()

    def _break(self, line_ends: str) -> None:
        if self._pieces and not self._preformatted:
            self._pieces[-1] = self._pieces[-1].rstrip(" ")
        self._pieces.append(line_ends)
