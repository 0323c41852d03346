"""Inverse cloze task: a sentence asks for its passage (ORQA, Lee et al. 2019, section 5)."""

from collections.abc import Sequence

import numpy as np

KEEP_RATE = 0.1
"""Share of sentences left in their passage: the model should also learn from shared words."""


def make_inverse_cloze_pair(
    sentences: Sequence[Sequence[int]], rng: np.random.Generator, *, keep_rate: float = KEEP_RATE
) -> tuple[list[int], list[int]]:
    """Draw a sentence of a passage as its question, and mostly remove it from the passage.

    A passage of a single sentence keeps it, since an empty one would teach nothing.

    Args:
        sentences: the passage's sentences in wordpieces; at least one.
        rng: source of randomness.
        keep_rate: probability that the sentence stays in the passage.

    Returns:
        The wordpieces of the question, and the wordpieces of the passage.
    """
    position = int(rng.integers(len(sentences)))
    is_kept = rng.random() < keep_rate or len(sentences) == 1
    others = [sentence for number, sentence in enumerate(sentences) if is_kept or number != position]
    return list(sentences[position]), [token for sentence in others for token in sentence]


def drop_wordpieces(ids: Sequence[int], rng: np.random.Generator, share: float) -> list[int]:
    """Return a text without a random ``share`` of its wordpieces; at least one stays."""
    count = max(1, round((1 - share) * len(ids)))
    return [ids[position] for position in np.sort(rng.choice(len(ids), count, replace=False))] if ids else []
