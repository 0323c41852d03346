"""Which wordpieces a masked language model has to guess, and what stands in their place.

A masking chooses positions; ``corrupt`` puts something else there. All randomness comes from the generator that is
given, so that a batch is a pure function of its seed. Positions are those of a text's own wordpieces, before
[CLS] and [SEP] are put around them.

Legend: L wordpieces of a text, W words.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]
"""Of wordpieces, rising."""

RATE = 0.15
"""Share of the wordpieces that are guessed (BERT, Devlin et al. 2019, section 3.1)."""
LONGEST, STOP = 10, 0.2
"""Of a span in words, and the chance that it ends after each (SpanBERT, Joshi et al. 2020, section 3.1)."""


def sample_wordpieces(length: int, rng: np.random.Generator, rate: float = RATE) -> Positions:
    """A share ``rate`` of ``length`` wordpieces, at least one, each as likely as the next (BERT's masking)."""
    return np.sort(rng.choice(length, count_masked(length, rate), replace=False))


def sample_whole_words(words: Sequence[int | None], rng: np.random.Generator, rate: float = RATE) -> Positions:
    """Whole words in random order, as far as the share ``rate`` of the wordpieces goes (BERT's later masking).

    A word that is longer than what is left is passed over; if none fits, the first one is taken all the same.

    Args:
        words: ``[L]`` number of the word of each wordpiece, None where it is part of none.
        rng: source of randomness.
        rate: share of the wordpieces.
    """
    runs = find_words(words)
    return _taken(len(words), runs, rng.permutation(len(runs)).tolist(), rate)


def sample_spans(
    words: Sequence[int | None],
    rng: np.random.Generator,
    rate: float = RATE,
    *,
    stop: float = STOP,
    longest: int = LONGEST,
) -> Positions:
    """Runs of whole words, until the share ``rate`` of the wordpieces is reached (SpanBERT, section 3.1).

    Lengths in words are geometric with parameter ``stop``, drawn anew above ``longest`` (mean 3.8); the last run ends
    with the share, in a word if need be, as in the released code. Runs begin at any word that is not masked yet.
    """
    runs, share = find_words(words), count_masked(len(words), rate)
    masked = np.zeros(len(words), bool)
    for first in rng.permutation(len(runs)).tolist():
        left = share - int(masked.sum())
        if not left:
            break
        length = _geometric(rng, stop, longest)
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
    """The wordpieces of ``count`` salient spans, drawn at random; none where there is none (REALM, section 3.4).

    Args:
        offsets: ``[L]`` first and last character of each wordpiece.
        salient_spans: first and last character of names, dates and the like: see ``ragqa.pretraining.salient``.
        rng: source of randomness.
        count: spans to mask; REALM masks one.
    """
    edges = np.asarray(offsets, np.int64).reshape(-1, 2)
    chosen = rng.permutation(len(salient_spans))[:count]
    masked = np.zeros(len(edges), bool)
    for start, end in (salient_spans[each] for each in chosen):
        masked |= (edges[:, 0] < end) & (edges[:, 1] > start)
    return np.flatnonzero(masked)


def corrupt(
    ids: Sequence[int],
    positions: Positions,
    rng: np.random.Generator,
    *,
    mask: int,
    others: Sequence[int] | npt.NDArray[np.int64] = (),
    random: float = 0.1,
    kept: float = 0.1,
    together: bool = False,
) -> list[int]:
    """``ids`` with something else at ``positions``: the mask, a random wordpiece, or what was there.

    BERT's shares are 80, 10 and 10 %, for each position by itself; SpanBERT draws once for a run of positions that
    follow each other. With ``random=0, kept=0`` there is nothing but masks, as in REALM.

    Args:
        ids: ``[L]`` wordpieces.
        positions: of those that are guessed.
        rng: source of randomness.
        mask: id of the mask.
        others: ids to draw random wordpieces from; needed unless ``random`` is 0.
        random: share of the positions that get one.
        kept: share of the positions that stay.
        together: draw once for a run of positions.
    """
    if random and not len(others):
        raise ValueError("others are needed to draw random wordpieces from")
    found = list(ids)
    draws = rng.random(len(positions))
    replacements = np.asarray(others)[rng.integers(len(others), size=len(positions))] if len(others) else draws
    if together:
        runs = np.cumsum(np.diff(positions, prepend=positions[:1]) > 1)
        draws = draws[np.searchsorted(runs, runs)]
    for position, draw, other in zip(positions.tolist(), draws, replacements, strict=True):
        if draw < 1 - random - kept:
            found[position] = mask
        elif draw < 1 - kept:
            found[position] = int(other)
    return found


def find_words(words: Sequence[int | None]) -> list[tuple[int, int]]:
    """First wordpiece of each word, and the one after its last; a wordpiece of no word is one of its own."""
    return list(_runs(words))


def count_masked(length: int, rate: float) -> int:
    """Wordpieces that are a share ``rate`` of ``length``, at least one of them where there is any."""
    return min(length, max(1, round(rate * length)))


def _runs(words: Sequence[int | None]) -> Iterator[tuple[int, int]]:
    first = 0
    for at in range(1, len(words) + 1):
        if at == len(words) or words[at] != words[first] or words[at] is None:
            yield first, at
            first = at


def _taken(length: int, runs: list[tuple[int, int]], order: list[int], rate: float) -> Positions:
    left, masked = count_masked(length, rate), np.zeros(length, bool)
    for first, last in (runs[each] for each in order):
        if last - first <= left:
            masked[first:last] = True
            left -= last - first
        if not left:
            break
    if order and not masked.any():
        first, last = runs[order[0]]
        masked[first:last] = True
    return np.flatnonzero(masked)


def _geometric(rng: np.random.Generator, stop: float, longest: int) -> int:
    while (length := int(rng.geometric(stop))) > longest:
        pass
    return length
