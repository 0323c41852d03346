"""Which wordpieces are masked, and by what, with the rates of the literature."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragqa.pretraining.inverse_cloze import make_inverse_cloze_pair
from ragqa.pretraining.masking import (
    corrupt_wordpieces,
    find_words,
    sample_salient_spans,
    sample_spans,
    sample_whole_words,
    sample_wordpieces,
)

MASK = 103


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_uniform_masking_takes_the_exact_share() -> None:
    for length, expected in ((1, 1), (3, 1), (20, 3), (100, 15), (103, 15), (0, 0)):
        positions = sample_wordpieces(length, rng())
        assert len(positions) == len(set(positions.tolist())) == expected
        assert all(0 <= position < length for position in positions)


def test_uniform_masking_takes_every_position_equally_often() -> None:
    counts = np.bincount(np.concatenate([sample_wordpieces(20, rng(seed)) for seed in range(4000)]), minlength=20)
    assert counts == pytest.approx(np.full(20, 600), rel=0.15)


def test_words_are_runs_of_wordpieces() -> None:
    assert find_words([0, 0, 1, 2, 2, 2]) == [(0, 2), (2, 3), (3, 6)]
    assert find_words([None, None, 0]) == [(0, 1), (1, 2), (2, 3)]
    assert find_words([]) == []


WORDS = st.lists(st.integers(1, 5), max_size=40).map(
    lambda sizes: [n for n, size in enumerate(sizes) for _ in range(size)]
)


@given(WORDS, st.integers(0, 99))
def test_whole_word_masking_stays_within_the_share(words: list[int], seed: int) -> None:
    positions = set(sample_whole_words(words, rng(seed)).tolist())
    for first, last in find_words(words):
        assert positions.isdisjoint(range(first, last)) or positions.issuperset(range(first, last))
    assert bool(positions) == bool(words)
    longest = max((words.count(word) for word in words), default=0)
    assert len(positions) <= max(longest, 1, round(0.15 * len(words)))


@given(WORDS, st.integers(0, 99))
def test_span_masking_takes_the_exact_share(words: list[int], seed: int) -> None:
    positions = set(sample_spans(words, rng(seed)).tolist())
    assert len(positions) == (max(1, round(0.15 * len(words))) if words else 0)
    parts = [positions.intersection(range(first, last)) for first, last in find_words(words)]
    cut = [part for part, (first, last) in zip(parts, find_words(words), strict=True) if 0 < len(part) < last - first]
    assert len(cut) <= 1


def test_span_lengths_are_geometric_up_to_ten() -> None:
    """Mean 3.8 as SpanBERT states; the shares are those of Geo(0.2) over 1 … 10."""
    lengths = []
    for seed in range(3000):
        positions = set(sample_spans(list(range(600)), rng(seed), 10 / 600).tolist())  # each word is one wordpiece
        first = rng(seed).permutation(600)[0]  # the first span is never cut
        if first < 590:
            lengths.append(next(n for n in range(11) if first + n not in positions))
    shares = np.bincount(lengths, minlength=11)[1:] / len(lengths)
    weights = 0.2 * 0.8 ** np.arange(10)
    assert max(lengths) == 10 and np.mean(lengths) == pytest.approx(3.8, abs=0.15)
    assert shares == pytest.approx(weights / weights.sum(), abs=0.025)


def test_all_wordpieces_of_a_salient_span_are_masked() -> None:
    # "In 1863 Abraham Lincoln spoke": In | 1863 | abraham | lincoln | spoke
    offsets = [(0, 2), (3, 7), (8, 15), (16, 23), (24, 29)]
    names = [(3, 7), (8, 23)]
    positions = {tuple(sample_salient_spans(offsets, names, rng(seed)).tolist()) for seed in range(20)}
    assert positions == {(1,), (2, 3)}
    assert sample_salient_spans(offsets, names, rng(), count=5).tolist() == [1, 2, 3]
    assert sample_salient_spans(offsets, [], rng()).tolist() == []
    assert sample_salient_spans(offsets, [(5, 9)], rng()).tolist() == [1, 2]


def test_bert_replaces_eighty_ten_and_ten_percent() -> None:
    ids, positions = [1000] * 30_000, np.arange(0, 30_000, 2)
    found = np.array(corrupt_wordpieces(ids, positions, rng(), mask=MASK, vocabulary=range(2000, 2100)))
    assert (found[1::2] == 1000).all()
    shares = [(found[::2] == MASK).mean(), (found[::2] >= 2000).mean(), (found[::2] == 1000).mean()]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.01)
    assert len(set(found[found >= 2000].tolist())) == 100


def test_rates_of_zero_give_masks_only() -> None:
    assert corrupt_wordpieces([7, 8, 9], np.array([0, 2]), rng(), mask=MASK, random_rate=0, keep_rate=0) == [
        MASK,
        8,
        MASK,
    ]
    assert corrupt_wordpieces([7, 8, 9], np.array([], np.int64), rng(), mask=MASK, vocabulary=[5]) == [7, 8, 9]


def test_random_wordpieces_need_a_vocabulary() -> None:
    with pytest.raises(ValueError, match="vocabulary"):
        corrupt_wordpieces([7, 8, 9], np.array([0, 2]), rng(), mask=MASK)


def test_a_run_is_replaced_by_one_choice() -> None:
    positions = np.array([0, 1, 2, 5, 6, 9])
    outcomes = set()
    for seed in range(200):
        found = corrupt_wordpieces(
            [1] * 10, positions, rng(seed), mask=MASK, vocabulary=range(2000, 2100), per_run=True
        )
        kinds = ["mask" if i == MASK else "same" if i == 1 else "other" for i in found]
        assert len(set(kinds[:3])) == len(set(kinds[5:7])) == 1
        outcomes.add((kinds[0], kinds[5], kinds[9]))
    assert len(outcomes) > 5


def test_the_sentence_is_removed_nine_times_in_ten() -> None:
    sentences, stayed, queries = [[1, 2], [3], [4, 5, 6]], 0, []
    for seed in range(4000):
        query, block = make_inverse_cloze_pair(sentences, rng(seed))
        queries.append(sentences.index(query))
        rest = [sentence for sentence in sentences if sentence != query]
        assert block in ([1, 2, 3, 4, 5, 6], [piece for sentence in rest for piece in sentence])
        stayed += len(block) == 6
    assert stayed / 4000 == pytest.approx(0.1, abs=0.015)
    assert np.bincount(queries) / 4000 == pytest.approx(np.full(3, 1 / 3), abs=0.03)


def test_a_passage_of_one_sentence_keeps_it() -> None:
    assert make_inverse_cloze_pair([[1, 2]], rng(), keep_rate=0) == ([1, 2], [1, 2])
