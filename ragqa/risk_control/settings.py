"""Settings of the choice of a threshold."""

import math
from dataclasses import dataclass
from pathlib import Path

from ragqa.errors import BadInput

COUNT, RISK, MISSING = 300, 0.1, 0.5
"""Defaults: number of questions to make, risk, and share of questions that are asked without their documents."""
_ROUNDING = 1e-9
"""Tolerance, so that a risk of 0.1 needs 9 questions."""


@dataclass(frozen=True, kw_only=True)
class RiskSettings:
    """Questions that set the threshold of an index, and the risk to control.

    Raises:
        BadInput: a value is out of range.
    """

    questions: Path | None = None
    """File of questions; None to make questions from the passages of the index."""
    count: int = COUNT
    """Largest number of questions to make."""
    risk: float = RISK
    """Largest expected share of wrong answers among all questions, above 0 and below 1."""
    missing: float | None = None
    """Share of the time, from 0 to 1, that a question with an answer is asked without its documents.

    None stands for ``MISSING``, and for 0 with a file that has questions without an answer.
    """
    seed: int = 0
    """Seed of the sample of passages and words."""

    def __post_init__(self) -> None:
        if not 0 < self.risk < 1:
            raise BadInput(f"risk = {self.risk}: it must be above 0 and below 1, as 0.1 for 10 % wrong answers")
        if self.count < 1:
            raise BadInput(f"count = {self.count}: at least one question must be made")
        if self.missing is not None and not 0 <= self.missing <= 1:
            raise BadInput(f"missing = {self.missing}: it must be between 0 and 1")

    @property
    def needed_questions(self) -> int:
        """Smallest number N of questions for the risk: without any wrong answer, its bound is 1 / (N + 1)."""
        return max(1, math.ceil(1 / self.risk - 1 - _ROUNDING))
