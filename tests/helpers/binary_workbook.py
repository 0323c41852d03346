"""Small workbooks in the binary form of Excel (.xlsb), which no package that ragqa uses can write."""

import struct
from collections.abc import Sequence

from tests.helpers.documents import make_zip

# Types of records, from "[MS-XLSB]: Excel Binary File Format", 2.5.
_ROW, _NUMBER, _TEXT = 0, 5, 6
_BEGIN_SHEET, _END_SHEET, _BEGIN_DATA, _END_DATA, _SIZE = 129, 130, 145, 146, 148
_BEGIN_BOOK, _END_BOOK, _BEGIN_SHEETS, _END_SHEETS, _SHEET, _CALCULATION = 131, 132, 143, 144, 156, 157
_RELATIONS = (
    '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" '
    'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" '
    'Target="worksheets/sheet1.bin"/></Relationships>'
)


def make_binary_workbook(name: str, rows: Sequence[Sequence[str | float]]) -> bytes:
    """Return a workbook with one sheet; every row has the same number of cells."""
    book = _record(_BEGIN_BOOK) + _record(_BEGIN_SHEETS)
    book += _record(_SHEET, struct.pack("<II", 0, 1) + _text("rId1") + _text(name))
    book += _record(_END_SHEETS) + _record(_CALCULATION) + _record(_END_BOOK)
    sheet = _record(_BEGIN_SHEET) + _record(_SIZE, struct.pack("<4I", 0, len(rows) - 1, 0, len(rows[0]) - 1))
    sheet += _record(_BEGIN_DATA)
    for number, row in enumerate(rows):
        sheet += _record(_ROW, struct.pack("<I", number) + bytes(13))
        for column, value in enumerate(row):
            is_text = isinstance(value, str)
            content = _text(value) if isinstance(value, str) else struct.pack("<d", value)
            sheet += _record(_TEXT if is_text else _NUMBER, struct.pack("<II", column, 0) + content)
    sheet += _record(_END_DATA) + _record(_END_SHEET)
    parts = {"workbook.bin": book, "_rels/workbook.bin.rels": _RELATIONS, "worksheets/sheet1.bin": sheet}
    return make_zip({f"xl/{part}": content for part, content in parts.items()})


def _record(kind: int, content: bytes = b"") -> bytes:
    return _number(kind) + _number(len(content)) + content


def _number(value: int) -> bytes:
    """Return a number in groups of 7 bits, the lowest first; a set eighth bit says that another group follows."""
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes((*groups, value))


def _text(value: str) -> bytes:
    return struct.pack("<I", len(value)) + value.encode("utf-16-le")
