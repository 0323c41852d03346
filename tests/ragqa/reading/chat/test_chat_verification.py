"""Checks of statements against passages: single rules, and figures on labelled statements."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ragqa.artefacts.paths import get_demo_dir
from ragqa.reading.chat.verification import find_problem, locate_evidence
from ragqa.reading.span import ExtractiveReader
from ragqa.types import Hit, Passage

LABELLED = Path(__file__).parents[3] / "data" / "statements.jsonl"
LAMP = "The lamp was lit on 4 March 1902 by Ada Holm. It has 1,280 mirrors and never burnt oil. It cost ten pounds."


def make_hit(text: str, title: str = "Tern Island", number: int = 0) -> Hit:
    return Hit(Passage(number, f"{number}.md", title, text, f"{number}.md", 0, len(text)), 1.0)


@pytest.mark.parametrize(
    "statement",
    [
        "The lamp was lit on 4 March 1902.",
        "Ada Holm lit the lamp on March 4, 1902.",
        "The lamp of Tern Island has 1280 mirrors.",
        "The lamp cost 10 pounds.",
        "It never burnt oil.",
        "No, the lamp never burnt oil.",
        "Ada Holm’s lamp was lighted in 1902.",
        "1902",
        "Ada Holm",
    ],
)
def test_supported_statements_pass(statement: str) -> None:
    assert find_problem(statement, [make_hit(LAMP)]) is None


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("The lamp was lit in 1903.", "1903 is not there"),
        ("The lamp was lit by Olaf Holm.", "Olaf is not there"),
        ("The lamp has 128 mirrors.", "128 is not there"),
        ("The lamp cost twenty-five pounds.", "twenty-five is not there"),
        ("The lamp was lit on 10 March 1902.", "10 March 1902 is not there"),
        ("The lamp burnt oil.", "it denies what the passage states, or states what the passage denies"),
        (
            "The lamp does not have 1,280 mirrors.",
            "it denies what the passage states, or states what the passage denies",
        ),
        ("Storms broke several windows of the tower.", "only 0 of its 5 main words are there"),
        ("The lamp was lit; see http://evil.example/x.", "'http://evil.example/x.' is not there"),
        ("Write to ada@evil.example about the lamp.", "'ada@evil.example' is not there"),
        ("Yes.", "there is nothing to check in it"),
    ],
)
def test_unsupported_statements_are_named(statement: str, problem: str) -> None:
    assert find_problem(statement, [make_hit(LAMP)]) == problem


@pytest.mark.parametrize(
    ("question", "statement", "problem"),
    [
        ("How long was the lamp lit in 1902?", "1902", "there is nothing of the kind that the question asks for"),
        ("When was the lamp lit?", "by Ada Holm", "there is nothing of the kind that the question asks for"),
        ("When was the lamp lit?", "in 1902", None),
        ("Was the lamp lit in 1902 or 1903?", "1902", None),
    ],
)
def test_a_short_answer_must_be_of_the_kind_that_is_asked_for(
    question: str, statement: str, problem: str | None
) -> None:
    assert find_problem(statement, [make_hit(LAMP)], question) == problem


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (("Olaf Berg", 0.9), "a span reader answers the question with 'Olaf Berg'"),
        (("Ada Holm", 0.9), None),
        (("Olaf Berg", 0.5), None),
        (None, None),
    ],
)
def test_a_statement_that_repeats_the_question_must_have_its_answer(
    found: tuple[str, float] | None, problem: str | None
) -> None:
    question, statement = "Who lit the lamp of Tern Island?", "The lamp of Tern Island was lit by Ada Holm."
    answers = {question: found}
    assert find_problem(statement, [make_hit(LAMP)], question, lambda asked, _: answers.get(asked)) == problem


def test_several_passages_support_a_statement_together() -> None:
    hits = [make_hit("The lamp was lit in 1902."), make_hit("The keepers left in 1958.", number=1)]
    statement = "The lamp was lit in 1902 and the keepers left in 1958."
    assert find_problem(statement, hits) is None
    assert find_problem(statement, hits[:1]) == "1958 is not there"


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (("Olaf Berg", 0.9), "a span reader finds 'Olaf Berg' instead of 'Ada Holm'"),
        (("Olaf Berg", 0.6), None),
        (("Miss Ada Holm", 0.9), None),
        (("the keeper", 0.9), None),
        (("1902", 0.9), None),
        (None, None),
    ],
)
def test_a_confident_other_name_is_a_contradiction(found: tuple[str, float] | None, problem: str | None) -> None:
    asked = []

    def ask(question: str, hits: list[Hit]) -> tuple[str, float] | None:
        asked.append(question)
        return found

    assert find_problem("The lamp was lit by Ada Holm.", [make_hit(LAMP)], "", ask) == problem
    assert asked == ["The lamp was lit by who or what?"]
    asked.clear()
    assert find_problem("Ada Holm", [make_hit(LAMP)], "Who lit the lamp?", ask) == problem
    assert asked == ["Who lit the lamp?"]


def test_the_evidence_is_the_nearest_sentence() -> None:
    passage = make_hit(LAMP).passage
    span = locate_evidence("There are 1280 mirrors.", passage)
    assert span and passage.text[span.start : span.end] == "It has 1,280 mirrors and never burnt oil."
    assert locate_evidence("Storms broke windows.", passage) is None


def count_right(ask: Callable[[str, list[Hit]], tuple[str, float] | None] | None) -> dict[bool, tuple[int, int]]:
    """Return the number of statements that are judged as labelled, and of all, for supported and unsupported ones."""
    counts = {True: [0, 0], False: [0, 0]}
    for row in map(json.loads, LABELLED.read_text("utf-8").splitlines()):
        title, *paragraphs = (get_demo_dir() / "articles" / row["document"]).read_text("utf-8").split("\n\n")
        hits = [make_hit(paragraphs[n - 1], title.removeprefix("# "), n) for n in row["paragraphs"]]
        is_supported = find_problem(row["statement"], hits, "", ask) is None
        counts[row["supported"]][0] += is_supported == row["supported"]
        counts[row["supported"]][1] += 1
    return {label: (right, total) for label, (right, total) in counts.items()}


def test_words_alone_find_some_of_the_labelled_unsupported_statements() -> None:
    assert count_right(None) == {True: (33, 34), False: (13, 30)}


@pytest.mark.thorough
def test_the_span_reader_finds_most_of_the_labelled_unsupported_statements() -> None:
    reader = ExtractiveReader.load()

    def ask(question: str, hits: list[Hit]) -> tuple[str, float] | None:
        answer = reader.read([question], [hits])[0]
        return (answer.text, answer.confidence) if answer.text else None

    right = count_right(ask)
    assert right[True][0] >= 32 and right[False][0] >= 22, right
