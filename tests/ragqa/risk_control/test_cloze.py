"""Questions made of fixed sentences and records."""

import numpy as np
import pytest

from ragqa.pretraining.salient import RuleTagger
from ragqa.risk_control.cloze import drop_words, make_record_questions, make_sentence_questions

TAGGER = RuleTagger(["Ada Holm", "Skarvik", "Brenna", "Rogier Verbeek", "Colin Archer"])


@pytest.mark.parametrize(
    ("sentence", "questions"),
    [
        (  # the subject
            "Ada Holm built the first lighthouse of the coast.",
            {"Who built the first lighthouse of the coast?": "Ada Holm"},
        ),
        (  # an auxiliary verb moves in front of its subject
            "The lighthouse of Skarvik was built in 1871 by Ada Holm.",
            {
                "In what year was the lighthouse of Skarvik built by Ada Holm?": "1871",
                "By whom was the lighthouse of Skarvik built?": "Ada Holm",
            },
        ),
        (  # else the question word stays
            "Ada Holm repaired the old lighthouse in 1903.",
            {
                "Who repaired the old lighthouse?": "Ada Holm",
                "Ada Holm repaired the old lighthouse in what year?": "1903",
            },
        ),
        (
            "The bakery opened its second shop on 4 July 1923.",
            {},  # the pronoun is of the sentence, but no name stands before it
        ),
        (
            "Ada Holm opened the second shop on 4 July 1923.",
            {"Who opened the second shop?": "Ada Holm", "Ada Holm opened the second shop when?": "4 July 1923"},
        ),
        (
            "The lighthouse has about 212 steps of grey granite.",
            {"How many steps does the lighthouse have of grey granite?": "212"},
        ),
        (
            "The old lighthouse cost the town about £41,500 in the end.",
            {"The old lighthouse cost the town how much?": "£41,500"},
        ),
        (
            "The rye loaf contains 70 per cent of rye.",
            {"The rye loaf contains what percentage of rye?": "70 per cent"},
        ),
        (  # a tail after the span, an aside before it and other dates are left out
            "The tower, a gift of the fishermen, was moved in 1890 to Brenna, where sheep graze.",
            {"In what year was the tower moved to Brenna?": "1890"},
        ),
        (
            "The Dutch geologist Rogier Verbeek wrote a detailed report about the eruption.",
            {"Which Dutch geologist wrote a detailed report about the eruption?": "Rogier Verbeek"},
        ),
        ("It was built in 1871 by Ada Holm.", {}),  # nobody knows what "it" is
        ("Was the lighthouse of Skarvik built in 1871?", {}),
        ("Page 12 and figure 3 show the lamp in the first room.", {}),
        ("the lighthouse of Skarvik was built in 1871", {}),  # not a whole sentence
    ],
)
def test_questions_of_sentences(sentence: str, questions: dict[str, str]) -> None:
    assert {made.text: made.answers[0] for made in make_sentence_questions(sentence, TAGGER)} == questions


def test_other_forms_of_an_answer_are_right_too() -> None:
    (steps,) = make_sentence_questions("The lighthouse has about 212 steps of granite.", TAGGER)
    assert steps.answers == ("212", "212 steps", "about 212")
    (geologist,) = make_sentence_questions("The geologist Rogier Verbeek wrote a report on the eruption.", TAGGER)
    assert geologist.answers == ("Rogier Verbeek", "The geologist Rogier Verbeek")


def test_a_question_does_not_contain_its_answer() -> None:
    assert not list(make_sentence_questions("Skarvik is the only harbour of the island of Skarvik.", TAGGER))


def test_questions_of_records() -> None:
    record = "Part: door seal; Replaced after: 14 months; Paid by: bakery; Price_in_euros: 20"
    made = {question.text: question.answers for question in make_record_questions(record)}
    assert made == {"What is the price in euros of door seal?": ("20",)}  # "paid by" is no name of a value
    assert not list(make_record_questions("The note: nothing; more text follows here without a name."))
    (weight,) = make_record_questions("Part: lamp; _: 3; Weight: 20 g")  # a column whose name has no letters
    assert weight.text == "What is the weight of lamp?"
    assert not list(make_record_questions("Date: 2024-04-06; Driver: Ada Holm"))  # a date names no record


def test_words_are_left_out_of_a_question() -> None:
    question = "In what year was the old lighthouse of Skarvik carefully painted by Ada Holm?"
    assert drop_words(question, np.random.default_rng(0), 0.0) == question
    kept = "In what year was the of Skarvik by Ada Holm?"
    assert drop_words(question, np.random.default_rng(0), 1.0) == kept
    assert drop_words("How many steps has the lighthouse?", np.random.default_rng(0), 1.0) == "How many steps?"
    some = {drop_words(question, np.random.default_rng(seed), 0.4) for seed in range(20)}
    assert len(some) > 5
