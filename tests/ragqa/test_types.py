"""Places of sources in words and in JSON."""

import pytest

from ragqa.types import Hit, Passage, Source, Span


def make_source(span: Span | None = None, path: str = "/docs/a.pdf", document: str = "", **fields: object) -> Source:
    text = "Red light.\nCall us.\fGreen light."
    passage = Passage(0, document or path, "Title", text, path, 40, 40 + len(text), **fields)  # type: ignore[arg-type]
    return Source(Hit(passage, 1.0), span, 1.0)


@pytest.mark.parametrize(
    ("source", "place"),
    [
        (make_source(unit="page", number=2, headings=("Faults",)), "a.pdf, page 2 › Faults"),
        (make_source(Span(20, 25), unit="page", number=2), "a.pdf, page 3"),
        (make_source(path="/docs/stock.xlsx", sheet="Stock", unit="row", number=14), "stock.xlsx, sheet Stock, row 14"),
        (make_source(Span(11, 15), path="n/lisbon.md", unit="line", number=11), "lisbon.md, line 12"),
        (make_source(path="/docs/page.html", headings=("Hotels", "Alfama")), "page.html › Hotels › Alfama"),
        (make_source(path="/docs/all.jsonl", document="7"), "all.jsonl, document 7"),
    ],
)
def test_the_place_of_a_source_is_what_a_person_can_open(source: Source, place: str) -> None:
    assert source.format_place() == source.to_dict()["place"] == place


def test_a_place_begins_with_the_given_path() -> None:
    assert make_source(unit="page", number=2).format_place("docs/a.pdf") == "docs/a.pdf, page 2"
