"""Prior over passages: the contribution of retrieval scores to reading.

Legend: K passages of a question.
"""

from collections.abc import Callable

import numpy as np

from ragqa.runtime.scorer import RAW
from ragqa.types import Hit

Prior = Callable[[list[Hit]], np.ndarray]
"""A function from K hits to their log-prior [K], up to a constant."""


def make_prior(name: str, weight: float = 1.0) -> Prior:
    """Return the prior of a reader.

    Args:
        name: ``RAW`` for the scores themselves, to which the reader learned to add its own (ORQA, section 4.1);
            ``SPREAD`` for standardized scores.
        weight: factor of standardized scores; raw ones are always used as in training.
    """
    return _get_scores if name == RAW else lambda hits: weight * standardize_scores(hits)


def _get_scores(hits: list[Hit]) -> np.ndarray:
    return np.array([hit.score for hit in hits])


def standardize_scores(hits: list[Hit]) -> np.ndarray:
    """Return the distances [K] to the best score in standard deviations, 0 or less.

    Retrieval scores come on any scale, so only their distances can mean the same for every retriever.
    """
    scores = _get_scores(hits)
    distances: np.ndarray = (scores - scores.max(initial=-np.inf)) / (scores.std() or 1.0)
    return distances
