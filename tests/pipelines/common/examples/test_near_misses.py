"""Questions that are changed by rule, so that their passage no longer answers them."""

import numpy as np
import pytest

from pipelines.common.examples.near_misses import NearMissMaker

PASSAGE = "In 1921 Marie Curie went to New York, where she received the first gram of radium from 75 women."
NAMES = ["Albert Einstein", "Marie Curie", "Berlin"]


@pytest.fixture(scope="module")
def maker() -> NearMissMaker:
    return NearMissMaker()


def make_all(maker: NearMissMaker, question: str, passage: str = PASSAGE) -> set[str | None]:
    return {maker.make(question, passage, NAMES, np.random.default_rng(seed)) for seed in range(60)}


def test_a_name_of_the_passage_is_replaced_by_one_that_the_passage_lacks(maker: NearMissMaker) -> None:
    assert make_all(maker, "Where did Marie Curie go?") == {"Where did Albert Einstein go?"}
    assert make_all(maker, "Where did Marie Curie go?", PASSAGE + " Albert Einstein met her.") == {
        "Where did Berlin go?"
    }


def test_a_number_of_the_passage_is_replaced_by_another(maker: NearMissMaker) -> None:
    changed = make_all(maker, "Who gave radium in 1921?")
    years = {int(str(question).removeprefix("Who gave radium in ").rstrip("?")) for question in changed}
    assert len(years) > 5 and 1921 not in years and all(abs(year - 1921) < 30 for year in years)


def test_a_relation_is_replaced_by_another(maker: NearMissMaker) -> None:
    """A replacement whose stem is in the passage is not used: the passage could answer the new question."""
    assert make_all(maker, "Who gave most?") == {"Who gave least?"}
    assert make_all(maker, "Who gave most?", PASSAGE + " The least was 1 g.") == {None}
    words = ("mother", "father", "wife", "son", "daughter", "sister", "uncle")
    passage = PASSAGE + " Her brothers stayed."
    assert make_all(maker, "Who was her husband?", passage) == {f"Who was her {word}?" for word in words}


def test_a_question_without_anything_to_replace_stays(maker: NearMissMaker) -> None:
    assert make_all(maker, "Where did she go?") == {None}
    assert make_all(maker, "Where did Albert Einstein go in 1950?") == {None}  # the passage has neither


def test_names_of_questions_are_listed_once(maker: NearMissMaker) -> None:
    assert maker.find_names(["Where did Marie Curie go?", "When did Marie Curie meet Albert Einstein?"]) == [
        "Marie Curie",
        "Albert Einstein",
    ]
