"""The questions that a page shows: their sample, and the marks in their passages."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragqa.evaluation.report.page import render_page
from ragqa.evaluation.report.sample import SIZE, Piece, mark_row, sample_groups
from ragqa.evaluation.rows import Excerpt
from tests.helpers.pages import (
    ParsedPage,
    make_report,
    make_row,
)

pytest.importorskip("jinja2")
pytestmark = pytest.mark.usefixtures("without_plots")


def test_the_sample_is_uniform_and_the_same_for_every_system() -> None:
    rows = [make_row(number, f"who is {number}?") for number in range(1000)]
    first, again = (sample_groups([("all", row, row.number) for row in rows], ["all"])[0] for _ in range(2))
    assert first == again and first.count == 1000 and len(first.shown) == SIZE
    assert first.shown == sorted(first.shown) and first.shown != list(range(SIZE))
    assert 250 < sum(first.shown) / SIZE < 750  # the mean of a fair sample is within 4 standard errors of 500


def test_equal_rows_can_be_sampled() -> None:
    items = [("all", make_row(0), dict[str, int]()) for _ in range(50)]  # dicts cannot be ordered
    assert sample_groups(items, ["all", "none"])[0].count == 50


EXCERPT = "ab Ada Holm cd"


@pytest.mark.parametrize(
    ("span", "answers", "pieces"),
    [
        ((3, 11), ("Ada Holm",), [("ab ", ""), ("Ada Holm", "sg"), (" cd", "")]),
        ((3, 6), ("ada  holm",), [("ab ", ""), ("Ada", "sg"), (" Holm", "g"), (" cd", "")]),
        ((0, 2), ("Holm", "Ada Holm"), [("ab", "s"), (" ", ""), ("Ada Holm", "g"), (" cd", "")]),
        ((0, 6), ("ol", ""), [("ab Ada", "s"), (" Holm cd", "")]),  # an answer is not marked inside a word
        ((12, 99), ("y",), [("ab Ada Holm ", ""), ("cd", "s")]),
        ((-5, -1), ("y",), [(EXCERPT, "")]),
        ((None, None), ("cd",), [("ab Ada Holm ", ""), ("cd", "g")]),
    ],
)
def test_cited_spans_and_gold_answers_are_marked(
    span: tuple[int | None, int | None], answers: tuple[str, ...], pieces: list[Any]
) -> None:
    made = mark_row(make_row(0, answers=answers, cited=Excerpt("", "", EXCERPT, 1, *span)), regex=False)
    assert [(p.text, "s" * p.is_predicted + "g" * p.is_gold) for p in made.cited] == pieces


def test_patterns_are_marked_and_shown_as_code(tmp_path: Path) -> None:
    html = render_page(make_report(tmp_path, regex=True, split="x"))
    assert ParsedPage(html).all("code").count("Bo Berg") == 1
    made = mark_row(make_row(0, answers=("[", "A.a", r"H\w+m"), cited=Excerpt("", "", EXCERPT)), regex=True)
    assert [piece.text for piece in made.cited if piece.is_gold] == ["Holm"]


def test_a_pattern_that_never_ends_marks_nothing() -> None:
    """Scoring did not try the pattern, because the passage has no y."""
    made = mark_row(make_row(0, answers=(r"(x+x+)+y", "xx$"), cited=Excerpt("", "", "x" * 3000)), regex=True)
    assert "".join(piece.text for piece in made.cited if piece.is_gold) == "xx"


@given(st.text(max_size=3000), st.integers(-5, 4000), st.integers(-5, 4000), st.lists(st.text(max_size=3), max_size=3))
def test_pieces_add_up_to_the_passage(text: str, start: int, end: int, answers: list[str]) -> None:
    cited = mark_row(make_row(0, answers=tuple(answers), cited=Excerpt("", "", text, 1, start, end)), regex=False).cited
    shown_text = "".join(piece.text for piece in cited if piece not in (Piece("… "), Piece(" …")))
    assert shown_text in text and len(shown_text) <= 2100
    assert len(text) > 700 or shown_text == text
