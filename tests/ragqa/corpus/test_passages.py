"""Passages know the headings above them, and where a person finds them in the file."""

from pathlib import Path

from ragqa.corpus.formats.base import Document, Section
from ragqa.corpus.passages import make_passages, split_document
from ragqa.corpus.splitters import make_splitter
from ragqa.types import Hit, Passage, Source, Span
from tests.helpers.documents import read_one

TRIP = """---
title: Lisbon
tags: [travel, Portugal]
date: 2024-05-01
---
# Trip
We go in May.

## Hotels ##
The hotel is called Ara.
It has 12 rooms.

| Hotel | Price |
|:------|------:|
| Ara   | **90** |
| Bel   | 70 |

Museums
-------
The museum is closed.
```
# not a heading
```
"""


def split(document: Document, kind: str = "sentences") -> list[Passage]:
    return list(make_passages(document, split_document(document, make_splitter(kind))))


def test_passages_of_markdown_have_headings_and_lines(tmp_path: Path) -> None:
    document = read_one(tmp_path / "lisbon.md", TRIP)
    assert (document.title, document.tags, document.date) == ("Lisbon", ("travel", "Portugal"), "2024-05-01")
    assert [(p.headings, p.number, p.text) for p in split(document)] == [
        ((), 7, "We go in May."),
        (("Hotels",), 10, "The hotel is called Ara.\nIt has 12 rooms."),
        (("Museums",), 20, "The museum is closed.\n```\n# not a heading\n```"),
        (("Hotels",), 15, "Hotel: Ara; Price: 90"),
        (("Hotels",), 16, "Hotel: Bel; Price: 70"),
    ]


def test_offsets_of_markdown_are_characters_of_the_file_except_in_tables(tmp_path: Path) -> None:
    document = read_one(tmp_path / "lisbon.md", TRIP)
    assert document.text.startswith(TRIP)
    for passage in split(document):
        assert document.text[passage.start : passage.end] == passage.text
        assert (passage.end <= len(TRIP)) != passage.text.startswith("Hotel:")


def test_a_source_says_in_which_line_the_answer_stands(tmp_path: Path) -> None:
    passage = split(read_one(tmp_path / "lisbon.md", TRIP))[1]
    start = passage.text.index("12")
    row = Source(Hit(passage, 1.0), Span(start, start + 2), 1.0).to_dict()
    assert (row["line"], row["headings"], row["page"], row["sheet"]) == (11, ["Hotels"], None, None)


def test_places_are_counted_from_the_section_or_from_the_start() -> None:
    text = "one\fTwo.\fthree\nfour\nfive"
    sections = (
        Section(0, 8),
        Section(9, 14, ("H",)),
        Section(15, 24, number=7, sheet="S", has_records=True),
    )
    document = Document("d", "T", text, "d.pdf", sections, unit="page")
    assert [(p.text, p.number, p.sheet) for p in split(document)] == [
        ("one\fTwo.", 1, ""),
        ("three", 3, ""),
        ("four", 7, "S"),
        ("five", 7, "S"),
    ]
    assert split(document)[0].find_number(4) == 2


def test_retrievers_and_readers_see_title_and_headings() -> None:
    passage = Passage(0, "d", "Manual", "Clean it.", "d", 0, 9, ("Faults", "E4"))
    assert passage.titled_text == "Manual › Faults › E4\nClean it."
    assert Passage(0, "d", "", "Clean it.", "d", 0, 9).titled_text == "Clean it."


def test_several_headings_of_the_first_level_are_no_title(tmp_path: Path) -> None:
    document = read_one(tmp_path / "week_12.md", "# Monday\nRain.\n# Tuesday\n### Late\nSun.\n")
    assert document.title == "week 12"
    assert [(p.headings, p.text) for p in split(document)] == [(("Monday",), "Rain."), (("Tuesday", "Late"), "Sun.")]
