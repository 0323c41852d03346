"""Numbers of sheets are read as a person sees them."""

from pathlib import Path

import pytest

from ragqa.corpus.formats.office.number_formats import format_number
from tests.helpers.documents import read_one
from tests.helpers.office import make_open_document, make_row, make_workbook

ACCOUNTING = '_-* #,##0.00 [$€-407]_-;-* #,##0.00 [$€-407]_-;_-* "-"?? [$€-407]_-;_-@_-'


@pytest.mark.parametrize(
    ("value", "code", "shown"),
    [
        (0.15, "0 %", "15 %"),
        (0.1234, "0.0%", "12.3%"),
        (15, '0"%"', "15%"),
        (1234.5, '#,##0.00 "€"', "1,234.50 €"),
        (1234.5, ACCOUNTING, "1,234.50 €"),
        (-1234.5, ACCOUNTING, "-1,234.50 €"),
        (0, ACCOUNTING, "- €"),
        (3.4, "[$£-809]#,##0.00", "£3.40"),
        (-3.4, "[$£-809]#,##0.00", "-£3.40"),
        (-7, "0.00;[Red](0.00)", "(7.00)"),
        (0.125, "0.00", "0.13"),  # halves are rounded up, as in Excel
        (2.5, "0", "3"),
        (1.5, "0.0##", "1.5"),
        (0.5, "#.##", ".5"),
        (42, "00000", "00042"),
        (2.5, '0.0\\ "kg; net"', "2.5 kg; net"),
        (1_234_567, '#,##0,"k"', "1,235k"),
    ],
)
def test_a_number_is_shown_in_its_format(value: float, code: str, shown: str) -> None:
    assert format_number(value, code) == shown


@pytest.mark.parametrize(
    ("value", "code"),
    [
        *((1.0, code) for code in ("General", "yyyy-mm-dd", "[h]:mm", "# ?/?", "0.00E+00", "[>9]0;0.0", "@")),
        *((1.0, code) for code in ("", ";;;", '"x"', "000-000", "0" * 200, "%" * 300, "[")),
        (1e300, "0.00"),
        (float("inf"), "0"),
    ],
)
def test_a_format_that_is_not_understood_gives_nothing(value: float, code: str) -> None:
    assert format_number(value, code) == ""


def test_numbers_of_excel_have_the_format_of_their_style(tmp_path: Path) -> None:
    rows = make_row(3, "", "Item", "Price", "Share", "Day") + (
        '<row r="4"><c r="B4" t="inlineStr"><is><t>Lamp</t></is></c><c r="C4" s="2"><v>1234.5</v></c>'
        '<c r="D4" s="3"><v>0.15</v></c><c r="E4" s="1"><v>45352</v></c></row>'
        '<row><c t="inlineStr"><is><t>x</t></is></c><c><v>1</v></c><c s="2"><v>7</v></c></row>'
    )
    other = make_row(1, "Name", "Age") + '<row r="2"><c r="A2" s="3"><v>0.5</v></c><c r="B2"><v>44</v></c></row>'
    content = make_workbook({"Stock": rows, "Ages": other}, ['#,##0.00 "€"', "0%"])
    text = read_one(tmp_path / "a.xlsx", content).text
    assert "Item: Lamp; Price: 1,234.50 €; Share: 15%; Day: 2024-03-01" in text
    assert "Price: 7.00 €" in text
    assert "Name: 50%; Age: 44" in text


def test_numbers_of_open_document_sheets_are_read_as_they_are_shown(tmp_path: Path) -> None:
    def make_cell(shown: str, attributes: str) -> str:
        return f"<table:table-cell {attributes}><text:p>{shown}</text:p></table:table-cell>"

    names = "".join(make_cell(name, 'office:value-type="string"') for name in ("Item", "Price", "Share", "Day", "At"))
    values = (
        make_cell("Lamp", 'office:value-type="string"')
        + make_cell("1.234,50 €", 'office:value-type="currency" office:value="1234.5"')
        + make_cell("15 %", 'office:value-type="percentage" office:value="0.15"')
        + make_cell("01.03.24", 'office:value-type="date" office:date-value="2024-03-01"')
        + make_cell("12:30", 'office:value-type="time" office:time-value="PT12H30M00S"')
    )
    twice = make_cell("7 %", 'table:number-columns-repeated="2" office:value-type="percentage" office:value="0.07"')
    empty = '<table:table-row table:number-rows-repeated="2"><table:table-cell/></table:table-row>'
    rows = f"{empty}<table:table-row><table:table-cell/>{names}</table:table-row>"
    rows += f"<table:table-row><table:table-cell/>{values}</table:table-row>"
    rows += f'<table:table-row table:number-rows-repeated="2"><table:table-cell/>{twice}</table:table-row>'
    first = '<table:table table:name="Empty"><table:table-row><table:table-cell/></table:table-row></table:table>'
    body = f'{first}<table:table table:name="Rates">{rows}</table:table>'
    text = read_one(tmp_path / "a.ods", make_open_document("spreadsheet", body)).text
    assert "Item: Lamp; Price: 1.234,50 €; Share: 15 %; Day: 2024-03-01; At: 12:30" in text
    assert text.count("Item: 7 %; Price: 7 %") == 2


def test_a_sheet_with_damaged_styles_is_read_without_them(tmp_path: Path) -> None:
    rows = make_row(1, "Item", "Share") + '<row r="2"><c r="A2" s="2"><v>1</v></c><c r="B2" s="9"><v>0.15</v></c></row>'
    assert "Item: 1; Share: 0.15" in read_one(tmp_path / "a.xlsx", make_workbook({"S": rows}, ["0.00E+00"])).text


def test_durations_have_hours_and_minutes(tmp_path: Path) -> None:
    rows = make_row(1, "Item", "Time") + '<row r="2"><c r="A2"><v>1</v></c><c r="B2" s="2"><v>1.1041667</v></c></row>'
    assert "Time: 26:30" in read_one(tmp_path / "a.xlsx", make_workbook({"S": rows}, ["[h]:mm"])).text
