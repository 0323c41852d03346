"""Answers as text for a terminal: wrapped lines, excerpts and marks."""

from typing import Any

import pytest

from ragqa.cli.excerpts import render_excerpt
from ragqa.cli.render import render_answer, render_rest
from ragqa.excerpts import choose_window, find_question_words
from ragqa.types import Alternative, Answer, Hit, Passage, Source, Span, Statement

FILLER = "The keepers of the lamp wrote down the weather of every single night. " * 8


def make_source(text: str, answer: str | None = None, weight: float = 1.0) -> Source:
    passage = Passage(0, "a.txt", "Log", text, "a.txt", 0, len(text), (), "line", 1)
    start = text.index(answer) if answer else 0
    return Source(Hit(passage, 1.0), Span(start, start + len(answer)) if answer else None, weight)


@pytest.fixture(params=[30, 80, 160])
def width(request: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("COLUMNS", str(request.param))
    return int(request.param)


def test_lines_fit_the_terminal_and_lose_no_word(width: int) -> None:
    text = f"{FILLER}The lamp was lit by Ada Holm.\n{FILLER}"
    others = tuple(Alternative(f"keeper number {n}", 0.1) for n in range(9))
    shown = render_answer(Answer("Who lit it?", "Ada Holm", 1.0, 0.5, (make_source(text, "Ada Holm"),), others))
    lines = [line.replace("**", "") for line in shown.splitlines()]
    assert max(map(len, lines)) <= width
    assert len(lines) < 16 or width == 30
    excerpt = " ".join(shown.split("[1] Log")[1].split("a.txt")[0].split())
    assert excerpt.startswith("… ") and excerpt.endswith(" …")
    plain = excerpt.strip("… ").replace("**", "")
    assert f" {plain} " in " ".join(text.split()) + " "
    assert " was lit by **Ada Holm**. The keepers" in excerpt


def test_a_long_word_is_neither_lost_nor_cut_at_the_answer() -> None:
    text = "x" * 500 + " Ada " + "y" * 500
    window = 501 - 160, 504 + 160
    assert "**Ada**" in render_excerpt(text, window, [(501, 504)], lambda word: f"**{word}**")


def test_styles_do_not_change_where_lines_break(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    source = make_source(f"{FILLER}The lamp was lit by Ada Holm. {FILLER}", "Ada Holm")
    answer = Answer("Who lit it?", "Ada Holm", 1.0, 0.5, (source,))
    monkeypatch.setattr("ragqa.terminal.has_colours", lambda: True)
    styled = render_answer(answer)
    monkeypatch.setattr("ragqa.terminal.has_colours", lambda: False)
    assert "\x1b[1;32m" in styled
    plain = styled.replace("\x1b[1;32m", "**").replace("\x1b[1m", "").replace("\x1b[0m", "**", 2)
    assert [line.replace("**", "") for line in plain.splitlines()] == [
        line.replace("**", "") for line in render_answer(answer).splitlines()
    ]


def test_a_declined_question_shows_passages_around_its_words() -> None:
    text = f"{FILLER}The comet was discovered in Brno. {FILLER}"
    guess = Alternative("Brno", 0.06)
    answer = Answer("Who discovers comets?", None, 0.0, 0.06, (make_source(text),), (guess,), reason="too unsure")
    shown = " ".join(render_answer(answer).split())
    assert shown.startswith("No answer in these documents: too unsure. Best guess: Brno (0.06) The nearest passages:")
    assert "The comet was discovered in Brno." in shown


def test_an_improbable_best_guess_is_not_replaced_by_a_runner_up() -> None:
    guesses = Alternative("Brno", 0.003), Alternative("Prague", 0.006)
    declined = Answer("Who?", None, 0.003, 0.34, (make_source("A comet."),), guesses, reason="too unsure")
    assert "Best guess" not in render_answer(declined)


def test_question_words_match_with_other_endings_only() -> None:
    text = "He discovered a cat, catalogues and the tour of 1910."
    found = [text[start:end] for start, end in find_question_words("Who discovers the cat tournament in 191?", text)]
    assert found == ["discovered", "cat"]


def test_the_window_shows_most_of_the_words() -> None:
    text = f"cat {FILLER} cat dog {FILLER}"
    low, high = choose_window(text, find_question_words("cat dog", text))
    assert "cat dog" in text[low:high] and high - low <= 320
    assert choose_window("short", []) == (0, 5)


def test_shares_of_several_sources_are_explained() -> None:
    sources = make_source("Ada lit it.", "Ada", 0.75), make_source("By Ada.", "Ada", 0.25)
    shown = render_answer(Answer("Who lit it?", "Ada", 1.0, 0.5, sources))
    assert "[1] Log (75% of the weight)" in shown and "[2] Log (25% of the weight)" in shown


def test_the_rest_of_a_written_answer_is_printed_once() -> None:
    answer = Answer("Who lit it?", "Ada Holm", 1.0, 0.5, (make_source("By Ada Holm.", "Ada Holm"),))
    assert render_rest(answer, "Ada Holm").startswith("   (confidence 0.50)\n\n[1] Log")
    assert render_rest(answer, "Ada").startswith("\nAda Holm   (confidence 0.50)")


def test_a_written_answer_shows_its_citations_its_marks_and_all_its_sources() -> None:
    text = "It was lit in 1871. It burnt oil.\n- It had three mirrors."
    statements = (
        Statement("It was lit in 1871.", 0, (4,)),
        Statement("It burnt oil.", 20, (1,)),
        Statement("It had three mirrors.", 36, (1,), is_supported=False, reason="[1] does not have three"),
    )
    sources = tuple(make_source(f"The lamp burnt oil from well {n}.", "oil", 0.25) for n in range(4))
    why = "1 of 3 statements"
    answer = Answer("When?", text, 0.0, 0.5, sources, supported=False, reason=why, statements=statements)
    lines = render_answer(answer).splitlines()
    assert lines[:2] == [
        "It was lit in 1871 [4]. It burnt oil [1].",
        "- It had three mirrors [1] (unsupported).   (confidence 0.50; unsupported: 1 of",
    ]
    assert 'Unsupported: "It had three mirrors." [1] does not have three.' in lines
    assert [line for line in lines if line.startswith("[")] == [f"[{n}] Log" for n in (1, 2, 3, 4)]
    written = "It was lit in 1871 [4]. It burnt oil [1].\n- It had three mirrors [1] (unsupported)."
    rest = "   (confidence 0.50; unsupported: 1 of 3 statements)"
    assert render_rest(answer, written) == rest + render_answer(answer).partition("statements)")[2]
