"""Tables of HTML pages: rows that become records if the table has a header."""

import re
from dataclasses import dataclass, field

from ragqa.corpus.formats.records import format_record

_SPAN = re.compile(r"\b(row|col)span\s*=\s*[\"']?\s*(\d{1,4})", re.IGNORECASE)
_MAX_HEADER_ROWS = 3
_MAX_SPAN = 50
"""Maximum number of columns of a cell, so that a tag of a few bytes cannot become thousands of cells."""
_MIN_CELLS, _MAX_GROWTH = 1_000, 10
"""A table has at most ``_MIN_CELLS`` plus ``_MAX_GROWTH`` times its cells after cells are repeated."""
_MAX_REPEATED = 200
"""Maximum length in characters of a text that is repeated in all rows that its cell covers."""


@dataclass
class Cell:
    """Cell of a table."""

    is_header: bool
    pieces: list[str] = field(default_factory=list)
    """Pieces of its text."""
    columns: int = 1
    rows: int = 1
    """Number of columns and rows that it covers."""

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
        """Pieces of the text outside of the cells."""
        self.has_inner = False
        """True if the table contains another table; then it serves layout and has no records."""

    def add_text(self, text: str) -> None:
        """Add a text to the last cell; to the caption if the table has no cell in its last row."""
        cells = self.rows[-1] if self.rows else []
        (cells[-1].pieces if cells else self.caption).append(text)

    def make_records(self) -> list[str]:
        """Return the rows of the table as records, without the header.

        The list is empty if the table has no header, only a header, only one column, or another table in it, and if the
        repetition of cells makes it too large.

        The header is the first one to three rows, in a table of several columns. In a table of two columns, it can also
        be the first column.
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
    """Return the texts of the cells of a table by row and column.

    The text of a cell over several rows is repeated in each row, unless it is long. The text of a header over several
    columns is repeated in each column; any other text stands in the first column only. The list is empty if the
    repetition makes too many cells.
    """
    grid, left = list[list[str]](), _MIN_CELLS + _MAX_GROWTH * sum(map(len, rows))
    above: dict[int, tuple[str, int]] = {}  # by column: text of a cell from above, and rows that it still covers
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
