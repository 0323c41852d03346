"""Masking for masked language models: select and replace the wordpieces to predict.

The ``sample_*`` functions select positions, where ``corrupt_wordpieces`` replaces the wordpieces. All randomness comes
from the given generator, so that a batch depends only on its seed. Positions count wordpieces without [CLS] and [SEP].

Legend: L wordpieces of a text.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]
"""Sorted positions of wordpieces in a text."""

RATE = 0.15
"""Share of the wordpieces to predict (BERT, Devlin et al. 2019, section 3.1)."""
LONGEST_SPAN, STOP_RATE = 10, 0.2
"""SpanBERT: longest span in words, and probability that a span ends after a word (Joshi et al. 2020, 3.1)."""


def sample_wordpieces(length: int, rng: np.random.Generator, rate: float = RATE) -> Positions:
    """Return ``count_masked(length, rate)`` random positions below ``length`` (BERT)."""
    return np.sort(rng.choice(length, count_masked(length, rate), replace=False))


def sample_whole_words(words: Sequence[int | None], rng: np.random.Generator, rate: float = RATE) -> Positions:
    """Return the positions of random whole words (BERT's whole word masking).

    Words are taken in random order. A word that would exceed the share is skipped; if all words would exceed it, the
    first one in this order is masked.

    Args:
        words: ``[L]`` number of each wordpiece's word; None for a wordpiece outside words, which counts as a word.
        rng: random generator.
        rate: largest share of the wordpieces to mask.
    """
    runs, left = find_words(words), count_masked(len(words), rate)
    shuffled = [runs[number] for number in rng.permutation(len(runs))]
    chosen = []
    for first, last in shuffled:
        if last - first <= left:
            chosen.append((first, last))
            left -= last - first
    pieces = [piece for run in chosen or shuffled[:1] for piece in range(*run)]
    return np.array(sorted(pieces), np.int64)


def sample_spans(words: Sequence[int | None], rng: np.random.Generator, rate: float = RATE) -> Positions:
    """Return the positions of random spans of words (SpanBERT).

    Span lengths have a geometric distribution with parameter ``STOP_RATE``; lengths above ``LONGEST_SPAN`` are sampled
    again, so that the mean is 3.8 words. A span starts at any word that is not masked yet. The last span is cut where
    the share is reached, even within a word, as in the released code. Source: Joshi et al. 2020, section 3.1.

    Args:
        words: as for ``sample_whole_words``.
        rng: random generator.
        rate: share of the wordpieces to mask.
    """
    runs, share = find_words(words), count_masked(len(words), rate)
    masked = np.zeros(len(words), bool)
    for first in rng.permutation(len(runs)).tolist():
        left = share - int(masked.sum())
        if not left:
            break
        while (length := int(rng.geometric(STOP_RATE))) > LONGEST_SPAN:
            pass
        if not masked[runs[first][0]]:
            last = min(first + length, len(runs)) - 1
            run = np.arange(runs[first][0], runs[last][1])
            masked[run[~masked[run]][:left]] = True
    return np.flatnonzero(masked)


def sample_salient_spans(
    offsets: Sequence[tuple[int, int]],
    salient_spans: Sequence[tuple[int, int]],
    rng: np.random.Generator,
    count: int = 1,
) -> Positions:
    """Sample salient spans and return the positions of their wordpieces (REALM, section 3.4).

    Args:
        offsets: ``[L]`` first and last character (exclusive) of each wordpiece.
        salient_spans: first and last character (exclusive) of each name, date and number, as
            ``ragqa.pretraining.salient`` finds them.
        rng: random generator.
        count: number of spans to mask; REALM masks one.

    Returns:
        The positions; empty if there are no salient spans.
    """
    edges = np.asarray(offsets, np.int64).reshape(-1, 2)
    numbers = rng.permutation(len(salient_spans))[:count]
    masked = np.zeros(len(edges), bool)
    for start, end in (salient_spans[number] for number in numbers):
        masked |= (edges[:, 0] < end) & (edges[:, 1] > start)
    return np.flatnonzero(masked)


def corrupt_wordpieces(
    ids: Sequence[int],
    positions: Positions,
    rng: np.random.Generator,
    *,
    mask: int,
    vocabulary: Sequence[int] | npt.NDArray[np.int64] = (),
    random_rate: float = 0.1,
    keep_rate: float = 0.1,
    per_run: bool = False,
) -> list[int]:
    """Return a text in which the wordpieces to predict are masked, replaced or unchanged.

    The default shares are BERT's: 80 % masks, 10 % random wordpieces and 10 % unchanged. With
    ``random_rate=0, keep_rate=0`` every position gets the mask (REALM).

    Args:
        ids: ``[L]`` wordpiece ids of the text.
        positions: positions of the wordpieces to predict.
        rng: random generator.
        mask: id of the mask token.
        vocabulary: ids of the wordpieces to sample from; needed unless ``random_rate`` is 0.
        random_rate: share of the positions that get a random wordpiece.
        keep_rate: share of the positions that stay unchanged.
        per_run: True to decide once for each run of adjacent positions (SpanBERT), not for each position.

    Raises:
        ValueError: ``vocabulary`` is empty but ``random_rate`` is not 0.
    """
    if random_rate and not len(vocabulary):
        raise ValueError("pass a vocabulary from which to sample random wordpieces, or random_rate=0")
    corrupted = list(ids)
    draws = rng.random(len(positions))
    # Sample for all positions, so that the random generator advances equally whatever is replaced.
    others = np.asarray(vocabulary)[rng.integers(len(vocabulary), size=len(positions))] if len(vocabulary) else draws
    if per_run:
        runs = np.cumsum(np.diff(positions, prepend=positions[:1]) > 1)
        draws = draws[np.searchsorted(runs, runs)]
    for position, draw, other in zip(positions.tolist(), draws, others, strict=True):
        if draw < 1 - random_rate - keep_rate:
            corrupted[position] = mask
        elif draw < 1 - keep_rate:
            corrupted[position] = int(other)
    return corrupted


def find_words(words: Sequence[int | None]) -> list[tuple[int, int]]:
    """Return the first and last wordpiece (exclusive) of each word; each None counts as a word."""
    starts = [n for n in range(len(words)) if not n or words[n] is None or words[n] != words[n - 1]]
    return list(pairwise([*starts, len(words)])) if starts else []


def count_masked(length: int, rate: float) -> int:
    """Return the number of wordpieces to mask in a text.

    It is round(rate · length), but at least 1 unless the text is empty.
    """
    return min(length, max(1, round(rate * length)))
