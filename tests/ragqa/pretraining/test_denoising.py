"""Denoising as in T5 and BART: examples by hand, frequencies of random choices, and restored texts."""

from collections import Counter
from itertools import chain, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragqa.pretraining.denoising import (
    Spans,
    corrupt_spans,
    count_t5_spans,
    infill_spans,
    permute_sentences,
    sample_bart_spans,
    sample_t5_spans,
)

X, Y, Z, MASK = 900, 901, 902, 899


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_span_corruption_matches_the_example_of_the_paper() -> None:
    """Figure 2 of Raffel et al.: Thank you [for inviting] me to your party [last] week."""
    text = "Thank you for inviting me to your party last week"
    ids = dict(enumerate(text.split())) | {X: "<X>", Y: "<Y>", Z: "<Z>"}
    read, written = corrupt_spans(list(range(10)), [(2, 4), (8, 9)], [X, Y, Z])
    assert " ".join(ids[each] for each in read) == "Thank you <X> me to your party <Y> week"
    assert " ".join(ids[each] for each in written) == "<X> for inviting <Y> last <Z>"


def test_a_sentinel_is_needed_for_each_span_and_for_the_end() -> None:
    assert corrupt_spans([5, 6], [], [X]) == ([5, 6], [X])
    with pytest.raises(ValueError, match="2 spans need 3 sentinels, not 2"):
        corrupt_spans([5, 6, 7, 8], [(0, 1), (2, 3)], [X, Y])


def test_the_share_of_dropped_tokens_is_that_of_t5() -> None:
    """As in T5, 568 tokens give an input of 512 ids with </s> and a target of 114 ids with the last sentinel."""
    assert count_t5_spans(568) == (85, 28) and (568 - 85 + 28 + 1, 85 + 28 + 1) == (512, 114)
    expected = {0: (0, 0), 1: (0, 0), 2: (1, 1), 3: (1, 1), 10: (2, 1), 20: (3, 1), 30: (4, 1), 128: (19, 6)}
    assert {length: count_t5_spans(length) for length in expected} == expected
    assert count_t5_spans(10, 0.99) == (9, 1) and count_t5_spans(10, 0.8, 1) == (8, 2)  # a kept token before each span
    read, written = corrupt_spans(range(568), sample_t5_spans(568, rng()), range(1000, 1100))
    assert (len(read) + 1, len(written)) == (512, 114)


def test_all_choices_of_t5_spans_are_equally_likely() -> None:
    """Of 8 tokens, 4 are dropped in 2 spans. Kept and dropped tokens each divide as 1 + 3, 2 + 2 or 3 + 1."""
    source = rng()
    counts = Counter(tuple(sample_t5_spans(8, source, 0.5, 2)) for _ in range(9000))
    # The second span ends at the end of the text.
    every = {((kept, kept + first), (4 + first, 8)) for kept in (1, 2, 3) for first in (1, 2, 3)}
    assert set(counts) == every
    assert list(counts.values()) == pytest.approx([1000] * 9, rel=0.12)


def test_each_span_becomes_one_mask() -> None:
    """The spans have two tokens, none, and the last token."""
    assert infill_spans([5, 6, 7, 8, 9], [(1, 3), (4, 4), (4, 5)], MASK) == [5, MASK, 8, MASK, MASK]
    assert infill_spans([5, 6], [(0, 0), (2, 2)], MASK) == [MASK, 5, 6, MASK]
    assert infill_spans([5], [], MASK) == [5]


def test_lengths_of_bart_spans_are_poisson() -> None:
    """In a long text the cut span and the last span hardly count; P(0) = e^-3 = 5 %."""
    lengths = np.array([end - start for seed in range(20) for start, end in sample_bart_spans(10_000, rng(seed))])
    expected = np.exp(-3.0) * np.cumprod([1, 3 / 1, 3 / 2, 3 / 3, 3 / 4, 3 / 5, 3 / 6])
    assert np.bincount(lengths)[:7] / len(lengths) == pytest.approx(expected, abs=0.01)
    assert lengths.sum() == 20 * 3000


def test_all_places_of_bart_spans_are_equally_likely() -> None:
    """One span of one token among four tokens. Of two spans, each is cut equally often."""
    source = rng()
    counts = Counter(spans[0] for _ in range(8000) if len(spans := sample_bart_spans(4, source, 0.25)) == 1)
    assert set(counts) == {(0, 1), (1, 2), (2, 3), (3, 4)}
    assert list(counts.values()) == pytest.approx([sum(counts.values()) / 4] * 4, rel=0.1)
    pairs = [[end - start for start, end in sample_bart_spans(40, source, 0.1, 3)] for _ in range(6000)]
    both = Counter(tuple(pair) for pair in pairs if len(pair) == 2)
    assert both[1, 3] == pytest.approx(both[3, 1], rel=0.2) and both[1, 3] > 200


def test_all_orders_of_sentences_are_equally_likely() -> None:
    sentences, source = ([1, 2], [3], [4, 5]), rng()
    counts = Counter(tuple(permute_sentences(sentences, source)) for _ in range(3000))
    assert set(counts) == {tuple(chain(*order)) for order in permutations(sentences)}
    assert list(counts.values()) == pytest.approx([500] * 6, rel=0.2)
    assert permute_sentences([], rng()) == []


RATES, MEANS, SEEDS = st.floats(0.01, 0.99), st.floats(1, 8), st.integers(0, 2**32)


def are_sorted(spans: Spans, length: int) -> bool:
    edges = [0, *chain.from_iterable(spans), length]
    return edges == sorted(edges)


@given(st.integers(0, 200), RATES, MEANS, SEEDS)
def test_input_and_target_of_t5_restore_the_text(length: int, rate: float, mean: float, seed: int) -> None:
    spans = sample_t5_spans(length, rng(seed), rate, mean)
    assert are_sorted(spans, length) and (sum(end - start for start, end in spans), len(spans)) == count_t5_spans(
        length, rate, mean
    )
    sentinels = list(range(1000, 1000 + len(spans) + 1))
    read, written = corrupt_spans(range(length), spans, sentinels)
    answers: dict[int, list[int]] = {}
    for each in written:
        answers.setdefault(each, []) if each >= 1000 else answers[max(answers)].append(each)
    assert list(answers) == sentinels and answers[sentinels[-1]] == []
    assert all(answers[mark] for mark in sentinels[:-1])
    assert list(chain.from_iterable(answers.get(each, [each]) for each in read)) == list(range(length))


@given(st.integers(0, 200), RATES, MEANS, SEEDS)
def test_bart_masks_the_given_share_of_the_text(length: int, rate: float, mean: float, seed: int) -> None:
    spans = sample_bart_spans(length, rng(seed), rate, mean)
    assert are_sorted(spans, length)
    assert sum(end - start for start, end in spans) == (min(length, max(1, round(rate * length))))
    read = infill_spans(range(length), spans, MASK)
    missing = iter(spans)
    restored = [part for each in read for part in (range(*next(missing)) if each == MASK else [each])]
    assert restored == list(range(length)) and not list(missing)
