"""Dense retrieval: questions are encoded, and their vectors searched for among those of the passages."""

from typing import Protocol

import numpy as np

from ragqa.errors import Mismatch
from ragqa.retrieval.base import Ranking, Rows, Scores, check_k
from ragqa.retrieval.vectors.mips import Mips
from ragqa.retrieval.vectors.store import exact_scores


class Encoder(Protocol):
    """What retrieval asks of an encoder."""

    width: int

    def encode_questions(self, texts: list[str]) -> np.ndarray:
        """Vectors [N, D] float32 of N questions."""
        ...


class DenseRanker:
    """Ranks passages by the inner product of their vectors with the question's."""

    def __init__(self, encoder: Encoder, mips: Mips) -> None:
        """Raises Mismatch where vectors of ``encoder`` do not fit the index."""
        if encoder.width != mips.width:
            raise Mismatch(f"the encoder's vectors are {encoder.width} wide, those of the index {mips.width}")
        self.encoder, self.mips = encoder, mips

    def rank(self, questions: list[str], k: int) -> list[Ranking]:
        """At most ``k`` rows for each question, best first.

        Raises:
            BadInput: ``k`` is less than 1.
        """
        check_k(k)
        return self.search(self.encode(questions), k) if questions else []

    def encode(self, questions: list[str]) -> np.ndarray:
        """Vectors [B, D] of the questions, for ``search`` and ``score``."""
        return self.encoder.encode_questions(questions)

    def search(self, queries_BD: np.ndarray, k: int) -> list[Ranking]:
        """At most ``k`` rows for each question vector, best first."""
        return self.mips.search(queries_BD, k)

    def score(self, query_D: np.ndarray, rows_K: Rows) -> Scores | None:
        """Scores [K] of given rows for one question vector; None where their vectors are not at hand."""
        return None if self.mips.vectors is None else exact_scores(self.mips.vectors, rows_K, query_D)
