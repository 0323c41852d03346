"""Content that is extracted from a file, and its builder."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ragqa.corpus.formats.base import Section
from ragqa.corpus.formats.front_matter import parse_date
from ragqa.corpus.formats.outline import MAX_HEADING_CHARACTERS, Outline
from ragqa.corpus.formats.records import format_record

ENCRYPTED = "encrypted"
"""Reason why an encrypted file cannot be read."""
MAX_DEPTH = 50
"""Maximum number of nested text boxes, tables and other containers; deeper containers are left out."""
BOLD_LEVEL = 8
"""Level of a bold line that looks like a heading, except in a PDF; no heading has a deeper level."""
# Titles that programs write into the metadata by themselves.
_NO_TITLE = re.compile(
    r"\W*(?:powerpoint presentation|untitled.*|unspecified|anonymous|(?:document|presentation|slide|book|title)\W*\d*"
    r"|microsoft (?:word|powerpoint|excel)\b.*|.*\.[a-z]{2,4}\d?)?\W*",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.,:;!]\W*$")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")


class UnreadableFile(Exception):
    """File that cannot be read; the message is the reason."""


@dataclass(frozen=True)
class Content:
    """Text and metadata of a file; ``Document`` describes the sections and the unit."""

    text: str
    sections: tuple[Section, ...]
    title: str = ""
    """Title of the document; empty if it has none."""
    unit: str = ""
    date: str = ""
    """Date in the metadata, YYYY-MM-DD; empty if unknown."""
    note: str = ""
    """Description of the parts that were not read, for the report; empty if the whole file was read."""

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Content":
        """Rebuild a content that was sent as JSON; ``values`` come from ``dataclasses.asdict``."""
        sections = (Section(**{**part, "headings": tuple(part["headings"])}) for part in values["sections"])
        return cls(**{**values, "sections": tuple(sections)})


class TextBuilder:
    """Builder of a file's content from its headings, paragraphs and tables, added in order.

    The text contains the headings, but no section contains them. A heading with nothing below it becomes a paragraph,
    because otherwise no passage would contain it.

    Args:
        unit: unit of places in the file, as in ``Document.unit``.
    """

    def __init__(self, unit: str = "") -> None:
        self.note = ""
        """Value for ``Content.note``."""
        self._unit = unit
        self._parts = list[str]()
        self._length = 0
        self._outline = Outline()
        self._heading: tuple[int, str] | None = None  # last heading, while nothing stands below it
        self._headings = list[tuple[int, str]]()  # all headings

    @property
    def first_heading(self) -> str:
        """Text of the first heading; empty if no heading has been added."""
        return self._headings[0][1] if self._headings else ""

    def note_depth(self) -> None:
        """Set ``note``: content in more than ``MAX_DEPTH`` nested containers is left out."""
        self.note = f"content in more than {MAX_DEPTH} tables or text boxes within each other was left out"

    def add_heading(self, level: int, text: str) -> None:
        """Add a heading; a text of over ``MAX_HEADING_CHARACTERS`` becomes a paragraph.

        Args:
            level: depth of the heading, from 1.
            text: an empty text adds nothing.
        """
        text = _clean(text)
        if len(text) > MAX_HEADING_CHARACTERS:
            self.add_paragraph(text)
        elif text:
            if self._heading and self._heading[0] >= level:
                self._write_heading_as_paragraph()
            self._write_heading()
            self._heading = level, text
            self._headings.append(self._heading)

    def add_paragraph(self, text: str) -> None:
        """Add a paragraph; an empty text adds nothing."""
        text = _clean(text)
        if text:
            self._write_heading()
            self._write(f"{text}\n\n")

    def add_table(self, rows: Sequence[Sequence[str]]) -> None:
        """Add a table as records; the first row has the names of the columns.

        A table of one row or one column becomes paragraphs, one for each row. Empty rows are left out.

        Args:
            rows: texts of the cells by row.
        """
        rows = [row for row in rows if any(map(str.strip, row))]
        if len(rows) < 2 or max(map(len, rows)) < 2:
            for row in rows:
                self.add_paragraph("; ".join(cell for cell in row if cell.strip()))
            return
        self.add_records([format_record(rows[0], row) for row in rows[1:]])

    def add_records(self, records: Sequence[str], *, number: int = 0, sheet: str = "") -> None:
        """Add the records of a table, one per line; an empty record becomes an empty line.

        Args:
            records: texts of the records.
            number: number of the first record's unit, such as its row; 0 to count from the start of the text.
            sheet: name of the sheet of a spreadsheet.
        """
        if not any(records):
            return
        self._write_heading()
        start = self._length
        self._write("".join(f"{_clean(record)}\n" for record in records))
        self._outline.add_records(start, self._length, number=number, sheet=sheet)
        self._write("\n")

    def end_page(self) -> None:
        """End a page or slide with a form feed."""
        self._write("\f")

    def end_headings(self) -> None:
        """End the scope of all headings; the parts that follow have no headings above them."""
        self._write_heading_as_paragraph()
        self._outline.add_heading(1, "", self._length, self._length)

    def finish(self, title: str = "", date: str = "") -> Content:
        """Return the content; a heading can become its title if ``title`` is generic or empty.

        Args:
            title: title in the metadata of the file; ``choose_title`` decides whether it is generic.
            date: date in the metadata, in a form that ``parse_date`` reads.
        """
        self._write_heading_as_paragraph()
        text = "".join(self._parts)
        sections, shown = self._outline.finish(text), self._outline.title
        title = choose_title(title) or shown or self._find_title()

        def correct(headings: tuple[str, ...]) -> tuple[str, ...]:
            headings = (shown, *headings) if shown else headings  # the outline has dropped it
            return headings[1:] if headings and headings[0].casefold() == title.casefold() else headings

        sections = tuple(replace(part, headings=correct(part.headings)) for part in sections)
        return Content(text, sections, title, self._unit, parse_date(date), self.note)

    def _find_title(self) -> str:
        """Return the first heading of a text or PDF if it outranks all others; else ``""``."""
        first, *others = [level for level, _ in self._headings] or [BOLD_LEVEL]
        is_title = self._unit in ("", "page") and first < min([*others, BOLD_LEVEL])
        return self._headings[0][1] if is_title else ""

    def _write(self, text: str) -> None:
        self._parts.append(text)
        self._length += len(text)

    def _write_heading(self) -> None:
        """Write the pending heading, if there is one, as the heading of the following parts."""
        if self._heading:
            (level, text), self._heading, start = self._heading, None, self._length
            self._write(text + "\n\n")
            self._outline.add_heading(level, text, start, self._length)

    def _write_heading_as_paragraph(self) -> None:
        """Write the pending heading, if there is one, as a paragraph."""
        if self._heading:
            (level, text), self._heading = self._heading, None
            self._outline.add_heading(level, "", self._length, self._length)
            self._write(text + "\n\n")


def choose_title(title: str) -> str:
    """Return a title in one line; an empty string if it is generic, such as ``Untitled``."""
    title = " ".join(_clean(title).split())
    return "" if _NO_TITLE.fullmatch(title) else title


def is_bold_heading(text: str) -> bool:
    """Return True if a bold paragraph looks like a heading.

    It is one line of at most 100 characters with a letter. Its last sign, quotes and brackets aside, is none of
    ``.,:;!``.
    """
    return len(text) <= 100 and "\n" not in text and not _SENTENCE_END.search(text) and any(map(str.isalpha, text))


def _clean(text: str) -> str:
    """Strip a text, and replace control characters by spaces and all line ends by ``\\n``."""
    return _CONTROL.sub(" ", text.replace("\r\n", "\n").replace("\r", "\n")).strip()
