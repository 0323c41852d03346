"""CSV, TSV and JSON: each row or object is one record, found by its number."""

import json
import random
import tracemalloc
from pathlib import Path

import pytest

from ragqa.corpus.formats.tables import delimited
from ragqa.corpus.passages import make_passages, split_document
from ragqa.corpus.sources import Document, read_documents
from ragqa.corpus.splitters import make_splitter
from ragqa.errors import BadLine
from ragqa.types import Passage
from tests.helpers.documents import read, read_one, write


def split(*documents: Document) -> list[Passage]:
    splitter = make_splitter("sentences")
    return [passage for d in documents for passage in make_passages(d, split_document(d, splitter))]


def list_rows(path: Path, content: str | bytes) -> list[tuple[int, str]]:
    return [(passage.number, passage.text) for passage in split(read_one(path, content))]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_each_row_is_a_record_with_the_names_of_its_columns(tmp_path: Path, name: str, delimiter: str) -> None:
    content = "Item,In stock,Note\nlamp,42,\n\nbulb,7,small\n".replace(",", delimiter)
    assert list_rows(tmp_path / name, content) == [
        (2, "Item: lamp; In stock: 42"),
        (4, "Item: bulb; In stock: 7; Note: small"),
    ]
    assert split(read_one(tmp_path / name, content))[0].unit == "row"


def test_the_declared_delimiter_is_used(tmp_path: Path) -> None:
    assert list_rows(tmp_path / "a.csv", 'sep=;\r\na;b\r\n1,5;"2;3"\r\n') == [(2, "a: 1,5; b: 2;3")]


def test_quoted_cells_can_have_delimiters_quotes_and_lines(tmp_path: Path) -> None:
    content = 'Name,Text\nA,"one, ""two""\nthree"\nB,5" pipe\n'
    assert list_rows(tmp_path / "a.csv", content) == [
        (2, 'Name: A; Text: one, "two" three'),
        (3, 'Name: B; Text: 5" pipe'),
    ]
    assert list_rows(tmp_path / "a.csv", content.replace("\n", "\r"))[1] == (3, 'Name: B; Text: 5" pipe')


@pytest.mark.parametrize(
    "content",
    ["1,Anna\n2,Ben\n", "Anna,Anna\nBen,Cem\n", "2024-05-01,Anna\n2024-05-02,Ben\n", "Anna,1987\nBen,1990\n", "a,b\n"],
)
def test_a_table_without_a_header_begins_with_its_first_row(tmp_path: Path, content: str) -> None:
    first = content.split("\n")[0].replace(",", "; ")
    assert list_rows(tmp_path / "a.csv", content)[0] == (1, first)


def test_years_and_missing_names_do_not_hide_a_header(tmp_path: Path) -> None:
    assert list_rows(tmp_path / "a.csv", ",2022,2023\nrye,10,12\n") == [(2, "rye; 2022: 10; 2023: 12")]


def test_titles_above_the_header_are_headings(tmp_path: Path) -> None:
    (passage,) = split(read_one(tmp_path / "a.csv", "Stock in May;;\n;;\nItem;Shelf;Count\nlamp;B;4\n"))
    assert (passage.headings, passage.number, passage.text) == (
        ("Stock in May",),
        4,
        "Item: lamp; Shelf: B; Count: 4",
    )


@pytest.mark.parametrize("bad", ['"lamp,3', '"lamp" red,3'])
def test_a_broken_quote_spoils_one_row_only(tmp_path: Path, bad: str) -> None:
    rows = [f"item {n},{n}" for n in range(5000)]
    rows[10] = bad
    path = write(tmp_path / "a.csv", "Name,Count\n" + "\n".join(rows) + "\n")
    documents, report = read(path, strict=False)
    passages = split(*documents)
    assert [p.number for p in passages] == [*range(2, 5002)]
    assert "lamp" in passages[10].text and "Count: 3" in passages[10].text
    assert report.bad == 1 and report.notes[0].startswith(f"{path}:12: row 12 has a quote")
    with pytest.raises(BadLine, match="row 12 has a quote"):
        read(path)


def test_a_long_table_is_several_documents_and_is_not_held_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = "".join(random.Random(0).choices("abcdefgh ", k=1_000))
    monkeypatch.setattr(delimited, "PART_CHARACTERS", 200_000)
    path = write(tmp_path / "a.csv", "Id,Text\n" + "".join(f"n{n},{noise}\n" for n in range(4_000)))
    tracemalloc.start()
    try:
        found = [(d.id, *(p.number for p in split(d))) for d in read_documents([path])]
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()
    assert len(found) > 3 and found[0][0] == str(path) and found[1][0] == f"{path}#{found[1][1]}"
    assert sorted({number for _, *numbers in found for number in numbers}) == [*range(2, 4_002)]


CLUB = {
    "club": "Lyngholm",
    "president": {"name": "Henrike Volt", "since": 2017},
    "boats": [
        {"name": "Tern", "built": 1936, "sold": None, "crew": ["Ann", "Bo"], "home": {"port": "Hov"}},
        {"name": "Auk", "repairs": [{"year": 2001, "part": "mast"}, {"year": 2004, "part": "keel"}]},
        {"name": "Gull", "fast": True},
    ],
}
RECORDS = [
    ((), 1, "club: Lyngholm"),
    (("president",), 1, "name: Henrike Volt; since: 2017"),
    (("boats",), 1, "name: Tern; built: 1936; crew: Ann, Bo; home port: Hov"),
    (("boats", "Auk"), 2, "name: Auk"),
    (("boats", "Auk", "repairs"), 1, "year: 2001; part: mast"),
    (("boats", "Auk", "repairs"), 2, "year: 2004; part: keel"),
    (("boats",), 3, "name: Gull; fast: true"),
]


@pytest.mark.parametrize("indent", [None, 2])
def test_each_object_of_json_is_a_record_under_the_names_above_it(tmp_path: Path, indent: int | None) -> None:
    passages = split(read_one(tmp_path / "the-club.json", json.dumps(CLUB, indent=indent)))
    assert [(p.headings, p.number, p.text) for p in passages] == RECORDS
    assert {(p.title, p.unit) for p in passages} == {("the club", "item")}


def test_a_list_of_objects_and_a_value_per_line_are_records(tmp_path: Path) -> None:
    rows = [{"item": "lamp", "count": 4}, {"item": "bulb", "count": 7}]
    expected = [(1, "item: lamp; count: 4"), (2, "item: bulb; count: 7")]
    assert list_rows(tmp_path / "a.json", json.dumps(rows)) == expected
    assert list_rows(tmp_path / "a.json", "\n".join(map(json.dumps, rows))) == expected


def test_a_field_of_an_item_is_found_by_the_number_of_the_item(tmp_path: Path) -> None:
    boats = [{"name": "Tern"}, {"name": "Auk", "crew": {"captain": {"name": "Ann", "age": {"years": 40}}}}]
    passages = split(read_one(tmp_path / "a.json", json.dumps(boats)))
    assert [(p.headings, p.number) for p in passages][-1] == (("Auk", "crew", "captain", "age"), 2)
    assert len(passages) > 2 and {p.number for p in passages[1:]} == {2}


@pytest.mark.parametrize("content", ["{'a': 1}", '{"a": 1', "[" * 100_000, '{"a": ' + "1" * 5_000 + "}"])
def test_json_that_cannot_be_parsed_is_text(tmp_path: Path, content: str) -> None:
    document = read_one(tmp_path / "a.json", content)
    assert (document.text, document.unit) == (content, "line")


def test_deep_values_and_long_lists_of_json_are_kept(tmp_path: Path) -> None:
    deep = json.loads("[" * 300 + '"pearl"' + "]" * 300)
    texts = [f"Rule {n} is that nobody may fish here." for n in range(10)]
    document = read_one(tmp_path / "a.json", json.dumps({"deep": deep, "rules": texts, "numbers": [*range(1_000)]}))
    assert "pearl" in document.text and "997, 998" in document.text
    assert [p.number for p in split(document) if p.headings == ("rules",)] == [*range(1, 11)]


@pytest.mark.parametrize(
    "name", ["a.yaml", "a.toml", "a.log", "a.py", "a.c", "a.sql", "Makefile", ".env", "a.xyz", "a.conf", "a.xml"]
)
def test_text_of_any_type_is_read_by_lines(tmp_path: Path, name: str) -> None:
    document = read_one(tmp_path / name, "key = 1\n# a comment\n\x1b[1mError\x1b[0m: größer\n")
    assert (document.unit, document.text.count("\n")) == ("line", 3)


def test_five_megabytes_in_one_line_of_a_script_are_read(tmp_path: Path) -> None:
    script = "function f(a){return a+1};" * 200_000
    assert read_one(tmp_path / "a.min.js", script).text == script
