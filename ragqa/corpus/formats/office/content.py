"""Text that was extracted from a file, and the builder that puts it together."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ragqa.corpus.formats.base import Section
from ragqa.corpus.formats.front_matter import parse_date
from ragqa.corpus.formats.outline import MAX_HEADING_CHARACTERS, Outline
from ragqa.corpus.formats.records import format_record

ENCRYPTED = "encrypted"
"""Reason why an encrypted file cannot be read."""
MAX_DEPTH = 50
"""Number of text boxes, tables and other containers within each other; deeper ones are left out."""
BOLD_LEVEL = 8
"""Level of a heading that is a bold line: below all levels that a file names."""
# Titles that programs write without being asked.
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
    """Text of a file with its parts; see ``Document`` for the fields."""

    text: str
    sections: tuple[Section, ...]
    title: str = ""
    """Title of the document; empty if it has none."""
    unit: str = ""
    date: str = ""
    note: str = ""
    """Part of the file that was not read, for the report; empty if all was."""

    def to_dict(self) -> dict[str, Any]:
        """Return the content as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Content":
        """Return the content that ``to_dict`` returned as JSON values."""
        sections = (Section(**{**part, "headings": tuple(part["headings"])}) for part in values["sections"])
        return cls(**{**values, "sections": tuple(sections)})


class TextBuilder:
    """Text of a document that is put together of headings, paragraphs and tables.

    Headings are characters of the text, but of no section. A heading with nothing below it is a paragraph: otherwise no
    passage would contain it. ``note`` is the note of the content.
    """

    def __init__(self, unit: str = "") -> None:
        self.note = ""
        self._unit = unit
        self._parts = list[str]()
        self._length = 0
        self._outline = Outline()
        self._heading: tuple[int, str] | None = None  # nothing stands below it yet
        self._headings = list[tuple[int, str]]()  # all of them

    @property
    def first_heading(self) -> str:
        """First heading; empty if there is none yet."""
        return self._headings[0][1] if self._headings else ""

    def note_depth(self) -> None:
        """Note that content below ``MAX_DEPTH`` containers is left out."""
        self.note = f"content in more than {MAX_DEPTH} tables or text boxes within each other was left out"

    def add_heading(self, level: int, text: str) -> None:
        """Add a heading of a level from 1; a very long one is a paragraph."""
        text = _clean(text)
        if len(text) > MAX_HEADING_CHARACTERS:
            self.add_paragraph(text)
        elif text:
            if self._heading and self._heading[0] >= level:
                self._write_heading_as_paragraph()
            self._write_heading()
            self._heading = level, text
            self._headings.append(self._heading)

    def add_paragraph(self, text: str, end: str = "\n\n") -> None:
        """Add a paragraph, or a part of one that ends in ``end``."""
        text = _clean(text)
        if text:
            self._write_heading()
            self._write(text + end)

    def add_table(self, rows: Sequence[Sequence[str]]) -> None:
        """Add a table whose first row has the names of the columns; a table of one row or column is text."""
        rows = [row for row in rows if any(map(str.strip, row))]
        if len(rows) < 2 or max(map(len, rows)) < 2:
            for row in rows:
                self.add_paragraph("; ".join(cell for cell in row if cell.strip()))
            return
        self.add_records([format_record(rows[0], row) for row in rows[1:]])

    def add_records(self, records: Sequence[str], *, number: int = 0, sheet: str = "") -> None:
        """Add the records of a table, one a line; see ``Outline.add_records``."""
        if not any(records):
            return
        self._write_heading()
        start = self._length
        self._write("".join(f"{_clean(record)}\n" for record in records))
        self._outline.add_records(start, self._length, number=number, sheet=sheet)
        self._write("\n")

    def end_page(self) -> None:
        """End a page; a paragraph can go on behind it."""
        self._write("\f")

    def end_headings(self) -> None:
        """Let what comes next stand under no heading."""
        self._write_heading_as_paragraph()
        self._outline.add_heading(1, "", self._length, self._length)

    def finish(self, title: str = "", date: str = "") -> Content:
        """Return the content.

        Args:
            title: title in the metadata of the file; used if it says something.
            date: date in the metadata.
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
        """Return the first heading if no other one has its level or a higher one; else an empty string."""
        first, *others = [level for level, _ in self._headings] or [BOLD_LEVEL]
        is_title = self._unit in ("", "page") and first < min([*others, BOLD_LEVEL])
        return self._headings[0][1] if is_title else ""

    def _write(self, text: str) -> None:
        self._parts.append(text)
        self._length += len(text)

    def _write_heading(self) -> None:
        """Write the heading above what comes next."""
        if self._heading:
            (level, text), self._heading, start = self._heading, None, self._length
            self._write(text + "\n\n")
            self._outline.add_heading(level, text, start, self._length)

    def _write_heading_as_paragraph(self) -> None:
        """Write a heading with nothing below it as a paragraph."""
        if self._heading:
            (level, text), self._heading = self._heading, None
            self._outline.add_heading(level, "", self._length, self._length)
            self._write(text + "\n\n")


def choose_title(title: str) -> str:
    """Return the title in the metadata of a file; an empty string if it is one that says nothing."""
    title = " ".join(_clean(title).split())
    return "" if _NO_TITLE.fullmatch(title) else title


def is_bold_heading(text: str) -> bool:
    """Return True if a paragraph that is all bold looks like a heading."""
    return len(text) <= 100 and "\n" not in text and not _SENTENCE_END.search(text) and any(map(str.isalpha, text))


def _clean(text: str) -> str:
    """Return text without control characters and with plain ends of lines."""
    return _CONTROL.sub(" ", text.replace("\r\n", "\n").replace("\r", "\n")).strip()
