"""Denoising tasks for generators: T5's span corruption and BART's text infilling.

Each task first draws spans from a random generator, then builds what the model reads and writes. Everything works on
token ids of a bare text: the caller adds special tokens, for example the end of sequence.

Legend: L tokens of a text, S spans.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ragqa.pretraining.masking import count_masked

Spans = list[tuple[int, int]]
"""First token, and the one after the last, of sorted spans that do not overlap."""

RATE, MEAN = 0.15, 3.0
"""T5: share of dropped tokens, mean length of a span (Raffel et al. 2020, 3.1.4 and 3.3.4)."""
BART_RATE, BART_MEAN = 0.3, 3.0
"""BART: share of masked tokens, mean length of a span (Lewis et al. 2020, 5.1 and 2.2)."""


def sample_t5_spans(length: int, rng: np.random.Generator, rate: float = RATE, mean: float = MEAN) -> Spans:
    """Draw T5's spans; all choices of the right numbers of spans and tokens are equally likely.

    Like ``random_spans_noise_mask`` of the released code: intact and dropped spans alternate and are never empty, so
    that a text begins with an intact token and ends with a dropped one. A text of one token stays whole.

    Args:
        length: L, tokens of the text.
        rng: source of randomness.
        rate: share of the tokens to drop; round(rate · L) of them, at least 1 and at most L - 1.
        mean: mean length of a span in tokens; there are round(dropped / mean) spans, at least 1.
    """
    dropped, count = count_t5_spans(length, rate, mean)
    if not count:
        return []
    kept_S, dropped_S = (_split_randomly(total, count, rng) for total in (length - dropped, dropped))
    ends_S = np.cumsum(kept_S + dropped_S)
    return list(zip((ends_S - dropped_S).tolist(), ends_S.tolist(), strict=True))


def count_t5_spans(length: int, rate: float = RATE, mean: float = MEAN) -> tuple[int, int]:
    """Return the numbers of tokens and spans that T5 drops from a text.

    Args:
        length: L, tokens of the text.
        rate: share of the tokens to drop.
        mean: mean length of a span in tokens.
    """
    if length < 2:
        return 0, 0
    dropped = min(count_masked(length, rate), length - 1)
    return dropped, min(max(1, round(dropped / mean)), length - dropped)


def corrupt_spans(ids: Sequence[int], spans: Spans, sentinels: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return input and target of T5's span corruption (Raffel et al. 2020, figure 2).

    The input has one sentinel in place of each span. The target has each sentinel followed by its span, and one more
    sentinel as the end. (The released code leaves that last one out and ends with </s> alone.)

    Args:
        ids: ``[L]`` tokens.
        spans: the spans to drop, none empty.
        sentinels: at least S + 1 ids that stand for nothing else, in the order of their use.

    Raises:
        ValueError: there are too few sentinels.
    """
    marks = list(sentinels[: len(spans) + 1])
    if len(marks) <= len(spans):
        raise ValueError(f"{len(spans)} spans need {len(spans) + 1} sentinels, not {len(marks)}")
    target = [token for mark, (start, end) in zip(marks, spans, strict=False) for token in (mark, *ids[start:end])]
    return _replace_spans(ids, spans, marks), [*target, marks[-1]]


def sample_bart_spans(length: int, rng: np.random.Generator, rate: float = BART_RATE, mean: float = BART_MEAN) -> Spans:
    """Draw BART's spans, of Poisson lengths; some are empty or touch (Lewis et al. 2020, 2.2).

    Args:
        length: L, tokens of the text.
        rng: source of randomness.
        rate: share of the tokens to mask; the last span is cut to hit round(rate · L), at least one token.
        mean: mean of the Poisson distribution, in tokens.
    """
    masked, lengths = count_masked(length, rate), list[int]()
    while left := masked - sum(lengths):
        lengths.append(min(int(rng.poisson(mean)), left))
    count = len(lengths)
    length_S = rng.permutation(np.array(lengths, np.int64))  # otherwise the last span would always be the cut one
    place_S = np.sort(rng.choice(length - masked + count, count, replace=False))  # among kept tokens and spans
    ends_S = place_S - np.arange(count) + np.cumsum(length_S)
    return list(zip((ends_S - length_S).tolist(), ends_S.tolist(), strict=True))


def infill_spans(ids: Sequence[int], spans: Spans, mask: int) -> list[int]:
    """Return the input of BART's text infilling: a mask for each span, even an empty one."""
    return _replace_spans(ids, spans, [mask] * len(spans))


def permute_sentences(sentences: Sequence[Sequence[int]], rng: np.random.Generator) -> list[int]:
    """Join sentences in random order, which BART learns to restore (Lewis et al. 2020, 2.2)."""
    return [token for number in rng.permutation(len(sentences)) for token in sentences[number]]


def _replace_spans(ids: Sequence[int], spans: Spans, marks: Sequence[int]) -> list[int]:
    replaced, after = [], 0
    for (start, end), mark in zip(spans, marks, strict=False):
        replaced += [*ids[after:start], mark]
        after = end
    return [*replaced, *ids[after:]]


def _split_randomly(total: int, count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return ``count`` positive lengths that sum to ``total``, each split equally likely."""
    cuts = np.sort(rng.choice(total - 1, count - 1, replace=False)) + 1
    return np.diff(cuts, prepend=0, append=total)
