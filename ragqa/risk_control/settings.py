"""Settings for choosing the confidence threshold of an index by risk control."""

import math
from dataclasses import dataclass
from pathlib import Path

from ragqa.errors import BadInput

COUNT, RISK, MISSING = 300, 0.1, 0.5
"""Defaults of ``RiskSettings.count``, ``risk`` and ``missing``."""
_ROUNDING = 1e-9
"""Tolerance for rounding errors, so that a risk of 0.1 needs 9 questions."""


@dataclass(frozen=True, kw_only=True)
class RiskSettings:
    """Settings for choosing the confidence threshold of an index by risk control.

    Raises:
        BadInput: a value is out of range.
    """

    questions: Path | None = None
    """File of questions; None to make questions from the passages of the index."""
    count: int = COUNT
    """Maximum number of questions to make."""
    risk: float = RISK
    """Largest expected share of wrong answers among all questions, above 0 and below 1."""
    missing: float | None = None
    """Assumed share, from 0 to 1, of questions that the documents do not answer.

    A question with an answer is asked over the whole index with the weight 1 - ``missing``, and without its documents
    with the weight ``missing``. None stands for ``MISSING``, or for 0 if some question has no answer.
    """
    seed: int = 0
    """Seed for sampling passages, sentences and words of the questions to make."""

    def __post_init__(self) -> None:
        if not 0 < self.risk < 1:
            raise BadInput(f"risk = {self.risk}: it must be above 0 and below 1, as 0.1 for 10 % wrong answers")
        if self.count < 1:
            raise BadInput(f"count = {self.count}: at least one question must be made")
        if self.missing is not None and not 0 <= self.missing <= 1:
            raise BadInput(f"missing = {self.missing}: it must be between 0 and 1")

    @property
    def needed_questions(self) -> int:
        """Smallest number of questions with which a threshold can have the risk.

        For N questions, the bound of ``choose_index_threshold`` is at least 1 / (N + 1).
        """
        return max(1, math.ceil(1 / self.risk - 1 - _ROUNDING))
