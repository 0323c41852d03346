"""Layout of the lines on PDF pages: running heads, columns side by side, and tables."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

HEADING_RATIO = 1.12
"""Font size above which a line is a heading, as a multiple of the usual font size."""
_MARGIN = 0.16
"""Share of the page's height, at the top and at the bottom, in which running heads stand."""
_MAX_MARGIN_LINES = 3
_MAX_MARGIN_WORDS = 15
_MARGIN_GAP = 1.6
"""Minimum distance of running heads from the text, as a multiple of the font size."""
_MIN_REPEATS = 3
"""Minimum number of pages with the same running head; 2 in a file of up to two pages."""
_PAGE_NUMBER = re.compile(r"(?:page|seite|p\.)?\W*(?:\d+|[ivxlc]+)\W*(?:(?:of|von|/)\W*\d+)?\W*", re.IGNORECASE)
_OUTER_NUMBER = re.compile(r"^(\d{1,5})\b|\b(\d{1,5})(?: ?(?:of|von|/) ?\d+)?$")
_MIN_COLUMN_LINES = 6
"""Minimum number of lines with two cells on a page of two columns."""
_MIN_COLUMN_CHARACTERS = 15
"""Minimum mean length of the lines of a column, in characters; the cells of tables are shorter."""


@dataclass(frozen=True, slots=True)
class TextRun:
    """Part of a line between large gaps, such as the cell of a table."""

    text: str
    left: float
    right: float
    """Left and right edge, as distances from the left edge of the page in points."""


@dataclass(frozen=True, slots=True)
class Line:
    """Line of a page."""

    cells: tuple[TextRun, ...]
    top: float
    """Distance of the baseline of the first character from the lower edge of the page, in points."""
    bottom: float
    """Distance as in ``top``, for the last character; smaller if a hyphenated word joins two lines of the page."""
    size: float
    """Font size in points."""
    is_bold: bool

    @property
    def text(self) -> str:
        """Text of all cells, separated by spaces."""
        return " ".join(cell.text for cell in self.cells)


@dataclass(frozen=True, slots=True)
class Page:
    """Page of a PDF or of an image."""

    lines: tuple[Line, ...]
    """Lines in the order in which the file draws them."""
    height: float
    """Height in points."""


def drop_running_heads(pages: Sequence[Page], text_size: float) -> list[Page]:
    """Return the pages without running heads, running feet and page numbers.

    Args:
        pages: all pages.
        text_size: usual font size in points; a line in the margin is a heading above ``HEADING_RATIO`` times this size.
    """
    margins = [[line for line in _find_margin(page) if line.size <= text_size * HEADING_RATIO] for page in pages]
    texts = Counter(text for page in margins for text in {line.text for line in page})
    shifts = Counter(
        shift for number, page in enumerate(margins) for line in page for shift in _find_shifts(line, number)
    )
    least = min(_MIN_REPEATS, max(2, len(pages)))

    def is_running(line: Line, number: int) -> bool:
        has_number = any(shifts[shift] >= _MIN_REPEATS for shift in _find_shifts(line, number))
        return has_number or texts[line.text] >= least or bool(_PAGE_NUMBER.fullmatch(line.text))

    pages_left = list[Page]()
    for number, (page, margin) in enumerate(zip(pages, margins, strict=True)):
        running = {line for line in margin if is_running(line, number)}
        pages_left.append(replace(page, lines=tuple(line for line in page.lines if line not in running)))
    return pages_left


def _find_margin(page: Page) -> list[Line]:
    """Return the short lines at the top and bottom of a page, beyond a gap from the text."""
    found = list[Line]()
    for is_top in (True, False):
        lines = sorted(page.lines, key=lambda line: line.top, reverse=is_top)
        limit = page.height * (1 - _MARGIN if is_top else _MARGIN)
        for count in range(1, min(_MAX_MARGIN_LINES + 1, len(lines))):
            if lines[count - 1].top < limit if is_top else lines[count - 1].top > limit:
                break
            if abs(lines[count - 1].top - lines[count].top) > _MARGIN_GAP * lines[count - 1].size:
                short = (line for line in lines[:count] if len(line.text.split()) <= _MAX_MARGIN_WORDS)
                found += [line for line in short if line not in found]
    return found


def _find_shifts(line: Line, page: int) -> set[int]:
    """Return the numbers at both ends of a line, each minus the page's number (from 0).

    For page numbers, the differences are equal on all pages.
    """
    numbers = _OUTER_NUMBER.findall(line.text)
    return {int(number) - page for pair in numbers for number in pair if number}


def order_columns(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of a page in reading order.

    If two columns stand side by side, the left one precedes the right one. A line across both columns follows the
    columns above it.
    """
    gutter = _find_gutter(lines)
    if gutter is None:
        return list(lines)
    ordered = list[Line]()
    for is_column, run in groupby(lines, lambda line: _split_line(line, *gutter) is not None):
        if is_column:
            halves = [_split_line(line, *gutter) for line in run]
            ordered += [half[side] for side in (0, 1) for half in halves if half and half[side].cells]
        else:
            ordered += run
    return ordered


def _find_gutter(lines: Sequence[Line]) -> tuple[float, float] | None:
    """Return the edges (points) of the gap between two columns; None without two columns."""
    pairs = [line.cells for line in lines if len(line.cells) == 2]
    if len(pairs) < _MIN_COLUMN_LINES or len(pairs) * 2 < len(lines):
        return None
    if sum(len(cell.text) for pair in pairs for cell in pair) < 2 * len(pairs) * _MIN_COLUMN_CHARACTERS:
        return None
    left, right = max(pair[0].right for pair in pairs), min(pair[1].left for pair in pairs)
    return (left, right) if left < right else None


def _split_line(line: Line, left: float, right: float) -> tuple[Line, Line] | None:
    """Return the parts of a line to the left and right of a gap; None if the line crosses it.

    A part can be without cells. ``left`` and ``right`` are the edges of the gap in points.
    """
    halves = [cell for cell in line.cells if cell.right <= left], [cell for cell in line.cells if cell.left >= right]
    if len(halves[0]) + len(halves[1]) < len(line.cells):
        return None
    return replace(line, cells=tuple(halves[0])), replace(line, cells=tuple(halves[1]))


def is_table(lines: Sequence[Line]) -> bool:
    """Return True if successive lines with several cells form a table.

    The first line has the column names, and at least two rows follow, each with at most as many cells. No name begins
    or ends like a part of a sentence; if there are two names, both have letters.
    """
    header, *rows = lines
    names = [cell.text for cell in header.cells]
    if len(rows) < 2 or len(names) < max(len(row.cells) for row in rows):
        return False
    if len(names) == 2 and not all(any(map(str.isalpha, name)) for name in names):
        return False
    return all(name[0].isalnum() and name[-1] not in ",;{(:" for name in names)


def assign_columns(header: Line, rows: Iterable[Line]) -> list[list[str]]:
    """Return the texts of the cells of a table by row and column, the header first.

    Each cell below the header belongs to the column whose name is nearest.

    Args:
        header: line with the names of the columns.
        rows: lines below it.
    """
    table = [[cell.text for cell in header.cells]]
    for row in rows:
        values = [""] * len(header.cells)
        for cell in row.cells:
            nearest = min(range(len(values)), key=lambda column: _measure_distance(cell, header.cells[column]))
            values[nearest] = f"{values[nearest]} {cell.text}".strip()
        table.append(values)
    return table


def _measure_distance(cell: TextRun, name: TextRun) -> float:
    """Return the smallest distance (points) of two cells' left edges, right edges or centres."""
    centre = abs(cell.left + cell.right - name.left - name.right) / 2
    return min(abs(cell.left - name.left), abs(cell.right - name.right), centre)
