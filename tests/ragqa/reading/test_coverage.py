"""Which main words of a question passages contain."""

import pytest

from ragqa.reading.coverage import measure_coverage

PASSAGE = "Rita Halloran, the inventor, built engines in 1845."


@pytest.mark.parametrize(
    ("question", "share"),
    [
        ("When did Rita Halloran invent the engine?", 1.0),  # Rita, Halloran, invent(or), engine(s)
        ("When did Rita Holm invent the engine?", 0.75),
        ("What did Rita build in 1846?", 2 / 3),  # "built" differs from "build" in its last letter only
        ("HALLORAN?", 1.0),
        ("Who was it?", 1.0),  # no main word
        ("", 1.0),
        ("Is eng in it?", 0.0),  # a short word counts only as a whole
        ("Halloran halloran (Holm)", 0.5),  # a repeated word counts once
        ("a.b* [c", 0.0),
    ],
)
def test_coverage_by_hand(question: str, share: float) -> None:
    assert measure_coverage(question, [PASSAGE]) == pytest.approx(share)


def test_words_of_several_passages_add_up() -> None:
    assert measure_coverage("When did Ada Holm visit Bergen?", ["Ada Holm lived here.", "Visitors of Bergen"]) == 1.0
    assert measure_coverage("When did Ada Holm visit Bergen?", []) == 0.0


@pytest.mark.parametrize(("text", "is_found"), [("ports", True), ("Porting", True), ("portfolio", False)])
def test_an_ending_has_at_most_three_letters_more(text: str, is_found: bool) -> None:
    assert measure_coverage("port", [text]) == is_found


def test_only_the_first_64_main_words_of_a_long_question_count() -> None:
    words = [f"word{number}x" for number in range(100)]
    assert measure_coverage(" ".join(words), [" ".join(words[32:])]) == 0.5
