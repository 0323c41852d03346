"""Inverse cloze task: retrieve the passage from which a sentence was taken.

Source: ORQA (Lee et al. 2019), section "Inverse Cloze Task".
"""

from collections.abc import Sequence

import numpy as np

KEEP_RATE = 0.1
"""Share of sentences that stay in their passage, so that the model also learns from shared words."""


def make_inverse_cloze_pair(
    sentences: Sequence[Sequence[int]], rng: np.random.Generator, *, keep_rate: float = KEEP_RATE
) -> tuple[list[int], list[int]]:
    """Sample a sentence of a passage as the question, and usually remove it from the passage.

    A passage of one sentence keeps it, since nothing can be learned from an empty passage.

    Args:
        sentences: wordpiece ids of each sentence of the passage; at least one sentence.
        rng: random generator.
        keep_rate: probability that the sentence stays in the passage.

    Returns:
        Wordpiece ids of the question and of the passage.
    """
    position = int(rng.integers(len(sentences)))
    is_kept = rng.random() < keep_rate or len(sentences) == 1
    others = [sentence for number, sentence in enumerate(sentences) if is_kept or number != position]
    return list(sentences[position]), [token for sentence in others for token in sentence]


def drop_wordpieces(ids: Sequence[int], rng: np.random.Generator, share: float) -> list[int]:
    """Drop random wordpieces of a text and return the others.

    Args:
        ids: wordpiece ids of the text.
        rng: random generator.
        share: share of the wordpieces to drop, from 0 to 1; at least one wordpiece stays.

    Returns:
        Ids of the other wordpieces, in their order; empty if the text is empty.
    """
    count = max(1, round((1 - share) * len(ids)))
    return [ids[position] for position in np.sort(rng.choice(len(ids), count, replace=False))] if ids else []
