"""Outline of a document: its sections under their headings, collected during reading."""

import re
from dataclasses import replace

from ragqa.corpus.formats.base import Section

MAX_HEADING_CHARACTERS = 300
"""Maximum length of a heading in characters; a longer line is a paragraph that looks like a heading."""
_MAX_LEVELS = 8
"""Maximum number of headings above a section; if there are more, the nearest ones count."""
_VISIBLE = re.compile(r"\S")


class Outline:
    """Builder of the sections of a text; its methods are called in the order of the text.

    The characters of headings belong to no section, because passages have their headings as a separate field. If only
    the first heading has level 1, it is the title of the document, and not among the headings of sections.
    """

    def __init__(self) -> None:
        self._sections: list[Section] = []
        self._titles = list[str]()  # headings of level 1
        self._has_lower_first = False
        self._path: list[tuple[int, str]] = []  # level and text of the headings above the next section
        self._start = 0

    def add_heading(self, level: int, text: str, start: int, end: int) -> None:
        """Add a heading: end the section before it, and begin the next section.

        Args:
            level: depth of the heading, from 1.
            text: heading without markup; an empty text only ends the scope of headings of this level and below.
            start: first character of the heading, markup included.
            end: character after the heading.
        """
        self.skip(start, end)
        text = " ".join(text.split())[:MAX_HEADING_CHARACTERS]
        if level == 1 and text:
            self._titles.append(text)
        self._has_lower_first |= not self._titles
        self._path = [item for item in self._path if item[0] < level]
        if text:
            self._path = [*self._path, (level, text)][-_MAX_LEVELS:]

    def skip(self, start: int, end: int) -> None:
        """Leave out the characters ``start`` to ``end`` (exclusive), and begin a new section there."""
        if start > self._start:
            self._sections.append(Section(self._start, start, self.headings))
        self._start = end

    def add_records(self, start: int, end: int, *, number: int = 0, sheet: str = "") -> None:
        """Add the records of a table, one per line, as a section.

        Args:
            start: first character of the first record.
            end: character after the last record.
            number: number of the first record's unit, such as its row; 0 to count from the start of the text.
            sheet: name of the sheet of a spreadsheet.
        """
        self.skip(start, end)
        self._sections.append(Section(start, end, self.headings, number, sheet, has_records=True))

    def finish(self, text: str) -> tuple[Section, ...]:
        """Return the sections of ``text`` that have a visible character; else one empty section."""
        self.skip(len(text), len(text))
        sections = [part for part in self._sections if _VISIBLE.search(text, part.start, part.end)]
        sections = sections or [Section(len(text), len(text))]
        return tuple(replace(section, headings=self.drop_title(section.headings)) for section in sections)

    @property
    def title(self) -> str:
        """Title of the document, which is final after the last heading; empty if it has none."""
        return self._titles[0] if len(self._titles) == 1 and not self._has_lower_first else ""

    def drop_title(self, headings: tuple[str, ...]) -> tuple[str, ...]:
        """Return headings without the first one if it is the ``title``."""
        return headings[1:] if self.title and headings[:1] == (self.title,) else headings

    @property
    def headings(self) -> tuple[str, ...]:
        """Headings above the next section."""
        return tuple(text for _, text in self._path)
