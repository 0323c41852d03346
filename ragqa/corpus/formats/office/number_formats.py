"""Format the numbers of a spreadsheet as Excel shows them, such as ``15%`` for 0.15."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import lru_cache, reduce
from io import BytesIO
from typing import NamedTuple
from xml.etree.ElementTree import Element, ParseError, iterparse

from ragqa.corpus.formats.office.content import UnreadableFile
from ragqa.corpus.formats.office.package import (
    Package,
    find_child,
    get_children,
    get_name,
    get_relation_id,
    get_value,
    iter_named,
)
from ragqa.corpus.formats.records import MAX_COLUMNS

_BUILT_IN = {1: "0", 2: "0.00", 9: "0%", 10: "0.00%"}
_BUILT_IN |= dict.fromkeys((3, 37, 38), "#,##0") | dict.fromkeys((4, 39, 40), "#,##0.00")
_LONGEST = 255
"""Maximum length of a format in characters, as in Excel."""
_MOST_DIGITS = 30
"""Maximum number of digits and separators in a format."""
_SECTION = re.compile(r'(?:"[^"]*"|\\.|\[[^\]]*\]|[^;"\\\[])+', re.DOTALL)
# Quoted text, an escaped character, a currency; a colour, a space, a filler; digits, a percent sign, anything else.
_PART = re.compile(
    r'"([^"]*)"|\\(.)|\[\$([^\]-]*)[^\]]*\]|\[[a-z]+\d*\]|[_*].|([0#?.,]+)|(%)|(.)', re.IGNORECASE | re.DOTALL
)
_NOT_UNDERSTOOD = re.compile(r"[\w@/\[\"\\]", re.ASCII)
"""Pattern of characters in formats that are not supported: dates, fractions, exponents, texts and conditions."""
_OPEN_NUMBERS = ("float", "percentage", "currency", "time")


class _Format(NamedTuple):
    """Parsed format for the numbers of one sign: positive, negative or zero."""

    before: str
    """Text before the digits."""
    digits: str
    """Placeholders of the digits, such as ``#,##0.00``."""
    after: str
    """Text after the digits."""
    scale: int
    """Exponent of the power of ten by which a number is multiplied, such as 2 for percents."""


def format_number(value: float, code: str) -> str:
    """Return a number in a format of Excel; an empty string if this is not supported.

    Args:
        value: number of the cell.
        code: format, such as ``#,##0.00 "€"`` (ECMA-376, part 1, section 18.8.31).
    """
    parsed = _parse_format(code, 1 if value < 0 else 2 * (value == 0))
    if not parsed:
        return ""
    whole, _, decimals = parsed.digits.partition(".")
    try:
        exact = abs(Decimal(repr(value)).scaleb(parsed.scale))
        rounded = exact.quantize(Decimal(1).scaleb(-len(decimals)), ROUND_HALF_UP)
    except InvalidOperation:  # too many digits
        return ""
    units, _, fraction = f"{rounded:{',' if ',' in whole else ''}f}".partition(".")
    fraction = fraction[: decimals.count("0")] + fraction[decimals.count("0") :].rstrip("0")
    units = "" if units == "0" and "0" not in whole else units.zfill(whole.count("0"))
    return " ".join(f"{parsed.before}{units}{fraction and '.'}{fraction}{parsed.after}".split())


@lru_cache(maxsize=256)  # the cells of a column have the same format
def _parse_format(code: str, place: int) -> _Format | None:
    """Parse a format of Excel for numbers of one sign; return None if it is not supported.

    Args:
        code: the format, with up to three sections.
        place: 0 for positive numbers, 1 for negative numbers, 2 for zero.
    """
    sections = _SECTION.findall(code[:_LONGEST])
    section = "".join(sections[place if place < len(sections) else 0 :][:1])
    before, digits, after, scale = "-" if place == 1 and len(sections) < 2 else "", "", "", 0
    for *texts, number, percent, other in _PART.findall(section):
        if (number and digits) or _NOT_UNDERSTOOD.match(other):
            return None
        text = "".join(texts) + percent + other
        digits, scale = digits or number, scale + 2 * len(percent)
        before, after = (before, after + text) if digits else (before + text, after)
    shown = digits.rstrip(",")
    if not 0 < len(shown) <= _MOST_DIGITS:
        return None
    return _Format(before, shown, after, scale - 3 * (len(digits) - len(shown)))


def iter_tables(package: Package, names: Sequence[str]) -> Iterator[Iterator[dict[int, str]]]:
    """Yield an iterator over the rows of each sheet of an Excel or OpenDocument file.

    The rows begin with row 1 of the sheet, and end with the last row in the file or where the file is damaged. A row
    is a dictionary of formatted numbers by column, from 0. Numbers in unsupported formats are missing. If the file
    is damaged, sheets at the end can be missing; an Excel file without supported formats gives no sheet.

    Args:
        package: package of the file.
        names: names of all sheets, in the order to yield them; an OpenDocument file has its own order.
    """
    with suppress(UnreadableFile, ParseError):
        if "content.xml" in package.names:
            yield from _iter_open_tables(package.read("content.xml"))
        elif formats := _read_formats(package):
            relations = package.read_relations("xl/workbook.xml")
            parts = {}
            for sheet in iter_named(package.parse("xl/workbook.xml"), "sheet"):
                parts[get_value(sheet, "name")] = relations.get(get_relation_id(sheet), ("", ""))[1]
            for name in names:
                yield _iter_excel_rows(package.read(parts.get(name, "")), formats)


def _read_formats(package: Package) -> dict[str, str]:
    """Return the supported number formats, by the index of a cell's style."""
    root = package.parse("xl/styles.xml")
    codes = {str(key): code for key, code in _BUILT_IN.items()}
    codes |= {get_value(part, "numFmtId"): get_value(part, "formatCode") for part in iter_named(root, "numFmt")}
    styles = (codes.get(get_value(style, "numFmtId"), "") for style in get_children(find_child(root, "cellXfs")))
    return {str(place): code for place, code in enumerate(styles) if format_number(1, code)}


def _iter_excel_rows(data: bytes, formats: dict[str, str]) -> Iterator[dict[int, str]]:
    number, parent = 0, Element("")
    with suppress(ParseError, ValueError):
        for event, element in iterparse(BytesIO(data), ("start", "end")):
            name = get_name(element)
            if event == "start":
                parent = element if name == "sheetData" else parent
            elif name == "row":
                previous, number = number, int(element.get("r") or number + 1)
                yield from ({} for _ in range(previous + 1, number))
                yield _format_cells(element, formats)
                parent.clear()  # the rows of a long sheet need not be in memory together


def _format_cells(row: Element, formats: dict[str, str]) -> dict[int, str]:
    texts, column = dict[int, str](), -1
    for cell in row:
        letters = cell.get("r", "").rstrip("0123456789")[:4]
        column = reduce(lambda total, letter: 26 * total + ord(letter) - 64, letters, 0) - 1 if letters else column + 1
        code = formats.get(cell.get("s", ""))
        value = find_child(cell, "v")
        if code and value is not None and value.text and cell.get("t", "n") == "n":
            texts[column] = format_number(float(value.text), code)
    return texts


def _iter_open_tables(data: bytes) -> Iterator[Iterator[dict[int, str]]]:
    events = iterparse(BytesIO(data), ("start", "end"))
    for event, element in events:
        if event == "start" and get_name(element) == "table":
            yield _iter_open_rows(events, element)


def _iter_open_rows(events: Iterator[tuple[str, Element]], table: Element) -> Iterator[dict[int, str]]:
    with suppress(ParseError, ValueError):
        for event, element in events:
            if event == "end" and element is table:
                return
            if event == "end" and get_name(element) == "table-row":
                texts, column = dict[int, str](), 0
                for cell in element:
                    count = int(get_value(cell, "number-columns-repeated") or 1)
                    if get_value(cell, "value-type") in _OPEN_NUMBERS:
                        lines = ("".join(part.itertext()) for part in cell if get_name(part) == "p")
                        texts |= dict.fromkeys(range(column, column + min(count, MAX_COLUMNS)), " ".join(lines).strip())
                    column += count
                yield from (texts for _ in range(int(get_value(element, "number-rows-repeated") or 1)))
                table.clear()
