"""The inverse cloze task: a sentence asks for the block it came from (ORQA, Lee et al. 2019, section 5)."""

from collections.abc import Sequence
from itertools import chain

import numpy as np

KEEP_RATE = 0.1
"""Share of the sentences that stay in their block, so that words that both share are learned, too."""


def make_inverse_cloze_pair(
    sentences: Sequence[Sequence[int]], rng: np.random.Generator, *, kept: float = KEEP_RATE
) -> tuple[list[int], list[int]]:
    """A sentence of a block, drawn at random, and the block: without the sentence but for a share ``kept``.

    A block of a single sentence keeps it: an empty one would say nothing.

    Args:
        sentences: of the block, in wordpieces; at least one.
        rng: source of randomness.
        kept: see above.
    """
    chosen = int(rng.integers(len(sentences)))
    stays = rng.random() < kept or len(sentences) == 1
    block = [sentence for number, sentence in enumerate(sentences) if stays or number != chosen]
    return list(sentences[chosen]), list(chain.from_iterable(block))


def drop_wordpieces(ids: Sequence[int], rng: np.random.Generator, share: float) -> list[int]:
    """A text without ``share`` of its wordpieces, as a question for it where it is a single sentence."""
    kept = max(1, round((1 - share) * len(ids)))
    return [ids[at] for at in np.sort(rng.choice(len(ids), kept, replace=False))] if ids else []
