"""Texts with parts missing, and what a sequence-to-sequence model has to write of them: T5's spans, BART's infilling.

Which spans go is drawn first, from the generator that is given; what the model reads and writes follows from them. All
of it is on ids of tokens, before anything is put around a text: an end of sequence is the business of whoever knows
the model.

Legend: L tokens of a text, S spans.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from ragqa.pretraining.masking import count_masked

Spans = list[tuple[int, int]]
"""First token, and the one after the last, of spans that do not overlap, in order."""

RATE, MEAN = 0.15, 3.0
"""Share of the tokens that T5 drops, and the mean length of a span (Raffel et al. 2020, sections 3.1.4 and 3.3.4)."""
INFILLED, POISSON = 0.3, 3.0
"""Share of the tokens that BART masks, and the mean length of a span (Lewis et al. 2020, sections 5.1 and 2.2)."""


def sample_t5_spans(length: int, rng: np.random.Generator, rate: float = RATE, mean: float = MEAN) -> Spans:
    """T5's random spans (``random_spans_noise_mask``): all choices of as many, as long in all, are equally likely.

    Of L tokens round(rate · L) are dropped, at least 1 and at most L - 1, in round(dropped / mean) spans, at least 1.
    Kept and dropped stretches alternate, none empty: a text begins with a kept token and ends with a dropped one.
    A text of one token stays whole, as it does there. Halves are rounded to even.
    """
    dropped, count = count_t5_spans(length, rate, mean)
    if not count:
        return []
    kept_S, dropped_S = (_segments(total, count, rng) for total in (length - dropped, dropped))
    ends_S = np.cumsum(kept_S + dropped_S)
    return list(zip((ends_S - dropped_S).tolist(), ends_S.tolist(), strict=True))


def count_t5_spans(length: int, rate: float = RATE, mean: float = MEAN) -> tuple[int, int]:
    """Tokens that ``sample_t5_spans`` drops of a text of ``length``, and spans that they make."""
    if length < 2:
        return 0, 0
    dropped = min(count_masked(length, rate), length - 1)
    return dropped, min(max(1, round(dropped / mean)), length - dropped)


def corrupt_spans(ids: Sequence[int], spans: Spans, sentinels: Sequence[int]) -> tuple[list[int], list[int]]:
    """What T5 reads and what it writes (Raffel et al. 2020, section 3.1.4 and figure 2).

    A sentinel stands in place of each span, another for each; the target is each span behind its sentinel, and one
    more sentinel, which marks the end. (The released code leaves that one out and marks the end by </s> alone.)

    Args:
        ids: ``[L]`` tokens.
        spans: those that are dropped, none empty.
        sentinels: at least S + 1 ids that stand for nothing else, in the order in which they are used.
    """
    marks = list(sentinels[: len(spans) + 1])
    if len(marks) <= len(spans):
        raise ValueError(f"{len(spans)} spans need {len(spans) + 1} sentinels, not {len(marks)}")
    target = chain.from_iterable([mark, *ids[start:end]] for mark, (start, end) in zip(marks, spans, strict=False))
    return _replaced(ids, spans, marks), [*target, marks[-1]]


def sample_bart_spans(length: int, rng: np.random.Generator, rate: float = INFILLED, mean: float = POISSON) -> Spans:
    """BART's spans: lengths are Poisson with mean ``mean``, empty ones among them (Lewis et al. 2020, section 2.2).

    Lengths are drawn until they hold the share ``rate`` of the tokens (to the nearest, at least one), and the last one
    is cut to hold exactly that. Then spans and the tokens that stay are put in an order of which each is as likely as
    the next; spans may touch.
    """
    masked, lengths = count_masked(length, rate), []
    left = masked
    while left:
        lengths.append(min(int(rng.poisson(mean)), left))
        left -= lengths[-1]
    count = len(lengths)
    length_S = rng.permutation(np.array(lengths, np.int64))  # else the one that was cut would always be the last
    place_S = np.sort(rng.choice(length - masked + count, count, replace=False))  # among kept tokens and spans
    ends_S = place_S - np.arange(count) + np.cumsum(length_S)
    return list(zip((ends_S - length_S).tolist(), ends_S.tolist(), strict=True))


def infill_spans(ids: Sequence[int], spans: Spans, mask: int) -> list[int]:
    """What BART reads: one mask in place of each span, one more where the span is empty. It writes the whole text."""
    return _replaced(ids, spans, [mask] * len(spans))


def permute_sentences(sentences: Sequence[Sequence[int]], rng: np.random.Generator) -> list[int]:
    """Sentences in random order, as one text (Lewis et al. 2020, section 2.2); BART writes them in the old one."""
    return list(chain.from_iterable(sentences[each] for each in rng.permutation(len(sentences)).tolist()))


def _replaced(ids: Sequence[int], spans: Spans, marks: Sequence[int]) -> list[int]:
    found, after = [], 0
    for (start, end), mark in zip(spans, marks, strict=False):
        found += [*ids[after:start], mark]
        after = end
    return [*found, *ids[after:]]


def _segments(total: int, count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """``count`` lengths of at least 1 that sum up to ``total``: each way to cut it as likely as the next."""
    cuts = np.sort(rng.choice(total - 1, count - 1, replace=False)) + 1
    return np.diff(cuts, prepend=0, append=total)
