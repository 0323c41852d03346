"""Prior over passages, through which retrieval scores contribute to reading.

Legend: K passages of a question.
"""

from collections.abc import Callable

import numpy as np

from ragqa.runtime.scorer import RAW
from ragqa.types import Hit

Prior = Callable[[list[Hit]], np.ndarray]
"""Function from K hits to their log-prior [K], up to a constant."""


def make_prior(name: str, weight: float = 1.0) -> Prior:
    """Return the function that turns the retrieval scores of hits into a log-prior.

    Args:
        name: ``RAW`` for the retrieval scores themselves, if the reader was trained with them (ORQA, section 4.1);
            ``SPREAD`` for standardized scores.
        weight: factor of standardized scores; not used for raw scores.
    """
    return _get_scores if name == RAW else lambda hits: weight * standardize_scores(hits)


def _get_scores(hits: list[Hit]) -> np.ndarray:
    return np.array([hit.score for hit in hits])


def standardize_scores(hits: list[Hit]) -> np.ndarray:
    """Return the difference of each hit's score from the best, in standard deviations [K].

    The values are 0 or less. Scores of different retrievers are comparable only in this form.
    """
    scores = _get_scores(hits)
    distances: np.ndarray = (scores - scores.max(initial=-np.inf)) / (scores.std() or 1.0)
    return distances
