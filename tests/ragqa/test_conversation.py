"""Follow-up questions: what they become, and which questions never change."""

import json
import time
from pathlib import Path

import pytest

from ragqa import Conversation, Pipeline
from ragqa.conversation import make_standalone
from ragqa.follow_ups import Turn, list_names, rewrite_follow_up

BUILT = Turn("Who built Skarvik Lighthouse?", "Ada Holm", "Skarvik Lighthouse")
PLUTO = Turn("Who discovered Pluto?", "Clyde Tombaugh", "Pluto")
REPLACED = Turn("Who is the harbour master?", "Callum Reid", "Mooring fees")
WEIGHT = Turn("How much does the boiler weigh?", "38 kilograms", "Manual")
PERIOD = Turn("How long is the probation period?", "six months", "Handbook")
BORN = Turn("Where was Isaac Newton born in 1642?", "Woolsthorpe", "Isaac Newton")


@pytest.mark.parametrize(
    ("turn", "question", "asked"),
    [
        (BUILT, "How tall is it?", "How tall is Skarvik Lighthouse?"),
        (BUILT, "When did she build it?", "When did Ada Holm build Skarvik Lighthouse?"),
        (BUILT, "And what is its height?", "What is Skarvik Lighthouse's height?"),
        (BUILT, "Why?", "Why: Ada Holm built Skarvik Lighthouse?"),
        (BUILT, "What about Brenna Chapel?", "Who built Brenna Chapel?"),
        (BORN, "When did he die?", "When did Isaac Newton die?"),
        (PLUTO, "When did he do it?", "When did Clyde Tombaugh do it?"),
        (PLUTO, "What about 1930?", "Who discovered Pluto in 1930?"),
        (PLUTO, "And in Paris?", "Who discovered Pluto in Paris?"),
        (PERIOD, "Why?", "Why is the probation period six months?"),
        (PERIOD, "And for managers?", "How long is the probation period for managers?"),
        (PERIOD, "What about the notice period?", "How long is the notice period?"),
        (Turn("How many people live in Rome?", "3 million", "Rome"), "And in Paris?", "How many people live in Paris?"),
        (REPLACED, "Who did he replace?", "Who did Callum Reid replace?"),
        (REPLACED, "Which king did he serve?", "Which king did Callum Reid serve?"),
        (WEIGHT, "And the kettle?", "How much does the kettle weigh?"),
        (WEIGHT, "Where is it installed?", "Where is the boiler installed?"),
        (Turn("Why does the boiler weigh 38 kilograms?", None), "And Pepper?", "Why does Pepper weigh 38 kilograms?"),
        (Turn("When did the old mill burn down?", None), "And the barn?", "When did the barn burn down?"),
        (BORN, "Who lived there?", "Who lived in Woolsthorpe?"),
        (BORN, "And in 1650?", "Where was Isaac Newton born in 1650?"),
        (BORN, "When?", "When was Isaac Newton born in 1642?"),
        (Turn("Who designed the bridge?", None), "When was it opened?", "When was the bridge opened?"),
        (
            Turn("Which nurse met Frida Kahlo?", "Leon Berg", "Frida Kahlo"),
            "Did she like him?",
            "Did Frida Kahlo like him?",
        ),
    ],
)
def test_a_follow_up_is_asked_with_what_it_refers_to(turn: Turn, question: str, asked: str) -> None:
    assert rewrite_follow_up(question, turn) == asked


@pytest.mark.parametrize(
    "question",
    [
        "Which consul lost his life at Cannae?",
        "When did Marie Curie receive her first prize?",
        "How long does it take light to reach the Earth?",
        "How many moons are there?",
        "Are there moons of Jupiter?",
        "Is there parking?",
        "Was there a bridge before?",
        "Why did the company say they were sorry?",
        "What did Newton discover when he was at home?",
        "Why is the sky blue?",
        "Where is the bakery that the twins own?",
    ],
)
def test_a_question_that_stands_alone_does_not_change(question: str) -> None:
    assert rewrite_follow_up(question, BUILT) == question


def test_no_independent_question_of_the_set_changes() -> None:
    rows = map(json.loads, (Path(__file__).parents[1] / "data" / "follow_ups.jsonl").read_text().splitlines())
    alone = [row["second"] for row in rows if not row["follows"]]
    assert len(alone) >= 40
    assert [question for question in alone if rewrite_follow_up(question, BORN) != question] == []


def test_names_are_found_without_the_question_word() -> None:
    question = "In Which war did the Battle of Cannae change Hannibal's luck?"
    assert list_names(question) == ["the Battle of Cannae", "Hannibal"]


def test_a_conversation_remembers_the_last_question(index: Path) -> None:
    pipeline = Pipeline.load(index)
    conversation = Conversation(pipeline)
    first = conversation.ask("Who built Skarvik Lighthouse?", min_confidence=0)
    assert first == pipeline.ask("Who built Skarvik Lighthouse?", min_confidence=0) and first.asked is None
    second = conversation.ask("How tall is it?", min_confidence=0)
    assert (second.question, second.asked) == ("How tall is it?", "How tall is Skarvik Lighthouse?")
    assert second.text == "34 metres"
    third = conversation.ask("When was it built?", min_confidence=0)
    assert third.text == "1871" and conversation.last_turn == Turn(third.asked or "", "1871", "Skarvik Lighthouse")


def test_a_question_is_made_standalone_after_turns_that_are_follow_ups_themselves() -> None:
    turns = [BUILT, Turn("How tall is it?", "34 metres", "Skarvik Lighthouse")]
    assert make_standalone("When was it built?", turns) == "When was Skarvik Lighthouse built?"
    assert make_standalone(" When was\tit built? ", []) == "When was it built?"


def test_hostile_conversations_take_no_exponential_time() -> None:
    start = time.perf_counter()
    for turn in (Turn(f"Who built the {'a' * 9000}!x", None), Turn("which " * 1600, "A " * 5000, "B " * 5000)):
        for question in ("When did it fall?", "When did he?", f"When did {'he ' * 3000}?", "Why?", "And in 1900?"):
            make_standalone(question, [turn] * 3)
    assert time.perf_counter() - start < 3  # the first took 0.7 s for 22 letters, and twice that for each further one
