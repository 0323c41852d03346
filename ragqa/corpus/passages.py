"""Split documents into passages, each with its headings and its place in the file."""

import re
from collections.abc import Iterable, Iterator

from ragqa.corpus.formats.base import Document, Section
from ragqa.corpus.splitter_limits import Splitter
from ragqa.types import SEPARATORS, Passage

_LINE = re.compile(r"[^\n]*\S[^\n]*")


def split_document(document: Document, split: Splitter) -> Iterator[tuple[int, int]]:
    """Yield the start and end (exclusive) of each passage of a document, in characters.

    Args:
        document: document to split.
        split: splitter, which gets each section, or each record of a table, as a separate text.
    """
    for section in document.list_sections():
        for start, end in _iter_parts(document.text, section):
            part = document.text[start:end] if (start, end) != (0, len(document.text)) else document.text
            for first, last in split(part, 0):
                yield start + first, start + last


def _iter_parts(text: str, section: Section) -> Iterator[tuple[int, int]]:
    if section.has_records:
        yield from (line.span() for line in _LINE.finditer(text, section.start, section.end))
    else:
        yield section.start, section.end


def make_passages(document: Document, spans: Iterable[tuple[int, int]]) -> Iterator[Passage]:
    """Yield the passages at the spans of a document; the id of each passage is 0.

    Args:
        document: document of the passages.
        spans: start and end (exclusive) of each passage in characters, in order; each lies within one section.
    """
    sections = iter(document.list_sections())
    section = next(sections)
    place = _Place(document.text, document.unit, section)
    for start, end in spans:
        while start >= section.end and (following := next(sections, None)):
            section = following
            place.enter(section)
        yield Passage(
            0,
            document.id,
            document.title,
            document.text[start:end],
            document.path,
            start,
            end,
            section.headings,
            document.unit,
            place.find_number(start),
            section.sheet,
            document.tags,
            document.date,
        )


class _Place:
    """Counter of the units (line, page, …) before ascending positions, in linear time overall."""

    def __init__(self, text: str, unit: str, section: Section) -> None:
        self._text, self._separator = text, SEPARATORS.get(unit, "")
        self._from_start = (0, 1)
        self.enter(section)

    def enter(self, section: Section) -> None:
        """Count units from the start of a section, or of the text if the section has no number."""
        self._from_section = (section.start, section.number) if section.number else None

    def find_number(self, position: int) -> int:
        if not self._separator:
            return 0
        counted, number = self._from_section or self._from_start
        number += self._text.count(self._separator, counted, position)
        if self._from_section:
            self._from_section = (position, number)
        else:
            self._from_start = (position, number)
        return number
