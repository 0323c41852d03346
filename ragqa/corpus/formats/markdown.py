"""Read Markdown: headings, front matter and tables.

The text of a document begins with the text of the file, so passage offsets are positions in the file. The records of
tables follow that text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument, Section
from ragqa.corpus.formats.front_matter import read_front_matter
from ragqa.corpus.formats.outline import MAX_HEADING_CHARACTERS, Outline
from ragqa.corpus.formats.records import format_record

HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?$")
CLOSING_HASHES = re.compile(r"(?:^|[ \t]+)#+[ \t]*$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_DELIMITER = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_CELL_END = re.compile(r"(?<!\\)\|")
_NO_PARAGRAPH = re.compile(r"[ \t]*(?:[-*+>|]|\d+[.)]|$)")
_EMPHASIS = re.compile(r"(\*\*|__|\*|`)(?=\S)(.+?)(?<=\S)\1")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")


def read(file: InputFile) -> Iterator[NumberedDocument]:
    """Yield the file as one document with its headings, tags, date and tables.

    Raises:
        LimitError: as for ``InputFile.read_bytes``.
    """
    text = file.read_text()
    body, fields = read_front_matter(text)
    title = fields.pop("title", "")
    parser = _Parser(text, body)
    parser.run()
    records = "".join(f"{line}\n" for table in parser.tables for line in table.records)
    sections, end = [*parser.outline.finish(text)], len(text) + 1
    for table in parser.tables:
        start, end = end, end + sum(len(line) + 1 for line in table.records)
        sections.append(Section(start, end, parser.outline.drop_title(table.headings), table.line, has_records=True))
    title = title or parser.outline.title or file.make_title()
    text = f"{text}\n{records}" if records else text
    yield 0, Document(file.path, title, text, file.path, tuple(sections), unit="line", **fields)


@dataclass(frozen=True)
class _Table:
    headings: tuple[str, ...]
    line: int
    """Line of the first row below the header, from 1."""
    records: list[str]
    """Records of the rows below the header."""


class _Parser:
    """Parser of a text, line by line, into an outline and a list of tables."""

    def __init__(self, text: str, body: int) -> None:
        self.outline, self.tables = Outline(), list[_Table]()
        self.outline.skip(0, body)
        self._lines = text[body:].splitlines(keepends=True)
        self._first_line = 1 + text.count("\n", 0, body)
        self._position = body
        self._line = 0

    def run(self) -> None:
        fence = ""
        while self._line < len(self._lines):
            line, following = self._peek(0), self._peek(1)
            if fence or (opening := _FENCE.match(line)):
                mark = _FENCE.match(line)
                if not fence and opening:
                    fence = opening[1]
                elif mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
                    fence = ""
                self._advance()
            elif heading := HEADING.match(line):
                self._add_heading(len(heading[1]), CLOSING_HASHES.sub("", heading[2] or ""), 1)
            elif (underline := _UNDERLINE.match(following)) and not _NO_PARAGRAPH.match(line):
                self._add_heading(1 if "=" in underline[1] else 2, line, 2)
            elif "|" in line and "|" in following and _DELIMITER.match(following):
                self._add_table()
            else:
                self._advance()

    def _peek(self, ahead: int) -> str:
        """Return the line ``ahead`` lines below the current one, without its end; ``""`` if none."""
        number = self._line + ahead
        return self._lines[number].rstrip("\r\n") if number < len(self._lines) else ""

    def _advance(self, lines: int = 1) -> None:
        self._position += sum(map(len, self._lines[self._line : self._line + lines]))
        self._line += lines

    def _add_heading(self, level: int, text: str, lines: int) -> None:
        start, text = self._position, text.strip()
        self._advance(lines)
        if len(text) <= MAX_HEADING_CHARACTERS:
            self.outline.add_heading(level, remove_markup(text), start, self._position)

    def _add_table(self) -> None:
        start, columns = self._position, _split_cells(self._peek(0))
        self._advance(2)
        first, records = self._line, list[str]()
        while "|" in (line := self._peek(0)):
            records.append(format_record(columns, _split_cells(line)))
            self._advance()
        self.outline.skip(start, self._position)
        self.tables.append(_Table(self.outline.headings, self._first_line + first, records))


def remove_markup(text: str) -> str:
    """Return a line of Markdown without emphasis, code marks and escapes."""
    return _ESCAPE.sub(r"\1", _EMPHASIS.sub(r"\2", text))


def _split_cells(line: str) -> list[str]:
    cells = _CELL_END.split(line.strip().removeprefix("|"))
    if cells and not cells[-1].strip():  # after the last bar
        cells.pop()
    return [remove_markup(cell.strip()) for cell in cells]
