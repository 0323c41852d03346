"""Office files and e-books: their text, headings, tables, titles, dates and places."""

from datetime import date
from pathlib import Path

import pytest

from ragqa.corpus.formats.base import Document
from tests.helpers.documents import make_zip, read_one
from tests.helpers.office import (
    TABLE,
    make_book,
    make_open_document,
    make_open_table,
    make_paragraph,
    make_relations,
    make_row,
    make_slides,
    make_word,
    make_word_table,
    make_workbook,
)

Parts = list[tuple[tuple[str, ...], str]]


def list_parts(document: Document) -> Parts:
    """Return the headings and the text of each section."""
    return [(part.headings, document.text[part.start : part.end].strip()) for part in document.list_sections()]


def test_word_files_have_headings_tables_and_notes(tmp_path: Path) -> None:
    note = '<w:r><w:footnoteReference w:id="1"/></w:r>'
    body = make_paragraph("Oven", "T") + make_paragraph("Faults", "H1") + make_paragraph("It is hot.", more=note)
    body += make_word_table(TABLE) + make_paragraph("Lamps", is_bold=True) + make_paragraph("Red.") * 2
    document = read_one(tmp_path / "a.docx", make_word(body, notes="Very hot.", header="The head of all pages here"))
    assert (document.title, document.date, document.unit) == ("Oven", "2024-03-01", "")
    assert list_parts(document) == [
        (("Faults",), "It is hot.\n\nVery hot."),
        (("Faults",), "Item: Lamp; Price: 12\nItem: Rope; Price: 7"),
        (("Faults", "Lamps"), "Red.\n\nRed."),
        ((), "The head of all pages here"),
    ]


def test_word_files_keep_tabs_breaks_and_text_boxes_and_drop_deleted_text(tmp_path: Path) -> None:
    box = f"<w:r><w:pict><w:txbxContent>{make_paragraph('In the box.')}</w:txbxContent></w:pict></w:r>"
    more = (
        "<w:r><w:tab/><w:t>two</w:t><w:br/><w:t>three</w:t></w:r><w:del><w:r><w:delText>gone</w:delText></w:r></w:del>"
    )
    merged = '<w:tcPr><w:gridSpan w:val="2"/></w:tcPr>'
    row = f"<w:tr><w:tc>{merged}{make_paragraph('Both')}</w:tc></w:tr>"
    table = make_word_table(TABLE).replace("</w:tbl>", f"{row}</w:tbl>")
    document = read_one(tmp_path / "a.docx", make_word(make_paragraph("One", more=more + box) + table))
    assert list_parts(document)[0] == ((), "One\ttwo\nthree\n\nIn the box.")
    assert document.text.rstrip().endswith("Item: Both; Price: Both")


def test_a_contents_table_of_a_word_file_is_left_out(tmp_path: Path) -> None:
    gallery = '<w:sdtPr><w:docPartObj><w:docPartGallery w:val="Table of Contents"/></w:docPartObj></w:sdtPr>'
    block = f"<w:sdt>{gallery}<w:sdtContent>{make_paragraph('Faults 1')}</w:sdtContent></w:sdt>"
    other = f"<w:sdt><w:sdtContent>{make_paragraph('Filled in.')}</w:sdtContent></w:sdt>"
    assert list_parts(read_one(tmp_path / "a.docx", make_word(block + other))) == [((), "Filled in.")]


def test_slides_are_in_order_and_numbered(tmp_path: Path) -> None:
    slides = [("Plan", ["We begin."]), ("", ["No title."]), ("The end", [])]
    document = read_one(tmp_path / "a.pptx", make_slides(slides, title="PowerPoint Presentation", notes="Speak."))
    assert (document.title, document.date, document.unit) == ("Plan", "2024-03-01", "slide")
    assert document.text.count("\f") == 3
    assert list_parts(document) == [
        ((), "We begin.\n\nSpeak."),
        ((), "No title.\n\nSpeak."),
        (("The end",), "Speak."),
    ]


def test_a_heading_with_nothing_below_it_is_text(tmp_path: Path) -> None:
    document = read_one(tmp_path / "a.pptx", make_slides([("Plan", ["We begin."]), ("Any questions?", [])]))
    assert list_parts(document) == [((), "We begin."), ((), "Any questions?")]


def test_open_document_texts_have_headings_tables_and_notes(tmp_path: Path) -> None:
    citation = "<text:note-citation>1</text:note-citation>"
    note = f"<text:note>{citation}<text:note-body><text:p>Two.</text:p></text:note-body></text:note>"
    body = (
        '<text:tracked-changes><text:p>gone</text:p></text:tracked-changes><text:h text:outline-level="1">Oven</text:h>'
        f'<text:p>One<text:s text:c="2"/>is<text:tab/>hot.{note}</text:p>{make_open_table(TABLE)}'
        "<text:list><text:list-item><text:p>Item.</text:p></text:list-item></text:list>"
    )
    document = read_one(tmp_path / "my-oven.odt", make_open_document("text", body))
    assert (document.title, document.date) == ("Oven", "2024-03-01")
    assert list_parts(document) == [
        ((), "One  is\thot.\n\nTwo."),
        ((), "Item: Lamp; Price: 12\nItem: Rope; Price: 7"),
        ((), "Item."),
    ]


def test_open_document_slides_have_titles(tmp_path: Path) -> None:
    def make_slide(title: str, text: str) -> str:
        box = "<draw:text-box><text:p>{}</text:p></draw:text-box>"
        frames = (
            f'<draw:frame presentation:class="{kind}">{box.format(content)}</draw:frame>'
            for kind, content in (("title", title), ("outline", text))
        )
        return f"<draw:page>{''.join(frames)}</draw:page>"

    body = make_slide("Plan", "We begin.") + make_slide("End", "We stop.")
    document = read_one(tmp_path / "a.odp", make_open_document("presentation", body, title="Talk"))
    assert (document.title, document.unit) == ("Talk", "slide")
    assert list_parts(document) == [(("Plan",), "We begin."), (("End",), "We stop.")]


def test_records_of_sheets_have_the_number_of_their_row(tmp_path: Path) -> None:
    rows = make_row(3, "", "Prices") + make_row(5, "", "Item", "Price", "Day")
    rows += make_row(6, "", "Lamp", 12.0, date(2024, 3, 1)) + make_row(8, "", "Rope", 0.1 + 0.2, "")
    other = make_row(1, "Name", "Age") + make_row(2, "Ann", 44)
    document = read_one(tmp_path / "a.xlsx", make_workbook({"Stock": rows, "Sheet1": other}))
    assert (document.unit, document.title) == ("row", "a")
    parts = document.list_sections()
    assert [(part.headings, part.sheet, part.has_records) for part in parts] == [
        (("Stock",), "Stock", True),
        ((), "Sheet1", True),
    ]
    found = {
        line: part.number + number
        for part in parts
        for number, line in enumerate(document.text[part.start : part.end].split("\n"))
        if line
    }
    assert found == {
        "Prices": 3,
        "Item: Lamp; Price: 12; Day: 2024-03-01": 6,
        "Item: Rope; Price: 0.3": 8,
        "Name: Ann; Age: 44": 2,
    }


def test_a_second_table_of_a_sheet_has_its_own_columns(tmp_path: Path) -> None:
    rows = make_row(1, "Item", "Price") + make_row(2, "Lamp", 1) + make_row(4, "Town", "Miles") + make_row(5, "Bath", 9)
    text = read_one(tmp_path / "a.xlsx", make_workbook({"S": rows})).text
    assert "Item: Lamp; Price: 1" in text and "Town: Bath; Miles: 9" in text


def test_open_document_sheets_are_read(tmp_path: Path) -> None:
    content = make_open_document("spreadsheet", make_open_table(TABLE, "Stock"), title="Shop")
    document = read_one(tmp_path / "a.ods", content)
    assert (document.title, document.list_sections()[0].sheet) == ("Shop", "Stock")
    assert document.text.split("\n", 2)[2].strip() == "Item: Lamp; Price: 12\nItem: Rope; Price: 7"


def test_books_have_chapters(tmp_path: Path) -> None:
    chapters = {"one": "<h1>The Light</h1><p>It <i>burned</i>.</p>", "two": "<h1>The Wreck</h1><p>It sank.</p>"}
    document = read_one(tmp_path / "a.epub", make_book(chapters, "The Island"))
    assert document.title == "The Island"
    assert list_parts(document) == [(("The Light",), "It burned."), (("The Wreck",), "It sank.")]


def test_rich_text_has_bold_lines_as_headings(tmp_path: Path) -> None:
    content = r"{\rtf1\ansi {\b Faults}\par The code is 7781.\par}"
    assert list_parts(read_one(tmp_path / "a.rtf", content)) == [(("Faults",), "The code is 7781.")]


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Microsoft Word - lease.doc", "my file"),
        ("untitled", "my file"),
        ("Presentation1", "my file"),
        ("report.docx", "my file"),
        ("The lease", "The lease"),
    ],
)
def test_titles_that_say_nothing_are_not_used(tmp_path: Path, title: str, expected: str) -> None:
    assert read_one(tmp_path / "my_file.docx", make_word(make_paragraph("Text."), title=title)).title == expected


@pytest.mark.parametrize(
    ("headings", "title", "above"),
    [
        (["H1:Oven", "H2:Faults"], "Oven", ("Faults",)),
        (["H1:Oven", "H1:Faults"], "my file", ("Faults",)),
        (["T:Oven", "H1:Faults"], "Oven", ("Faults",)),
        (["H1:OVEN", "H1:Faults"], "my file", ("Faults",)),
    ],
)
def test_the_only_highest_heading_is_the_title(
    tmp_path: Path, headings: list[str], title: str, above: tuple[str, ...]
) -> None:
    body = "".join(make_paragraph(text, style) for style, _, text in (item.partition(":") for item in headings))
    document = read_one(tmp_path / "my_file.docx", make_word(body + make_paragraph("Text.")))
    assert (document.title, list_parts(document)[-1]) == (title, (above, "Text."))


def test_a_heading_beside_another_title_is_kept(tmp_path: Path) -> None:
    body = make_paragraph("Oven", "T") + make_paragraph("Text.")
    document = read_one(tmp_path / "a.docx", make_word(body, title="The manual"))
    assert (document.title, list_parts(document)) == ("The manual", [(("Oven",), "Text.")])
    document = read_one(tmp_path / "b.docx", make_word(body, title="OVEN"))
    assert (document.title, list_parts(document)) == ("OVEN", [((), "Text.")])


def test_the_content_decides_what_a_file_is(tmp_path: Path) -> None:
    assert read_one(tmp_path / "a.doc", make_word(make_paragraph("Text."))).text.strip() == "Text."
    assert read_one(tmp_path / "b.docx", r"{\rtf1\ansi Text.\par}").text.strip() == "Text."


def test_parts_are_found_by_their_relations(tmp_path: Path) -> None:
    word = make_word(make_paragraph("Text."))
    assert read_one(tmp_path / "a.docx", word).text.strip() == "Text."
    absolute = make_zip(
        {
            "_rels/.rels": make_relations(officeDocument="/word/document.xml"),
            "word/document.xml": f'<w:document xmlns:w="w"><w:body>{make_paragraph("Other.")}</w:body></w:document>',
        }
    )
    assert read_one(tmp_path / "b.docx", absolute).text.strip() == "Other."


def test_text_boxes_within_each_other_and_nested_spans_are_read_once(tmp_path: Path) -> None:
    body = "<text:p>Outer{}</text:p>"
    for _ in range(3):
        body = body.format(f"<draw:frame><draw:text-box>{body}</draw:text-box></draw:frame>")
    spans = "<text:span>" * 200 + "deep" + "</text:span>" * 200
    content = body.format("") + f"<text:p>A {spans} text</text:p>"
    assert read_one(tmp_path / "a.odt", make_open_document("text", content)).text.split() == [
        *["Outer"] * 8,
        *("A", "deep", "text"),
    ]
