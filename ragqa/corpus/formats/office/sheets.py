"""Read spreadsheets (.xlsx, .xls, .xlsb, .ods) with python-calamine, row by row.

Each row becomes a record, with the names of the columns.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from io import BytesIO
from itertools import chain, repeat
from typing import Any

from ragqa.corpus.formats.office.content import ENCRYPTED, Content, TextBuilder, UnreadableFile
from ragqa.corpus.formats.office.number_formats import iter_tables
from ragqa.corpus.formats.office.package import Package
from ragqa.corpus.formats.records import format_record

_PLAIN_NAME = re.compile(r"(?:sheet|tabelle|feuil|feuille|hoja|foglio|table)\s*\d*", re.IGNORECASE)
"""Pattern of the names that programs give to sheets."""
_ROWS_AT_ONCE = 10_000
"""Maximum number of rows of a section."""
_EXACT = 1e15
"""Limit below which floating-point numbers represent every whole number."""


def read_sheets(data: bytes, package: Package | None = None, title: str = "", date: str = "") -> Content:
    """Return the content of a spreadsheet; the number of a record is the number of its row.

    Args:
        data: bytes of the file.
        package: the same file as a package, for the formats of its numbers; None if it is not a package.
        title: title in the metadata of the file.
        date: date in the metadata, in a form that ``parse_date`` reads.

    Raises:
        UnreadableFile: the file is damaged or encrypted.
    """
    from python_calamine import CalamineError, CalamineWorkbook, PasswordError

    builder = TextBuilder("row")
    try:
        workbook = CalamineWorkbook.from_filelike(BytesIO(data))
        tables = iter_tables(package, workbook.sheet_names) if package else ()
        for name, texts in zip(workbook.sheet_names, chain(tables, repeat(())), strict=False):
            try:
                sheet = workbook.get_sheet_by_name(name)
            except CalamineError as error:
                if isinstance(error, PasswordError):
                    raise
                if "not found" in str(error).lower():  # a chart, which has no cells
                    continue
                raise
            first = sheet.start[1] if sheet.start else 0
            _add_sheet(builder, name, _format_rows(sheet.iter_rows() if sheet.start else (), texts, first))
    except PasswordError as error:
        raise UnreadableFile(ENCRYPTED) from error
    except CalamineError as error:
        raise UnreadableFile(f"damaged: {error}") from error
    return builder.finish(title, date)


def _add_sheet(builder: TextBuilder, name: str, rows: Iterable[str]) -> None:
    """Add the records of a sheet, from row 1, with the name of the sheet as their heading.

    A default name, such as ``Sheet1``, does not become a heading.
    """
    builder.end_headings()
    if not _PLAIN_NAME.fullmatch(name):
        builder.add_heading(2, name)
    records, number = list[str](), 0
    for number, record in enumerate(rows, 1):
        records.append(record)
        if len(records) == _ROWS_AT_ONCE:
            builder.add_records(records, number=number + 1 - len(records), sheet=name)
            records = []
    builder.add_records(records, number=number + 1 - len(records), sheet=name)


def _format_rows(table: Iterable[Sequence[Any]], texts: Iterable[Mapping[int, str]], first: int) -> Iterator[str]:
    """Yield each row as a record; an empty string for a row without a record.

    Empty rows and rows of column names have no record, except for names in the last row. The first row with a text and
    at least two values has the names. A row after an empty row begins a new table, with its own names, if it has only
    texts and the row below it does not.

    Args:
        table: values of the cells by row.
        texts: formatted numbers by row; see ``iter_tables``.
        first: index of the column of the first value of each row, from 0.
    """
    columns = list[str]()
    is_first, follows_empty = True, False
    rows = zip(table, chain(texts, repeat({})), strict=False)
    pair = next(rows, None)
    while pair is not None:
        (row, shown), pair = pair, next(rows, None)
        following = pair[0] if pair else None
        values = [shown.get(column) or format_value(value) for column, value in enumerate(row, first)]
        count = sum(map(bool, values))
        has_text = any(isinstance(value, str) and value for value in row)
        is_new = follows_empty and _is_text_only(row) and following is not None and not _is_text_only(following)
        if count > 1 and has_text and (is_first or is_new):
            columns, is_first = values, False
            yield "" if following is not None else format_record((), values)
        else:
            yield format_record(columns if count > 1 or not is_first else (), values)
        follows_empty = not count


def _is_text_only(row: Sequence[Any]) -> bool:
    return all(isinstance(value, str) for value in row)


def format_value(value: Any) -> str:
    """Return the value of a cell as text, such as ``2024-03-01`` for a date at midnight.

    Args:
        value: value that python-calamine returned: a text, number, truth value, date, time or duration.
    """
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < _EXACT else format(value, ".15g")
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds").removesuffix(":00").removesuffix(" 00:00")
    if isinstance(value, time):
        return value.isoformat("seconds").removesuffix(":00")
    if isinstance(value, timedelta):
        minutes, seconds = divmod(round(value.total_seconds()), 60)
        return f"{minutes // 60}:{minutes % 60:02}" + (f":{seconds:02}" if seconds else "")
    if isinstance(value, date):
        return str(value)
    return " ".join(str(value).split())
