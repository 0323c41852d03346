"""Passages drawn at random: how often an answer stands in a passage by chance."""

from zlib import crc32

import numpy as np

from ragqa.corpus.store import PassageStore
from ragqa.retrieval.base import Ranking


class Chance:
    """A ranker that knows nothing. What it draws depends on the question and the seed alone."""

    def __init__(self, passages: PassageStore, seed: int = 0) -> None:
        self._passages, self._seed = passages, seed

    def rank(self, questions: list[str], k: int) -> list[Ranking]:
        """``k`` rows for each question, all different."""
        return [self._drawn(question, k) for question in questions]

    def _drawn(self, question: str, k: int) -> Ranking:
        rng = np.random.default_rng([self._seed, crc32(question.encode())])
        rows = self._passages.live_rows(
            rng.choice(self._passages.live_count, min(k, self._passages.live_count), replace=False)
        )
        return Ranking(rows, -np.arange(len(rows), dtype=np.float32))
