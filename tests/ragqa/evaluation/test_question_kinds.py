"""Kinds of questions and answers in the breakdown of a report."""

import pytest

from ragqa.evaluation.question_kinds import classify_answer, classify_answer_length, find_question_word
from ragqa.types import Question

pytestmark = pytest.mark.usefixtures("without_plots")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Who wrote it?", "who"),
        ("In what year did it end?", "what"),
        ("how many pages has it", "how many"),
        ("how is it made", "how"),
        ("total number of inmates", "other"),
        ("To whom was it sold?", "who"),
        ("somewhat odd, when was it", "when"),
        ("1871?", "other"),
        ("Кто построил маяк?", "other"),
        ("how", "how"),
    ],
)
def test_the_first_question_word_counts(text: str, word: str) -> None:
    assert find_question_word(Question(text)) == word


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("May 18 , 2018", "date"),
        ("1871", "date"),
        ("the 1990s", "date"),
        ("March", "date"),
        ("12th century", "date"),
        ("282", "number"),
        ("2,718", "number"),
        ("1500,000", "number"),
        ("1500 meters", "number"),
        ("Ad agency", "phrase"),
        ("44 BC", "date"),
        ("1914–1918", "date"),
        ("“Hello World”", "name"),
        ("seven", "number"),
        ("Wilhelm Conrad Röntgen", "name"),
        ("University of Oslo", "name"),
        ("drug abuse", "phrase"),
        ("", "none"),
    ],
)
def test_answers_are_classified_by_type(answer: str, kind: str) -> None:
    assert classify_answer(Question("?", (answer,))) == kind


def test_answers_are_classified_by_length() -> None:
    assert [classify_answer_length(Question("?", ("w " * n,))) for n in (0, 1, 3, 4, 5, 6)] == [
        "none",
        "1",
        "3",
        "4-5",
        "4-5",
        "6 or more",
    ]
