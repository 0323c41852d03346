"""Drafts check each statement as it comes, and number the sources in the order of their citations."""

import time
from itertools import pairwise

import pytest

from ragqa.reading.chat.draft import MAX_CHARACTERS, MAX_STATEMENTS, Draft
from ragqa.reading.chat.prompt import NO_ANSWER, number_passages
from ragqa.types import Answer, Hit, Passage

TEXTS = ("The lamp was lit in 1902.", "It burnt oil from whales.", "The keepers left in 1958.")


def make_draft() -> Draft:
    hits = [Hit(Passage(n, f"{n}.md", "Tern Island", t, f"{n}.md", 0, len(t)), 1.0) for n, t in enumerate(TEXTS)]
    return Draft("Tell me about the lamp.", number_passages(hits), None)


def write(raw: str, step: int = 3) -> tuple[Draft, str]:
    """Return the draft of a reply that comes in pieces, and what was shown."""
    draft = make_draft()
    shown = [draft.add(raw[start : start + step]) for start in range(0, len(raw), step)]
    return draft, "".join([*shown, draft.finish()])


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_citations_are_numbered_in_their_order_and_what_is_shown_is_the_cited_text(step: int) -> None:
    draft, shown = write("The keepers left in 1958 [3]. The lamp was lit in 1902 [1]!\n- It burnt oil [3][2].", step)
    assert [statement.citations for statement in draft.statements] == [(1,), (2,), (1, 3)]
    assert [source.hit.passage.text for source in draft.make_sources()] == [TEXTS[2], TEXTS[0], TEXTS[1]]
    assert [source.weight for source in draft.make_sources()] == [0.5, 0.25, 0.25]
    assert shown == "The keepers left in 1958 [1]. The lamp was lit in 1902 [2]!\n- It burnt oil [1][3]."
    assert Answer("", draft.text, 0.0, 0.0, statements=tuple(draft.statements)).cited_text == shown
    assert all(statement.is_supported for statement in draft.statements)


def test_statements_are_shown_when_the_next_one_begins() -> None:
    draft = make_draft()
    assert draft.add("The lamp was lit in 1902") == ""
    assert draft.add(" [1].") == ""
    assert draft.add(" It") == "The lamp was lit in 1902 [1]."
    assert draft.add(" burnt oil [2") == ""
    assert draft.finish() == " It burnt oil [2]"  # the citation was cut off, so its passage is looked for


def test_a_number_that_does_not_exist_is_unsupported() -> None:
    draft, shown = write("The lamp was lit in 1902 [1][7]. It burnt oil [0].")
    assert [statement.reason for statement in draft.statements] == [
        "it cites [7], but 3 passages were given",
        "it cites [0], but 3 passages were given",
    ]
    assert shown == "The lamp was lit in 1902 [1] (unsupported). It burnt oil (unsupported)."
    assert len(draft.make_sources()) == 1


def test_a_wrong_citation_is_unsupported_and_says_why() -> None:
    draft, _ = write("The keepers left in 1958 [1].")
    (statement,) = draft.statements
    assert not statement.is_supported and statement.reason == "in [1], 1958 is not there"


def test_a_statement_without_a_citation_gets_the_passage_that_supports_it() -> None:
    draft, _ = write("The keepers left in 1958. The keepers left in 1960.")
    first, second = draft.statements
    assert (first.citations, first.is_supported, draft.attributed, draft.count_cited()) == ((1,), True, 1, 0)
    assert draft.make_sources()[0].hit.passage.text == TEXTS[2]
    assert (second.citations, second.is_supported) == ((), False)
    assert second.reason == "it cites no passage, and none that was read supports it"


@pytest.mark.parametrize(
    "raw",
    [
        NO_ANSWER,
        "The passages do not mention a foghorn [1].",
        "I cannot answer this question.",
        f"{NO_ANSWER} {NO_ANSWER}",
    ],
)
def test_a_declined_question_shows_nothing(raw: str) -> None:
    draft, shown = write(raw)
    assert draft.is_declined and shown == ""


def test_an_answer_after_a_declining_sentence_is_shown_with_it() -> None:
    draft, shown = write("The passages do not mention a foghorn. The lamp was lit in 1902 [1].")
    assert not draft.is_declined
    assert shown == "The passages do not mention a foghorn (unsupported). The lamp was lit in 1902 [1]."


def test_a_reply_that_repeats_itself_ends() -> None:
    draft = make_draft()
    pieces = ["The lamp was lit in 1902 [1]. ", "It burnt oil [2]. ", "The lamp was lit in 1902 [1]. ", "It burnt"]
    shown = [draft.add(piece) for piece in pieces]
    assert draft.is_repeating and draft.finish() == ""
    assert "".join(shown) == "The lamp was lit in 1902 [1]. It burnt oil [2]."
    assert draft.text == "The lamp was lit in 1902. It burnt oil."


def test_an_endless_reply_ends() -> None:
    draft = make_draft()
    for _ in range(MAX_CHARACTERS // 1000 + 1):
        draft.add("word " * 200)
    assert draft.is_repeating


def test_an_endless_list_ends_and_takes_linear_time() -> None:
    draft = make_draft()
    start = time.process_time()
    for number in range(MAX_CHARACTERS):
        draft.add("- Item " if not number % 9 else "x" if number % 9 < 8 else "\n")
        if draft.is_repeating:
            break
    assert draft.is_repeating and len(draft.statements) <= MAX_STATEMENTS
    assert time.process_time() - start < 20


def test_offsets_are_those_of_the_text() -> None:
    draft, _ = write("- The lamp was lit in 1902 [1].\n- It burnt oil [2].\n")
    assert [draft.text[s.start : s.end] for s in draft.statements] == ["The lamp was lit in 1902.", "It burnt oil."]
    assert all(one.end <= other.start for one, other in pairwise(draft.statements))
