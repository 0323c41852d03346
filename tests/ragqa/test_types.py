"""Places of sources in words and in JSON."""

import pytest

from ragqa.types import Answer, Hit, Passage, Source, Span, Statement


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
        (
            make_source(path="a.ods", sheet="Stock", headings=("Stock",), unit="row", number=2),
            "a.ods, sheet Stock, row 2",
        ),
        (
            make_source(path="a.ods", sheet="S", headings=("Stock",), unit="row", number=2),
            "a.ods, sheet S, row 2 › Stock",
        ),
        (make_source(Span(11, 15), path="n/lisbon.md", unit="line", number=11), "lisbon.md, line 12"),
        (make_source(path="/docs/page.html", headings=("Hotels", "Alfama")), "page.html › Hotels › Alfama"),
        (make_source(path="/docs/all.jsonl", document="7"), "all.jsonl, document 7"),
        (make_source(path="/docs/all.jsonl", document="/docs/all.jsonl:7"), "all.jsonl, record 7"),
        (make_source(path="/docs/old.mbox", document="/docs/old.mbox#12"), "old.mbox, mail 12"),
        (make_source(path="/docs/big.csv", document="/docs/big.csv#90", unit="row", number=95), "big.csv, row 95"),
        (make_source(path="/docs/all.jsonl", document="/docs/all.jsonl:x"), "all.jsonl, document /docs/all.jsonl:x"),
    ],
)
def test_the_place_of_a_source_is_what_a_person_can_open(source: Source, place: str) -> None:
    assert source.format_place() == source.to_dict()["place"] == place


def test_a_place_begins_with_the_given_path() -> None:
    assert make_source(unit="page", number=2).format_place("docs/a.pdf") == "docs/a.pdf, page 2"


def make_written_answer() -> Answer:
    text = "The lamp was lit in 1871. It had three mirrors.\n- Ada Holm built it"
    statements = (
        Statement("The lamp was lit in 1871.", 0, (1, 2)),
        Statement("It had three mirrors.", 26, (2,), is_supported=False, reason="three is not in [2]"),
        Statement("Ada Holm built it", 50, (), is_supported=False, reason="no passage is cited"),
    )
    return Answer("When?", text, 0.0, 0.5, statements=statements)


def test_citations_and_marks_stand_before_the_end_of_each_statement() -> None:
    answer = make_written_answer()
    assert all(answer.text and answer.text[s.start : s.end] == s.text for s in answer.statements)
    assert answer.cited_text == (
        "The lamp was lit in 1871 [1][2]. It had three mirrors [2] (unsupported).\n- Ada Holm built it (unsupported)"
    )
    assert Answer("When?", "1871", 0.0, 0.5).cited_text == "1871"
    assert Answer("When?", None, 0.0, 0.5).cited_text is None


def test_statements_in_json() -> None:
    row = make_written_answer().to_dict()["statements"][1]
    assert row == {
        "text": "It had three mirrors.",
        "start": 26,
        "end": 47,
        "citations": [2],
        "supported": False,
        "reason": "three is not in [2]",
    }
