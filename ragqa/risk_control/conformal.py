"""Choose a confidence threshold by conformal risk control.

Source: Angelopoulos et al. 2022, theorem 1.

An answer is given if its confidence reaches the threshold. The loss of a question is the weight, from 0 to 1, of its
answers that are given and wrong, so it never rises with the threshold. If the questions are exchangeable with a new
question, the expected loss of the new question is at most the risk.

Legend: M answers, N questions.
"""

import numpy as np
import numpy.typing as npt

_ROUNDING = 1e-9
"""Tolerance for rounding errors in sums of losses, so that 0.1 of 10 questions is one question."""


def choose_index_threshold(
    confidence_M: npt.ArrayLike, loss_M: npt.ArrayLike, questions: int, risk: float
) -> float | None:
    """Return the lowest threshold for which the bound on the expected loss is at most ``risk``.

    The bound is N / (N + 1) · mean loss + 1 / (N + 1).

    Args:
        confidence_M: [M] confidence of each answer. A question can have several weighted answers.
        loss_M: [M] loss of each answer if it is given; 0 if it is right. The losses of one question sum to at most 1.
        questions: number of questions N, including questions without an answer.
        risk: largest expected loss of a new question, between 0 and 1.

    Returns:
        The threshold, or None if the bound is above ``risk`` for every threshold at which an answer is given.
    """
    confidence, loss = np.asarray(confidence_M, np.float64), np.asarray(loss_M, np.float64)
    order = np.argsort(-confidence, kind="stable")
    is_too_risky = (np.cumsum(loss[order]) + 1) / (questions + 1) > risk + _ROUNDING
    if not is_too_risky.any():
        return 0.0 if len(confidence) else None
    # The first answer, by falling confidence, that makes the bound too large must stay below the threshold.
    threshold = float(np.nextafter(confidence[order][np.argmax(is_too_risky)], np.inf))
    return threshold if confidence.max() >= threshold else None
