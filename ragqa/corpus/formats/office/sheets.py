"""Spreadsheets (.xlsx, .xls, .xlsb, .ods) through python-calamine: one record a row."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from io import BytesIO
from typing import Any

from ragqa.corpus.formats.office.content import ENCRYPTED, Content, TextBuilder, UnreadableFile
from ragqa.corpus.formats.records import format_record

_PLAIN_NAME = re.compile(r"(?:sheet|tabelle|feuil|feuille|hoja|foglio|table)\s*\d*", re.IGNORECASE)
"""Names that programs give to sheets."""
_ROWS_AT_ONCE = 10_000
_EXACT = 1e15
"""Number up to which a floating-point number is exact to the unit."""


def read_sheets(data: bytes, title: str = "", date: str = "") -> Content:
    """Return the content of a spreadsheet; the number of a record is that of its row.

    Args:
        data: bytes of the file.
        title: title in the metadata of the file.
        date: date in the metadata.
    """
    from python_calamine import CalamineError, CalamineWorkbook, PasswordError

    builder = TextBuilder("row")
    try:
        workbook = CalamineWorkbook.from_filelike(BytesIO(data))
        for name in workbook.sheet_names:
            try:
                sheet = workbook.get_sheet_by_name(name)
            except CalamineError as error:
                if isinstance(error, PasswordError):
                    raise
                if "not found" in str(error).lower():  # a chart, which has no cells
                    continue
                raise
            _add_sheet(builder, name, sheet.iter_rows() if sheet.start else ())
    except PasswordError as error:
        raise UnreadableFile(ENCRYPTED) from error
    except CalamineError as error:
        raise UnreadableFile(f"damaged: {error}") from error
    return builder.finish(title, date)


def _add_sheet(builder: TextBuilder, name: str, rows: Iterable[Sequence[Any]]) -> None:
    """Add all rows of a sheet."""
    builder.leave_headings()
    if not _PLAIN_NAME.fullmatch(name):
        builder.add_heading(2, name)
    records, number = list[str](), 0
    for number, record in enumerate(_format_rows(rows), 1):
        records.append(record)
        if len(records) == _ROWS_AT_ONCE:
            builder.add_records(records, number=number + 1 - len(records), sheet=name)
            records = []
    builder.add_records(records, number=number + 1 - len(records), sheet=name)


def _format_rows(rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield each row as a record; an empty string for an empty row, and for a row with the names of the columns.

    The first row with two cells has the names. So has a row after an empty one, if it has text only and the row below
    it does not: another table begins there.
    """
    columns = list[str]()
    is_first, follows_empty = True, False
    rows = iter(rows)
    row = next(rows, None)
    while row is not None:
        following = next(rows, None)
        values = [format_value(value) for value in row]
        count = sum(map(bool, values))
        has_text = any(isinstance(value, str) and value for value in row)
        is_new = follows_empty and _is_text_only(row) and following is not None and not _is_text_only(following)
        if count > 1 and has_text and (is_first or is_new):
            columns, is_first = values, False
            yield "" if following is not None else format_record((), values)
        else:
            yield format_record(columns if count > 1 or not is_first else (), values)
        follows_empty = not count
        row = following


def _is_text_only(row: Sequence[Any]) -> bool:
    return all(isinstance(value, str) for value in row)


def format_value(value: Any) -> str:
    """Return the value of a cell as a person sees it: ``2024-03-01`` and not ``2024-03-01 00:00:00``."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < _EXACT else format(value, ".15g")
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds").removesuffix(":00").removesuffix(" 00:00")
    if isinstance(value, time):
        return value.isoformat("seconds").removesuffix(":00")
    if isinstance(value, date | timedelta):
        return str(value)
    return " ".join(str(value).split())
