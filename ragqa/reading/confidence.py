"""Confidence: how often an answer with this evidence was right on held-out questions.

A logistic regression (Platt 1999) from what the reader knows to the probability of an exact
match, fitted on questions whose answer the corpus holds and on questions whose document was
taken out of it. The coefficients lie beside the reader's weights in ``calibration.json``.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ragqa.errors import DamagedArtefact

FILE = "calibration.json"
FEATURES = ("constant", "log-odds of weight", "span", "relevance")


@dataclass(frozen=True)
class Evidence:
    """What the reader knows of an answer when it gives it."""

    weight: float
    """Probability of the merged answer among all spans of all passages."""
    span: float
    """The reader's own score of its best span."""
    relevance: float
    """Score of the passage, or of the window of it, that the span stands in, retrieval's included."""

    def features(self) -> np.ndarray:
        """``[4]``: a constant, the log-odds of the weight (bounded), span, relevance."""
        weight = min(max(self.weight, 1e-4), 1 - 1e-4)
        return np.array([1.0, np.log(weight / (1 - weight)), self.span, self.relevance])


@dataclass(frozen=True)
class Calibration:
    """Coefficients of the regression, and where they come from."""

    coefficients: tuple[float, ...]
    fitted_on: str = "nothing: the raw probability of the answer"
    questions: int = 0

    def confidence(self, evidence: Evidence) -> float:
        """Probability in [0, 1] that the answer is right."""
        return float(1 / (1 + np.exp(-np.dot(self.coefficients, evidence.features()))))

    @classmethod
    def load(cls, folder: Path) -> "Calibration":
        """What lies in ``folder``; a reader without a calibration gives its raw probability."""
        file = folder / FILE
        if not file.is_file():
            return cls((0.0, 1.0, 0.0, 0.0))
        try:
            row = json.loads(file.read_text())
            return cls(tuple(map(float, row["coefficients"])), row["fitted_on"], row["questions"])
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedArtefact(f"{file} is damaged: {error!r}") from error

    def save(self, folder: Path) -> None:
        """Write ``calibration.json``."""
        (folder / FILE).write_text(json.dumps(asdict(self), indent=1) + "\n")


def fit(evidence: list[Evidence], right: list[bool], fitted_on: str, *, ridge: float = 1e-3) -> Calibration:
    """Maximum likelihood by Newton's method, with a little ridge for separable data."""
    x_NF = np.stack([e.features() for e in evidence])
    y_N = np.asarray(right, dtype=np.float64)
    beta_F = np.zeros(x_NF.shape[1])
    penalty = ridge * len(y_N) * np.eye(len(beta_F))
    penalty[0, 0] = 0.0
    for _ in range(50):
        p_N = 1 / (1 + np.exp(-x_NF @ beta_F))
        gradient = x_NF.T @ (y_N - p_N) - penalty @ beta_F
        hessian = (x_NF * (p_N * (1 - p_N))[:, None]).T @ x_NF + penalty
        step = np.linalg.solve(hessian, gradient)
        beta_F += step
        if np.abs(step).max() < 1e-9:
            break
    return Calibration(tuple(float(b) for b in beta_F), fitted_on, len(y_N))
