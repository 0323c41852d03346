"""Threshold of confidence by conformal risk control.

Source: Angelopoulos et al. 2022, "Conformal risk control", theorem 1. The loss of a question is 1 if its answer is
given (its confidence reaches the threshold) and wrong, else 0, so it does not rise with the threshold. If the questions
are exchangeable with a new one, the expected loss of the new question is at most the risk.

Legend: M answers, N questions.
"""

import numpy as np
import numpy.typing as npt

_ROUNDING = 1e-9
"""Tolerance of sums of losses, so that 0.1 of 10 questions is one question."""


def choose_threshold(confidence_M: npt.ArrayLike, loss_M: npt.ArrayLike, questions: int, risk: float) -> float | None:
    """Return the lowest threshold whose bound on the expected loss is at most ``risk``.

    The bound is N / (N + 1) · mean loss + 1 / (N + 1). An answer is given if its confidence is at least the threshold.

    Args:
        confidence_M: [M] confidence of each answer. A question can have several answers.
        loss_M: [M] loss if the answer is given, 0 if it is right; the losses of a question have at most the sum 1.
        questions: number of questions N, also of those without an answer.
        risk: largest expected loss of a new question.

    Returns:
        The threshold, or None if no threshold at which a question is answered has this risk.
    """
    confidence, loss = np.asarray(confidence_M, np.float64), np.asarray(loss_M, np.float64)
    order = np.argsort(-confidence, kind="stable")
    is_too_risky = (np.cumsum(loss[order]) + 1) / (questions + 1) > risk + _ROUNDING
    if not is_too_risky.any():
        return 0.0 if len(confidence) else None
    # All answers down to the first that is too many are given if the threshold is above the confidence of that one.
    threshold = float(np.nextafter(confidence[order][np.argmax(is_too_risky)], np.inf))
    return threshold if confidence.max() >= threshold else None
