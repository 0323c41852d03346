"""Inverse cloze task: a sentence is the question for the passage it comes from (ORQA, Lee et al. 2019, section 5)."""

from collections.abc import Sequence
from itertools import chain

import numpy as np

KEEP_RATE = 0.1
"""Share of the sentences that stay in their passage, so that the model also learns from shared words."""


def make_inverse_cloze_pair(
    sentences: Sequence[Sequence[int]], rng: np.random.Generator, *, keep_rate: float = KEEP_RATE
) -> tuple[list[int], list[int]]:
    """Draw a sentence of a passage as its question, and remove it from the passage most of the time.

    A passage of a single sentence keeps it, since an empty one would teach nothing.

    Args:
        sentences: the passage's sentences in wordpieces; at least one.
        rng: source of randomness.
        keep_rate: probability that the sentence stays in the passage.

    Returns:
        The wordpieces of the question and those of the passage.
    """
    position = int(rng.integers(len(sentences)))
    stays = rng.random() < keep_rate or len(sentences) == 1
    passage = [sentence for number, sentence in enumerate(sentences) if stays or number != position]
    return list(sentences[position]), list(chain.from_iterable(passage))


def drop_wordpieces(ids: Sequence[int], rng: np.random.Generator, share: float) -> list[int]:
    """Return a text without a random ``share`` of its wordpieces; at least one stays."""
    count = max(1, round((1 - share) * len(ids)))
    return [ids[position] for position in np.sort(rng.choice(len(ids), count, replace=False))] if ids else []
