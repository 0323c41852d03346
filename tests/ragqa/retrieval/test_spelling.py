"""Misspelt words of questions: which words are replaced, by what, and which never change."""

from pathlib import Path

import pytest

from ragqa.pipeline import Pipeline
from ragqa.retrieval.live import open_retriever
from ragqa.retrieval.spelling import choose_word, measure_distance


@pytest.mark.parametrize(
    ("word", "other", "distance"),
    [("wher", "where", 1), ("wheree", "where", 1), ("whera", "where", 1.1), ("wehre", "where", 0.9), ("cat", "cat", 0)],
)
def test_the_distance_depends_on_the_kind_of_mistake(word: str, other: str, distance: float) -> None:
    assert measure_distance(word, other) == measure_distance(other, word) == pytest.approx(distance)


@pytest.mark.parametrize(
    ("word", "text", "right"),
    [
        ("Skarvk", "The lamp of Skarvik.", "Skarvik"),
        ("lighthose", "A Lighthouse near the house.", "lighthouse"),
        ("lihgthuose", "A lighthouse.", "lighthouse"),
        ("Wher", "nothing", "Where"),
        ("lanp", "lamp lane", None),  # one is as near and as frequent as the other
        ("lanp", "lamp lamp lamp land", "lamp"),
        ("miler", "the first mile", None),  # an ending
        ("pamp", "The lamp.", None),  # another first letter
        ("lxxp", "The lamp.", None),  # two mistakes in a short word
    ],
)
def test_the_nearest_word_is_chosen_if_it_is_certain(word: str, text: str, right: str | None) -> None:
    assert choose_word(word, [text]) == right


@pytest.mark.parametrize(
    ("question", "corrected"),
    [
        ("Wher was Comet Varga discoverd?", "Where was Comet Varga discovered?"),
        ("Who built Skarvk Lighthose?", "Who built Skarvik Lighthouse?"),
        ("Who built Skarvik Lighthouse?", "Who built Skarvik Lighthouse?"),
        ("What is the colour of the bridge in 1872?", "What is the colour of the bridge in 1872?"),
        ("Who founded the bakery in 1932a?", "Who founded the bakery in 1932a?"),
        ("Who is the president of Skarvo?", "Who is the president of Skarvo?"),  # a name, and no passage about it
        ("Wer hat die Bäckeri gegründet?", "Wer hat die Bäckeri gegründet?"),
    ],
)
def test_only_misspelt_words_are_replaced(index: Path, question: str, corrected: str) -> None:
    for kind in ("hybrid", "bm25"):
        assert open_retriever(index, kind).correct_spelling(question) == corrected
    assert open_retriever(index, "dense").correct_spelling(question) == question


def test_the_corrected_question_is_read_and_shown(index: Path) -> None:
    pipeline = Pipeline.load(index)
    misspelt, right = pipeline.ask(["Who buillt Skarvk Lighthouse?", "Who built Skarvik Lighthouse?"])
    assert misspelt.question == "Who buillt Skarvk Lighthouse?" and misspelt.asked == right.question
    assert (misspelt.text, misspelt.confidence) == (right.text, right.confidence)
    assert misspelt.to_dict()["asked"] == right.question and right.asked is None
