"""Metrics over many questions: answer recall, accuracy and reciprocal rank, worked out by hand."""

import itertools

import pytest

from ragqa.metrics import (
    accuracy_at,
    answer_recall,
    first_rank,
    mean_reciprocal_rank,
)

TEXTS = [
    ["a dog", "a cat", "a cat"],  # the cat is second
    ["a cow"],  # first, of fewer passages than asked for
    [],
    ["a hen", "a hen", "a hen"],  # nowhere
]
ANSWERS = [["cat"], ["cow", "ox"], ["pig"], ["fox"]]


def test_answer_recall_by_hand() -> None:
    assert answer_recall(TEXTS, ANSWERS, [1, 2, 3, 100]) == {1: 0.25, 2: 0.5, 3: 0.5, 100: 0.5}
    assert answer_recall(TEXTS, ANSWERS, [100, 1, 1]) == {100: 0.5, 1: 0.25}  # any order
    assert answer_recall(TEXTS, ANSWERS, range(2, 3)) == {2: 0.5}
    assert answer_recall(TEXTS, ANSWERS, []) == {}
    assert answer_recall([], [], [1, 20]) == {1: 0.0, 20: 0.0}
    assert answer_recall([["cat"]], [[]], [1]) == {1: 0.0}
    assert answer_recall([["cat"]], [[""]], [1]) == {1: 0.0}


def test_answer_recall_counts_repeated_questions() -> None:
    assert answer_recall([["cat"], ["cat"], ["dog"]], [["cat"]] * 3, [1]) == {1: pytest.approx(2 / 3)}


def test_answer_recall_of_patterns_by_hand() -> None:
    texts, patterns = [["no", "fifteen"], ["15"]], [[r"\b15\b|fif"]] * 2
    assert answer_recall(texts, patterns, [1, 2], regex=True) == {1: 0.5, 2: 1.0}
    assert answer_recall(texts, patterns, [1, 2]) == {1: 0.0, 2: 0.0}
    assert answer_recall([["cat"]] * 2, [["("], [""]], [1], regex=True) == {1: 0.0}


def test_answer_recall_drops_no_question() -> None:
    for found, gold in [([["cat"]], [["cat"], ["dog"]]), ([["cat"], ["dog"]], [["cat"]])]:
        with pytest.raises(ValueError, match=r"longer|shorter"):
            answer_recall(found, gold, [1])


def test_answer_recall_reads_streams_one_question_at_a_time() -> None:
    rows = [(question, text) for question, texts in enumerate(TEXTS) for text in texts]
    groups = itertools.groupby(rows, key=lambda row: row[0])  # a group is gone once the next is asked for
    texts = ((text for _, text in group) for _, group in groups)
    answers = (gold for gold, found in zip(ANSWERS, TEXTS, strict=True) if found)
    assert answer_recall(texts, answers, [1, 3]) == {1: pytest.approx(1 / 3), 3: pytest.approx(2 / 3)}


def test_answer_recall_reads_no_deeper_than_asked() -> None:
    found = iter(["a hen", "a hen", "a cat"])
    assert answer_recall([found], [["cat"]], [1, 2]) == {1: 0.0, 2: 0.0}
    assert next(found) == "a cat"


@pytest.mark.parametrize(
    ("marks", "rank"),
    [([], None), ([False, False], None), ([True], 1), ([False, True, True], 2), ([True, False], 1)],
)
def test_first_rank_by_hand(marks: list[bool], rank: int | None) -> None:
    assert first_rank(marks) == first_rank(iter(marks)) == rank


def test_first_rank_stops_at_the_first() -> None:
    assert first_rank(itertools.chain([False, False], itertools.repeat(True))) == 3


def test_accuracy_at_k_by_hand() -> None:
    ranks = [1, 3, None, 100]
    expected = {1: 0.25, 2: 0.25, 3: 0.5, 99: 0.5, 100: 0.75, 1000: 0.75}
    assert accuracy_at(ranks, tuple(expected)) == expected
    assert accuracy_at(iter(ranks), list(expected)) == expected  # the ranks are read once for all ks
    assert accuracy_at([None, None], [1, 5]) == {1: 0.0, 5: 0.0}
    assert accuracy_at([], [1, 5]) == {1: 0.0, 5: 0.0}


def test_mean_reciprocal_rank_by_hand() -> None:
    ranks = [1, 2, None, 4]
    assert mean_reciprocal_rank(ranks) == pytest.approx((1 + 1 / 2 + 0 + 1 / 4) / 4)
    assert mean_reciprocal_rank(iter(ranks)) == mean_reciprocal_rank(ranks)
    assert mean_reciprocal_rank(ranks, cutoff=4) == mean_reciprocal_rank(ranks)  # the cutoff itself counts
    assert mean_reciprocal_rank(ranks, cutoff=3) == pytest.approx((1 + 1 / 2) / 4)
    assert mean_reciprocal_rank(ranks, cutoff=1) == 1 / 4
    assert mean_reciprocal_rank([1, 1]) == 1.0
    assert mean_reciprocal_rank([None]) == 0.0
    assert mean_reciprocal_rank([]) == 0.0
