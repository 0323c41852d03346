"""Tests of the check that an answer is of the kind that the question asks for."""

import pytest

from ragqa.reading.answer_kinds import make_kind_check


@pytest.mark.parametrize(
    ("question", "right", "wrong"),
    [
        ("How fast was Concorde?", "twice the speed of sound", "18,000 metres"),
        ("How fast did it turn?", "210 revolutions per minute", "12 minutes"),
        ("How high is the tower?", "324 metres", "two years"),
        ("How many people live there?", "about a dozen", "the village"),
        ("In which year did it open?", "1889", "the king"),
        ("When was it built?", "after the war", "Ada Holm"),
        ("When was it built?", "on Mondays", "Marie Curie"),  # not March, May, December, January
        ("When was it built?", "at lunchtime", "the mayor"),
        ("When was it built?", "Dec. 3", "Decker and Jane"),
        ("How often does it open?", "weekly", "the bakery"),
        ("How often does it open?", "every Monday", "Ada Holm"),
        ("How much is the entrance?", "it is free", "the bakery"),
        ("How long does it stay?", "overnight", "the bakery"),
        ("How far is the harbour?", "two hours by train", "the bakery"),
        ("Who won in 1999?", "Ada Holm", "1999"),
        ("Who was the husband of Emily Roebling?", "Washington Roebling", "Emily Roebling"),
        ("What is the chemical symbol of helium?", "He", "hydrogen"),
        ("What is the largest lake?", "Baikal", "lake"),
    ],
)
def test_answers_of_another_kind_are_found(question: str, right: str, wrong: str) -> None:
    check = make_kind_check(question)
    assert check(right) and not check(wrong)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Is Baikal or Ladoga deeper?", "Baikal"),
        ("What colour is the red box?", "red"),
        ("Which is older, the tower or the bridge?", "the bridge"),
        ("How long is the probation period?", "two weeks"),
        ("How do you open the lid?", "turn it to the left"),
        ("What does the abbreviation STOIC stand for?", "Student Television of Imperial College"),
        ("", "anything"),
    ],
)
def test_other_answers_are_never_refused(question: str, answer: str) -> None:
    assert make_kind_check(question)(answer)
