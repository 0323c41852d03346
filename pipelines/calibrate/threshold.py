"""Threshold of confidence below which a calibrated reader declines to answer.

Legend: N answers.
"""

import numpy as np

MAX_DECLINED = 0.05
"""Maximum share of right answers to decline."""


def choose_reader_threshold(confidence_N: np.ndarray, right_N: np.ndarray) -> float:
    """Return the highest threshold that declines few right answers (``MAX_DECLINED``).

    Args:
        confidence_N: confidence of each answer.
        right_N: 1 for a right answer; other values count as wrong.

    Returns:
        The threshold, from 0 to 1, rounded down to hundredths; 0 if no answer is right.
    """
    right = np.sort(confidence_N[right_N == 1])
    # Rounded down, so that rounding declines no further right answer.
    return float(np.floor(100 * right[int(MAX_DECLINED * len(right))]) / 100) if len(right) else 0.0
