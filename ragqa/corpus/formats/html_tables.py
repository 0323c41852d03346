"""Tables of HTML pages: rows that become records if the table has a header."""

import re
from dataclasses import dataclass, field

from ragqa.corpus.formats.records import format_record

_SPAN = re.compile(r"\b(row|col)span\s*=\s*[\"']?\s*(\d{1,4})", re.IGNORECASE)
_MAX_HEADER_ROWS = 3
_MAX_SPAN = 50
"""Maximum number of columns of a cell, so that a tag of a few bytes cannot become thousands of cells."""
_MIN_CELLS, _MAX_GROWTH = 1_000, 10
"""Limit of a table's size after cells are repeated: ``_MIN_CELLS`` plus ``_MAX_GROWTH`` times its cells."""
_MAX_REPEATED = 200
"""Maximum length in characters of a text that is repeated in each row of its cell."""


@dataclass
class Cell:
    """Cell of a table."""

    is_header: bool
    pieces: list[str] = field(default_factory=list)
    """Pieces of the cell's text."""
    columns: int = 1
    rows: int = 1
    """Number of ``columns`` and ``rows`` that the cell covers."""

    def set_spans(self, attributes: str) -> None:
        """Set ``columns`` and ``rows`` from the attributes of the cell's tag."""
        for kind, number in _SPAN.findall(attributes):
            if kind.lower() == "col":
                self.columns = max(1, min(int(number), _MAX_SPAN))
            else:
                self.rows = max(1, int(number))

    @property
    def text(self) -> str:
        """Text of the cell in one line."""
        return " ".join("".join(self.pieces).split())


class HtmlTable:
    """Table of a page, collected while the page is read."""

    def __init__(self) -> None:
        self.rows: list[list[Cell]] = []
        """Cells by row."""
        self.caption: list[str] = []
        """Pieces of the text before the first row, and before the first cell of each row."""
        self.has_inner = False
        """True if the table contains another table; then it probably serves layout, and gives no records."""

    def add_text(self, text: str) -> None:
        """Add a text to the last cell, or to the caption if the last row has no cell."""
        cells = self.rows[-1] if self.rows else []
        (cells[-1].pieces if cells else self.caption).append(text)

    def make_records(self) -> list[str]:
        """Return the rows of the table as records, without the header.

        The header is the first one to three rows or, if each row is a header cell and another cell, the first column.
        The list is empty if the table has no header, no other row, only one column, an inner table, or too many
        repeated cells.
        """
        rows = [row for row in self.rows if row]
        if self.has_inner or not rows:
            return []
        if all(len(row) == 2 and row[0].is_header and not row[1].is_header for row in rows):
            return [format_record([name.text], [value.text]) for name, value in rows]
        above = 0
        while above < min(len(rows), _MAX_HEADER_ROWS) and _is_header(rows[above]):
            above += 1
        grid = _lay_out(rows)
        if not above or above == len(rows) or max(map(len, grid), default=0) < 2:
            return []
        width = max(len(row) for row in grid[:above])
        names = [
            " ".join(dict.fromkeys(row[n] for row in grid[:above] if n < len(row) and row[n])) for n in range(width)
        ]
        return [record for row in grid[above:] if (record := format_record(names, row))]


def _is_header(row: list[Cell]) -> bool:
    return any(cell.is_header for cell in row) and all(cell.is_header or not cell.text for cell in row)


def _lay_out(rows: list[list[Cell]]) -> list[list[str]]:
    """Return a table's texts by row and column; an empty list if repetition makes too many.

    A cell over several rows repeats its text in each row, unless it is long. A header over several columns repeats its
    text in each column; other cells have it in their first column only.
    """
    grid, left = list[list[str]](), _MIN_CELLS + _MAX_GROWTH * sum(map(len, rows))
    above: dict[int, tuple[str, int]] = {}  # by column: text of a cell that began above, and its number of rows left
    for row in rows:
        texts, below = list[str](), dict[int, tuple[str, int]]()

        def add(text: str, count: int, texts: list[str] = texts, below: dict[int, tuple[str, int]] = below) -> None:
            if count > 1 and len(text) <= _MAX_REPEATED:
                below[len(texts)] = (text, count - 1)
            texts.append(text)

        for cell in row:
            while found := above.pop(len(texts), None):
                add(*found)
            for number in range(cell.columns):
                add(cell.text if cell.is_header or not number else "", cell.rows)
        while found := above.pop(len(texts), None):
            add(*found)
        above = below
        grid.append(texts)
        left -= len(texts)
        if left < 0:
            return []
    return grid
