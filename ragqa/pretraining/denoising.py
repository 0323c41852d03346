"""Denoising tasks for generators: T5's span corruption and BART's text infilling.

Each task first samples spans, then replaces them. All functions work on token ids without special tokens, which the
caller adds.

Legend: L tokens of a text, S spans.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ragqa.pretraining.masking import count_masked

Spans = list[tuple[int, int]]
"""First and last token (exclusive) of each span; spans are sorted and do not overlap."""

RATE, MEAN = 0.15, 3.0
"""T5: share of dropped tokens, and mean span length in tokens (Raffel et al. 2020, 3.1.4 and 3.3.4)."""
BART_RATE, BART_MEAN = 0.3, 3.0
"""BART: share of masked tokens, and mean span length in tokens (Lewis et al. 2020, 5.1 and 2.2)."""


def sample_t5_spans(length: int, rng: np.random.Generator, rate: float = RATE, mean: float = MEAN) -> Spans:
    """Sample the spans that T5's span corruption drops from a text.

    The length determines the numbers of dropped tokens and of spans; all divisions into spans are equally likely. Kept
    and dropped spans alternate and are never empty, as in ``random_spans_noise_mask`` of the released code. So a text
    begins with a kept token and ends with a dropped one. A text of fewer than two tokens has no spans.

    Args:
        length: length of the text in tokens, L.
        rng: random generator.
        rate: share of the tokens to drop: round(rate · L) tokens, at least 1 and at most L - 1.
        mean: mean length of a span in tokens: there are round(dropped / mean) spans, at least 1 and at most as many as
            kept tokens.
    """
    dropped, count = count_t5_spans(length, rate, mean)
    if not count:
        return []
    kept_S, dropped_S = (_split_randomly(total, count, rng) for total in (length - dropped, dropped))
    ends_S = np.cumsum(kept_S + dropped_S)
    return list(zip((ends_S - dropped_S).tolist(), ends_S.tolist(), strict=True))


def count_t5_spans(length: int, rate: float = RATE, mean: float = MEAN) -> tuple[int, int]:
    """Return the numbers of tokens and spans that ``sample_t5_spans`` drops.

    Arguments: as there.
    """
    if length < 2:
        return 0, 0
    dropped = min(count_masked(length, rate), length - 1)
    return dropped, min(max(1, round(dropped / mean)), length - dropped)


def corrupt_spans(ids: Sequence[int], spans: Spans, sentinels: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the input and target of T5's span corruption (Raffel et al. 2020, figure 2).

    The input has a sentinel in place of each span. The target has each sentinel followed by its span, and a final
    sentinel, which T5's released code leaves out.

    Args:
        ids: ``[L]`` token ids of the text.
        spans: spans to drop, none of them empty.
        sentinels: at least S + 1 token ids without another meaning, in the order of their use.

    Raises:
        ValueError: there are too few sentinels.
    """
    marks = list(sentinels[: len(spans) + 1])
    if len(marks) <= len(spans):
        raise ValueError(f"{len(spans)} spans need {len(spans) + 1} sentinels, not {len(marks)}")
    target = [token for mark, (start, end) in zip(marks, spans, strict=False) for token in (mark, *ids[start:end])]
    return _replace_spans(ids, spans, marks), [*target, marks[-1]]


def sample_bart_spans(length: int, rng: np.random.Generator, rate: float = BART_RATE, mean: float = BART_MEAN) -> Spans:
    """Sample the spans that BART's text infilling masks (Lewis et al. 2020, section 2.2).

    Span lengths have a Poisson distribution; the length sampled last is cut to reach the share of masked tokens. Spans
    may be empty or adjacent.

    Args:
        length: length of the text in tokens, L.
        rng: random generator.
        rate: share of the tokens to mask: exactly round(rate · L) tokens, at least 1.
        mean: mean of the Poisson distribution in tokens.
    """
    masked, lengths = count_masked(length, rate), list[int]()
    while left := masked - sum(lengths):
        lengths.append(min(int(rng.poisson(mean)), left))
    count = len(lengths)
    length_S = rng.permutation(np.array(lengths, np.int64))  # so that the cut span is not always the last in the text
    place_S = np.sort(rng.choice(length - masked + count, count, replace=False))  # among kept tokens and spans
    ends_S = place_S - np.arange(count) + np.cumsum(length_S)
    return list(zip((ends_S - length_S).tolist(), ends_S.tolist(), strict=True))


def infill_spans(ids: Sequence[int], spans: Spans, mask: int) -> list[int]:
    """Return the input of BART's text infilling, with one mask in place of each span.

    Args:
        ids: ``[L]`` token ids of the text.
        spans: spans to mask; an empty span also gets a mask.
        mask: id of the mask token.
    """
    return _replace_spans(ids, spans, [mask] * len(spans))


def permute_sentences(sentences: Sequence[Sequence[int]], rng: np.random.Generator) -> list[int]:
    """Join the token ids of sentences in random order (BART, Lewis et al. 2020, section 2.2)."""
    return [token for number in rng.permutation(len(sentences)) for token in sentences[number]]


def _replace_spans(ids: Sequence[int], spans: Spans, marks: Sequence[int]) -> list[int]:
    replaced, after = [], 0
    for (start, end), mark in zip(spans, marks, strict=False):
        replaced += [*ids[after:start], mark]
        after = end
    return [*replaced, *ids[after:]]


def _split_randomly(total: int, count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return ``count`` positive lengths that sum to ``total``; all splits are equally likely."""
    cuts = np.sort(rng.choice(total - 1, count - 1, replace=False)) + 1
    return np.diff(cuts, prepend=0, append=total)
