"""What of retrieval's scores counts where passages are read.

Legend: K passages of a question.
"""

from collections.abc import Callable

import numpy as np

from ragqa.runtime.scorer import RAW
from ragqa.types import Hit


def prior_of(name: str, weight: float = 1.0) -> Callable[[list[Hit]], np.ndarray]:
    """What ``RAW`` or ``SPREAD`` (see ``runtime.scorer``) makes of hits: ``[K]``.

    ``weight`` is that of a standard deviation; a reader that learned with the scores themselves takes them as they are.
    """
    return _raw if name == RAW else lambda hits: weight * spread(hits)


def _raw(hits: list[Hit]) -> np.ndarray:
    """f(x, z), which the reader learned to add its own scores to (ORQA, section 4.1)."""
    return np.array([hit.score for hit in hits])


def spread(hits: list[Hit]) -> np.ndarray:
    """``[K]``: distances to the best score in standard deviations, 0 or less: retrieval scores come on any scale."""
    found = _raw(hits)
    distances: np.ndarray = (found - found.max(initial=-np.inf)) / (found.std() or 1.0)
    return distances
