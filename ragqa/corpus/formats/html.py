"""Read HTML: the visible text of a page, with its headings and tables.

Scripts, styles and navigation are left out. Two libraries were rejected: inscriptis adds its own characters for lists
and tables, and selectolax only parses, so the rules below would still be needed.
"""

import re
from collections.abc import Iterable, Iterator
from html import unescape

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument
from ragqa.corpus.formats.front_matter import parse_date
from ragqa.corpus.formats.html_tables import Cell, HtmlTable
from ragqa.corpus.formats.html_tokens import Token, iter_tokens
from ragqa.corpus.formats.outline import MAX_HEADING_CHARACTERS, Outline

_INVISIBLE = frozenset(("script", "style", "nav", "template", "noscript"))
_PARAGRAPH_TAGS = re.compile(
    "address|article|aside|blockquote|body|caption|center|details|dialog|div|dl|fieldset|figcaption|figure"
    "|footer|form|h[1-6]|header|hr|main|ol|p|pre|section|summary|table|ul"
)
_LINE_TAGS = frozenset(("br", "dd", "dt", "li", "option", "tr"))
_CELL_TAGS = frozenset(("td", "th"))
_HEADING = re.compile("h[1-6]")
_ATTRIBUTE = re.compile(r"([a-zA-Z][\w:.-]*)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))")
_MAX_ATTRIBUTES = 5_000
"""Maximum number of characters that are read of a tag's attributes."""
_DATES = ("article:published_time", "date", "dc.date", "dcterms.date", "dcterms.created")
_SPACES = re.compile(r"[ \t\n\r\f\v]+")
_BLANK_LINES = re.compile(r"\n[ \t\n]*\n")


def read(file: InputFile) -> Iterator[NumberedDocument]:
    """Yield the page as one document; passage offsets are positions in its extracted text.

    Raises:
        LimitError: as for ``InputFile.read_bytes``.
    """
    yield 0, parse_html(file.read_text(), file)


def parse_html(page: str, file: InputFile) -> Document:
    """Return the document of an HTML page.

    Args:
        page: source of the page.
        file: file that contains the page; its path becomes the document's id.
    """
    parser = _HtmlPage()
    parser.read(iter_tokens(page))
    parts, title = parser.finish(), parser.get_title()
    # If the title of the page is not a heading of level 1, too, headings move down a level, and none becomes the title.
    has_other_title = bool(title) and ("heading", 1, title) not in parts
    outline, texts, position = Outline(), list[str](), 0
    for kind, level, text in parts:
        end = position + len(text)
        if kind == "heading":
            outline.add_heading(level + has_other_title, text, position, end)
        elif kind == "records":
            outline.add_records(position, end)
        texts.append(text)
        position = end + 2
    whole = "\n\n".join(texts)
    sections = outline.finish(whole)
    tags = tuple(tag.strip() for tag in parser.fields.get("keywords", "").split(",") if tag.strip())
    date = next((date for name in _DATES if (date := parse_date(parser.fields.get(name, "")))), "")
    title = title or outline.title or file.make_title()
    return Document(file.path, title, whole, file.path, sections, tags=tags, date=date)


class _HtmlPage:
    """Collector of the title, the ``meta`` fields and the visible parts of a page."""

    def __init__(self) -> None:
        self.fields: dict[str, str] = {}
        """Content of each ``meta`` tag, by its name or property."""
        self._parts: list[tuple[str, int, str]] = []  # kind, level of a heading, text
        self._pieces: list[str] = []
        self._titles: list[list[str]] = []
        self._invisible_depth = 0
        self._pre_depth = 0
        self._in_title = False
        self._heading_level = 0
        self._table_depth = 0
        self._table = HtmlTable()
        self._tag = ""

    def read(self, tokens: Iterable[Token]) -> None:
        handlers = {
            "start": self._handle_start_tag,
            "attributes": self._handle_attributes,
            "end": self._handle_end_tag,
            "text": self._handle_text,
        }
        for kind, value in tokens:
            handlers[kind](value)

    def finish(self) -> list[tuple[str, int, str]]:
        """Return the parts: kind (``text``, ``heading``, ``records``), level of a heading, text."""
        self._end_part()
        return self._parts

    def get_title(self) -> str:
        """Return the first title of the page, since others name icons; empty if there is none."""
        return _SPACES.sub(" ", "".join(self._titles[0] if self._titles else [])).strip()

    def _end_part(self) -> None:
        text = _BLANK_LINES.sub("\n\n", "".join(self._pieces)).strip()
        if text:
            is_heading = self._heading_level and len(text) <= MAX_HEADING_CHARACTERS
            self._parts.append(("heading" if is_heading else "text", self._heading_level, text))
        self._pieces, self._heading_level = [], 0

    def _handle_start_tag(self, tag: str) -> None:
        self._tag = tag
        if tag in _INVISIBLE:
            self._invisible_depth += 1
        elif tag == "title":
            self._in_title = True
            self._titles.append([])
        elif _PARAGRAPH_TAGS.fullmatch(tag):
            self._start_block(tag)
        elif tag in _LINE_TAGS:
            self._end_block("\n")
        elif tag in _CELL_TAGS and not self._ends_in_space():
            self._pieces.append("\t")
        if tag == "pre":
            self._pre_depth += 1
        if self._table_depth == 1 and not self._invisible_depth:
            if tag == "tr":
                self._table.rows.append([])
            elif tag in _CELL_TAGS and self._table.rows:
                self._table.rows[-1].append(Cell(tag == "th"))

    def _start_block(self, tag: str) -> None:
        is_heading_over = self._heading_level and any(map(str.strip, self._pieces))
        if not self._table_depth and not self._invisible_depth:
            if _HEADING.fullmatch(tag) or tag == "table" or is_heading_over:
                self._end_part()
            if _HEADING.fullmatch(tag):
                self._heading_level = int(tag[1])
        if tag == "table" and not self._invisible_depth:
            self._table_depth += 1
            if self._table_depth == 1:
                self._table = HtmlTable()
            else:
                self._table.has_inner = True
        self._end_block("\n\n")
        self._in_title = False  # some pages do not close their title

    def _handle_attributes(self, attributes: str) -> None:
        if self._tag in _CELL_TAGS:
            if self._table_depth == 1 and self._table.rows and self._table.rows[-1]:
                self._table.rows[-1][-1].set_spans(attributes[:_MAX_ATTRIBUTES])
            return
        found = _ATTRIBUTE.finditer(attributes[:_MAX_ATTRIBUTES])
        values = {match[1].lower(): unescape(match[2] or match[3] or match[4] or "") for match in found}
        name = (values.get("name") or values.get("property") or "").lower()
        self.fields.setdefault(name, values.get("content", ""))

    def _handle_end_tag(self, tag: str) -> None:
        if tag in _INVISIBLE:
            self._invisible_depth = max(0, self._invisible_depth - 1)
        elif tag == "title":
            self._in_title = False
        elif tag == "table" and self._table_depth and not self._invisible_depth:
            self._table_depth -= 1
            if not self._table_depth:
                self._end_table()
        elif _PARAGRAPH_TAGS.fullmatch(tag):
            if _HEADING.fullmatch(tag) and self._heading_level and not self._table_depth:
                self._end_part()
            self._end_block("\n\n")
        if tag == "pre":
            self._pre_depth = max(0, self._pre_depth - 1)

    def _end_table(self) -> None:
        """Add a table with a header as records; a table without a header stays text."""
        if records := self._table.make_records():
            caption = _SPACES.sub(" ", "".join(self._table.caption)).strip()
            self._parts += [("text", 0, caption)] * bool(caption)
            self._parts.append(("records", 0, "\n".join(records)))
            self._pieces = []
        else:
            self._end_block("\n\n")

    def _handle_text(self, data: str) -> None:
        if self._invisible_depth:
            return
        if self._in_title:
            self._titles[-1].append(data)
            return
        if self._table_depth == 1:
            self._table.add_text(data)
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
        if self._table_depth == 1:
            self._table.add_text(line_ends)
