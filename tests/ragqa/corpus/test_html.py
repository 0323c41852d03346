"""HTML pages: headings, tables that become records, dates and tags."""

from pathlib import Path

import pytest

from ragqa.corpus.passages import make_passages, split_document
from ragqa.corpus.splitters import make_splitter
from ragqa.types import Passage
from tests.helpers.documents import read_one

PAGE = """<html><head><title>Mixer &amp; more</title>
<meta name="Date" content="2024-05-01"><meta content='ovens, bread ,' name=keywords></head><body>
<p>Before.</p><h1>The <b>mixer</b></h1><p>It is heavy.</p>
<h2>Data</h2><table><caption>All gears</caption><thead><tr><th>Gear<th>Turns<th>Motor</tr></thead><tbody>
<tr><td>first</td><td>105 a<br>minute</td><td rowspan=2>2.6 kW</td></tr><tr><td>second</td><td>210</td></tr>
</tbody></table>
<p>Made in Hov.</p><h3>Care<h2>Cleaning</h2><p>With water.</p></body></html>"""


def split(tmp_path: Path, page: str) -> list[Passage]:
    document = read_one(tmp_path / "a.html", page)
    passages = list(make_passages(document, split_document(document, make_splitter("sentences"))))
    assert all(document.text[p.start : p.end] == p.text for p in passages)
    return passages


def test_passages_of_html_have_headings_and_records(tmp_path: Path) -> None:
    passages = split(tmp_path, PAGE)
    assert [(p.headings, p.text) for p in passages] == [
        ((), "Before."),
        (("The mixer",), "It is heavy."),
        (("The mixer", "Data"), "All gears"),
        (("The mixer", "Data"), "Gear: first; Turns: 105 a minute; Motor: 2.6 kW"),
        (("The mixer", "Data"), "Gear: second; Turns: 210; Motor: 2.6 kW"),
        (("The mixer", "Data"), "Made in Hov."),
        (("The mixer", "Cleaning"), "With water."),
    ]
    assert {(p.title, p.date, p.tags) for p in passages} == {("Mixer & more", "2024-05-01", ("ovens", "bread"))}


def test_the_only_first_heading_is_the_title_of_a_page_without_one(tmp_path: Path) -> None:
    (passage,) = split(tmp_path, "<h1>Ovens</h1><p>They are hot.")
    assert (passage.title, passage.headings, passage.text) == ("Ovens", (), "They are hot.")


@pytest.mark.parametrize(
    ("table", "records"),
    [
        ("<tr><th>Bowl<td>62 litres<tr><th>Motor<td>2 kW", ["Bowl: 62 litres", "Motor: 2 kW"]),
        ("<tr><td><th>Rye<tr><th>Water<td>3 l", ["Water; Rye: 3 l"]),
        ("<tr><th><th colspan=2>2024<tr><th>Item<th>May<th>June<tr><td>rye<td>4<td>5", None),
        ("<tr><th>A<th>B<tr><td colspan='2'>both<tr><td>1<td>2", ["A: both", "A: 1; B: 2"]),
    ],
)
def test_headers_of_tables_name_the_values(tmp_path: Path, table: str, records: list[str] | None) -> None:
    expected = records or ["Item: rye; 2024 May: 4; 2024 June: 5"]
    assert [p.text for p in split(tmp_path, f"<table>{table}</table>")] == expected


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("<tr><td>a<td>b<tr><td>c<td>d", "a\tb\nc\td"),
        ("<tr><th>Menu<tr><td>Home", "Menu\nHome"),
        ("<tr><th>A<th>B", "A\tB"),
        ("<tr><th>A<th>B<tr><td><table><tr><th>C<th>D<tr><td>1<td>2</table><td>x", "A\tB"),
    ],
)
def test_tables_for_layout_stay_text(tmp_path: Path, table: str, text: str) -> None:
    assert read_one(tmp_path / "a.html", f"<table>{table}</table>").text.startswith(text)


def test_cells_over_many_rows_do_not_multiply_the_text(tmp_path: Path) -> None:
    wide = "<tr>" + "<th rowspan=9999 colspan=999>a" * 300 + "<tr><td>b" * 3_000
    assert len(read_one(tmp_path / "a.html", f"<table>{wide}</table>").text) < len(wide)
