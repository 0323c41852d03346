"""Thresholds by conformal risk control: by hand, and the risk of fresh questions."""

import numpy as np
import pytest

from ragqa.errors import BadInput
from ragqa.risk_control.conformal import choose_index_threshold
from ragqa.risk_control.settings import RiskSettings

CONFIDENCE = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3]
WRONG = [0, 1, 0, 1, 1, 0, 1]


def test_a_threshold_by_hand() -> None:
    """With 9 questions and the risk 0.3, (wrong + 1) / 10 allows two wrong answers: those of 0.8 and 0.6."""
    threshold = choose_index_threshold(CONFIDENCE, WRONG, 9, 0.3)
    assert threshold == np.nextafter(0.5, 1)
    # 14 questions allow (0.3 · 15) - 1 = 3.5, so three wrong answers; 19 allow all four.
    assert choose_index_threshold(CONFIDENCE, WRONG, 14, 0.3) == np.nextafter(0.3, 1)
    assert choose_index_threshold(CONFIDENCE, WRONG, 19, 0.3) == 0.0
    # The order of the answers makes no difference.
    assert choose_index_threshold(CONFIDENCE[::-1], WRONG[::-1], 9, 0.3) == threshold


def test_answers_of_equal_confidence_are_given_together() -> None:
    """One wrong answer is allowed (2 / 10); of two with 0.7, none can be given."""
    assert choose_index_threshold([0.9, 0.7, 0.7, 0.6], [0, 1, 1, 0], 9, 0.2) == np.nextafter(0.7, 1)


def test_losses_are_shared_by_the_askings_of_a_question() -> None:
    """(0.5 + 0.5 + 1) / 10 is allowed, with the third half it is too much."""
    assert choose_index_threshold([0.9, 0.8, 0.7], [0.5, 0.5, 0.5], 9, 0.2) == np.nextafter(0.7, 1)


def test_there_is_no_threshold_if_no_answer_can_be_given() -> None:
    assert choose_index_threshold([0.9, 0.5], [1, 0], 9, 0.1) is None  # the surest answer is wrong: 2 / 10
    assert choose_index_threshold([0.9, 0.5], [0, 0], 8, 0.1) is None  # 1 / 9 without any wrong answer
    assert choose_index_threshold([0.9, 0.5], [0, 0], 9, 0.1) == 0.0
    assert choose_index_threshold([1.0, 0.5], [1, 0], 9, 0.1) is None
    assert choose_index_threshold([], [], 9, 0.1) is None


@pytest.mark.parametrize(("questions", "risk"), [(19, 0.2), (60, 0.1)])
def test_fresh_questions_have_the_risk(questions: int, risk: float) -> None:
    """The expected loss is at most the risk, and at least the risk - 2 / (N + 1) (theorem 2 of the paper)."""
    rng = np.random.default_rng(0)
    losses = []
    for _ in range(4000):
        confidence = rng.random(questions + 1)
        wrong = rng.random(questions + 1) > confidence**0.5  # half of them; the surer, the more often right
        threshold = choose_index_threshold(confidence[:-1], wrong[:-1], questions, risk)
        losses.append(threshold is not None and confidence[-1] >= threshold and wrong[-1])
    deviation = np.sqrt(risk * (1 - risk) / len(losses))
    assert risk - 2 / (questions + 1) - 3 * deviation <= np.mean(losses) <= risk + 3 * deviation


def test_questions_that_a_risk_needs() -> None:
    counts = {risk: RiskSettings(risk=risk).needed_questions for risk in (0.05, 0.1, 0.3, 0.5, 0.9)}
    assert counts == {0.05: 19, 0.1: 9, 0.3: 3, 0.5: 1, 0.9: 1}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"risk": 0.0}, "risk = 0.0: it must be above 0 and below 1"),
        ({"risk": 1.0}, "risk = 1.0"),
        ({"risk": float("nan")}, "risk = nan"),
        ({"count": 0}, "count = 0: at least one question"),
        ({"missing": 1.5}, "missing = 1.5: it must be between 0 and 1"),
    ],
)
def test_values_out_of_range_are_refused(values: dict[str, float], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        RiskSettings(**values)  # type: ignore[arg-type]
