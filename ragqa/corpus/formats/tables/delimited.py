"""Read tables of delimited text (CSV, TSV): each row becomes a record.

A table is read as a stream. A long table becomes several documents, so memory holds only one of them.
"""

import csv
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import PurePath

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument, Section
from ragqa.corpus.formats.limits import MAX_RECORD_BYTES
from ragqa.corpus.formats.records import format_record

PART_CHARACTERS = 4_000_000
"""Number of characters after which a table continues in another document."""
_SAMPLE_LINES, _SAMPLE_CHARACTERS = 100, 1 << 16
"""Maximum number of first lines, and of their characters, that determine the delimiter of a file."""
_SAMPLE_ROWS = 20
"""Number of first rows that determine the names of the columns."""
_MAX_ROW_LINES, _MAX_ROW_CHARACTERS = 1_000, 100_000
"""Maximum number of lines and of characters in a quoted row; a quote that is open for longer is malformed."""
_DELIMITERS = ",;\t|"
_DECLARATION = re.compile(r"sep=(.)\r?\n")  # the first line of files for Excel
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")  # the csv module refuses a single \r within a line
_MAX_NAME_CHARACTERS = 200
_VALUE = re.compile(r"[-+(]?[$€£]?[ ]?\d[\d.,:/%€$£) -]*|\S+@\S+|https?:\S+")
_YEAR = re.compile(r"(?:19|20)\d\d")


def read(file: InputFile) -> Iterator[NumberedDocument]:
    """Yield the table as one document, or as several documents if it is long.

    Rows are numbered from 1, the header included, as in a spreadsheet. Documents after the first one have the id
    ``FILE#ROW``, with the number of their first row.

    Raises:
        BadLine: in strict mode, a quote is not closed, or text follows a closing quote.
        LimitError: as for ``InputFile.iter_lines``.
    """
    lines = _iter_lines(file)
    sample = list(islice(lines, _SAMPLE_LINES))
    if sample and (declaration := _DECLARATION.match(sample[0])):
        delimiter = declaration[1]
        del sample[0]
    else:
        delimiter = _find_delimiter(sample, PurePath(file.name).suffix.lower())
    rows = _iter_rows(chain(sample, lines), delimiter, file)
    first_rows = list(islice(rows, _SAMPLE_ROWS))
    above, headings, columns = _find_columns(first_rows)
    records = (format_record(columns, row) for row in chain(first_rows[above:], rows))
    for first, text in _join_parts(records, above + 1):
        identifier, line = (f"{file.path}#{first}", first) if first > above + 1 else (file.path, 0)
        section = Section(0, len(text), tuple(headings), first, has_records=True)
        yield line, Document(identifier, file.make_title(), text, file.path, (section,), "row")


def _join_parts(records: Iterable[str], first: int) -> Iterator[tuple[int, str]]:
    """Yield each part of a table: the number of its first row, and its records, one per line."""
    lines, size, start = list[str](), 0, first
    for number, record in enumerate(records, first):
        lines.append(f"{record}\n")
        size += len(record)
        if size > PART_CHARACTERS:
            yield first, "".join(lines)
            lines, size, first = [], 0, number + 1
    if lines or first == start:  # a table without rows is reported as empty
        yield first, "".join(lines)


def _iter_lines(file: InputFile) -> Iterator[str]:
    for number, line, is_replaced in file.iter_lines(can_guess=True):
        if is_replaced:
            file.note_undecodable(number)
        yield from _LINE.findall(line) if "\r" in line else [line]


def _find_delimiter(lines: Sequence[str], suffix: str) -> str:
    """Return the delimiter that divides the most lines into the same number of cells.

    Lines of a single cell do not count. In a file ``.tsv`` or ``.tab``, the tab is the delimiter if a line has one.
    """
    if suffix in (".tsv", ".tab") and any("\t" in line for line in lines):
        return "\t"
    sample = [line[:_SAMPLE_CHARACTERS] for line in lines]
    while len(sample) > 1 and sum(map(len, sample)) > _SAMPLE_CHARACTERS:
        sample = sample[: len(sample) // 2]

    def rate(delimiter: str) -> tuple[int, int]:
        widths = Counter(len(row) for row in csv.reader(sample, delimiter=delimiter) if len(row) > 1)
        width, count = max(widths.items(), key=lambda item: (item[1], item[0]), default=(0, 0))
        return count, width

    return max(_DELIMITERS, key=rate)


def _iter_rows(lines: Iterator[str], delimiter: str, file: InputFile) -> Iterator[list[str]]:
    """Yield the rows of a table; reject each row that has a malformed quote.

    The first line of a rejected row becomes a row; its quotes are read as plain characters if that gives more cells.
    """
    csv.field_size_limit(MAX_RECORD_BYTES)  # for the whole process; the default is 128 KiB
    row_lines, pending_lines = list[str](), deque[str]()

    def iter_lines_of_row() -> Iterator[str]:
        while len(row_lines) < 2 or (
            len(row_lines) < _MAX_ROW_LINES and sum(map(len, row_lines)) < _MAX_ROW_CHARACTERS
        ):
            line = pending_lines.popleft() if pending_lines else next(lines, None)
            if line is None:
                return
            row_lines.append(line)
            yield line

    number = 0
    while True:
        try:
            for row in csv.reader(iter_lines_of_row(), delimiter=delimiter, strict=True):
                number += 1
                yield row
                row_lines.clear()
            return
        except csv.Error:
            number += 1
            file.reject(f"row {number} has a quote that is not closed, or text after a closing quote", number)
            pending_lines.extendleft(reversed(row_lines[1:]))
            line = row_lines[0].rstrip("\r\n")
            row_lines.clear()
            yield max(next(csv.reader([line], delimiter=delimiter), []), line.split(delimiter), key=len)


def _find_columns(rows: Sequence[Sequence[str]]) -> tuple[int, list[str], list[str]]:
    """Find the headings, the column names and the first record of a table.

    Rows of one cell above the header are headings. The result is the number of rows above the records, the texts of
    the headings, and the names of the columns (none without a header).
    """
    widths = Counter(len(row) for row in rows if row)
    width = max(widths.items(), key=lambda item: (item[1], item[0]), default=(0, 0))[0]
    headings, above = list[str](), 0
    for row in rows:
        cells = [cell.strip() for cell in row if cell.strip()]
        if len(cells) > 1 or (cells and width < 2):
            break
        headings += cells
        above += 1
    rest = rows[above:]
    if len(rest) > 1 and _has_names(rest[0], rest[1:]):
        return above + 1, headings, list(rest[0])
    return above, headings, []


def _has_names(row: Sequence[str], following: Sequence[Sequence[str]]) -> bool:
    """Return True if the cells of a row can be the names of columns.

    Names are short and distinct. Numbers and addresses are not names, except a year above a column without years.
    """
    names = [cell.strip() for cell in row if cell.strip()]
    if not names or len({*names}) < len(names) or max(map(len, names)) > _MAX_NAME_CHARACTERS:
        return False
    values = [(place, cell.strip()) for place, cell in enumerate(row) if _VALUE.fullmatch(cell.strip())]
    return all(
        _YEAR.fullmatch(cell)
        and not any(place < len(other) and _YEAR.fullmatch(other[place].strip()) for other in following)
        for place, cell in values
    )
