"""Scores of an answer against gold answers: pure functions (rules: SQuAD 1.1, NQ-open)."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from ragqa.text import normalize_answer

__all__ = ["exact_match", "f1", "normalize_answer"]


def exact_match(prediction: str | None, answers: Sequence[str], *, unicode: Literal["NFD"] | None = "NFD") -> bool:
    """Whether the normalised prediction equals one of the normalised answers; None never does.

    ``unicode="NFD"`` is the rule of ORQA, REALM and NQ-open; None that of SQuAD 1.1 and DPR.
    """
    if prediction is None:
        return False
    said = normalize_answer(prediction, unicode=unicode)
    return any(said == normalize_answer(answer, unicode=unicode) for answer in answers)


def f1(prediction: str | None, answers: Sequence[str]) -> float:
    """Best bag-of-tokens overlap with one of the answers, in [0, 1] (SQuAD 1.1).

    An empty side gives 0, even where ``exact_match`` gives True, as in the official script.
    """
    if prediction is None:
        return 0.0
    said = normalize_answer(prediction).split()
    return max((_overlap(said, normalize_answer(answer).split()) for answer in answers), default=0.0)


def _overlap(said: list[str], gold: list[str]) -> float:
    common = sum((Counter(said) & Counter(gold)).values())
    if not common:
        return 0.0
    precision, recall = common / len(said), common / len(gold)
    return 2 * precision * recall / (precision + recall)
