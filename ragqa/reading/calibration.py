"""Confidence: how often an answer with this evidence was right on held-out questions.

A logistic regression (Platt 1999) from what the reader knows to the probability of an exact
match, fitted on questions whose answer the corpus holds and on questions whose document was
taken out of it. The coefficients lie beside the reader's weights in ``calibration.json``, and
with them what else is chosen on such questions: below which confidence to decline, and what
retrieval's scores count in reading.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ragqa.artefacts import CALIBRATION
from ragqa.errors import DamagedArtefact

BASIC = ("constant", "log-odds of weight", "span", "relevance")
"""Features of a reader that knows no more, and of a calibration that names none."""
_ALONE = ", one passage"
FEATURES = (
    "constant",
    "log-odds of weight",
    "span",
    "own relevance",
    "one passage",
    "passages read",
    "lead",
    "behind",
    "ahead",
    "passages that agree",
    f"log-odds of weight{_ALONE}",
    f"span{_ALONE}",
    f"own relevance{_ALONE}",
    f"lead{_ALONE}",
)
"""Of a span reader. Retrieval's scores count in standard deviations: they come on any scale. What speaks for an answer
says something else where no other passage competes with it: those of one passage are 0 where more were read."""
THRESHOLD = 0.2
"""Confidence below which a reader declines whose calibration names none."""


@dataclass(frozen=True)
class Evidence:
    """What the reader knows of an answer when it gives it."""

    weight: float
    """Probability of the merged answer among all spans of all passages."""
    span: float
    """The reader's own score of its best span."""
    relevance: float
    """Score of the passage, or of the window of it, that the span stands in, retrieval's included."""
    own: float = 0.0
    """The same without retrieval's."""
    read: int = 1
    """Passages that were read."""
    lead: float = 0.0
    """Log of the ratio of its weight to that of the best answer that says something else."""
    behind: float = 0.0
    """Standard deviations of retrieval's scores between its passage and the best one; 0 or less."""
    ahead: float = 0.0
    """Those between the best one and the mean of all; 0 or more."""
    agree: int = 1
    """Passages whose best span says the same, of those that have one among the best of all."""

    def features(self, names: Sequence[str] = BASIC) -> np.ndarray:
        """``[F]``: those of these names; KeyError where one is none. Weights and their ratio are bounded."""
        weight = min(max(self.weight, 1e-4), 1 - 1e-4)
        values = {
            "constant": 1.0,
            "log-odds of weight": np.log(weight / (1 - weight)),
            "span": self.span,
            "relevance": self.relevance,
            "own relevance": self.own,
            "one passage": float(self.read == 1),
            "passages read": np.log(self.read),
            "lead": min(max(self.lead, -10.0), 10.0),
            "behind": self.behind,
            "ahead": self.ahead,
            "passages that agree": np.log1p(self.agree),
        }
        values |= {f"{name}{_ALONE}": value * (self.read == 1) for name, value in values.items()}
        return np.array([values[name] for name in names])


@dataclass(frozen=True)
class Calibration:
    """Coefficients of the regression, where they come from, and what else was chosen there."""

    coefficients: tuple[float, ...]
    fitted_on: str = "nothing: the raw probability of the answer"
    answers: int = 0
    """To whatever was asked, however often."""
    features: tuple[str, ...] = BASIC
    """What the coefficients are of."""
    threshold: float = THRESHOLD
    """Confidence below which a question is declined where nobody says another."""
    prior: float = 1.0
    """What a standard deviation of retrieval's scores counts in reading (see ``reading.prior``)."""

    @property
    def identity(self) -> dict[str, Any]:
        """All of it, by the names that its parts had first: what readers are known by must not change with these."""
        row = asdict(self)
        row["questions"] = row.pop("answers")
        return row

    def confidence(self, evidence: Evidence) -> float:
        """Probability in [0, 1] that the answer is right."""
        return float(1 / (1 + np.exp(-np.dot(self.coefficients, evidence.features(self.features)))))

    @classmethod
    def load(cls, folder: Path, *, threshold: float = THRESHOLD) -> "Calibration":
        """What lies in ``folder``; a reader without a calibration gives its raw probability, and has ``threshold``.

        Raises:
            DamagedArtefact: it is not what ``save`` writes; a file of an earlier version, which says nothing of
                features, threshold or prior, means their defaults.
        """
        file = folder / CALIBRATION
        if not file.is_file():
            return replace(UNCALIBRATED, threshold=threshold)
        try:
            row = json.loads(file.read_text())
            made = cls(
                tuple(map(float, row["coefficients"])),
                row["fitted_on"],
                row["answers"] if "answers" in row else row["questions"],  # what earlier versions called them
                tuple(row.get("features", BASIC)),
                float(row.get("threshold", THRESHOLD)),
                float(row.get("prior", 1.0)),
            )
            made._check()
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedArtefact(f"{file} is damaged: {error!r}") from error
        return made

    def _check(self) -> None:
        """Raise ValueError, or KeyError, where it gives no confidence."""
        Evidence(0.5, 0.0, 0.0).features(self.features)
        if len(self.coefficients) != len(self.features):
            raise ValueError(f"{len(self.coefficients)} coefficients of {len(self.features)} features")
        if not all(map(isfinite, (*self.coefficients, self.prior))) or not 0 <= self.threshold <= 1:
            raise ValueError("a number that cannot be meant")

    def save(self, folder: Path) -> None:
        """Write ``calibration.json``, aside and renamed."""
        aside = folder / f".{CALIBRATION}"
        aside.write_text(json.dumps(asdict(self), indent=1) + "\n")
        aside.replace(folder / CALIBRATION)


UNCALIBRATED = Calibration((0.0, 1.0, 0.0, 0.0))
"""The raw probability of the answer."""


def fit(
    evidence: Sequence[Evidence],
    right: npt.ArrayLike,
    fitted_on: str,
    *,
    features: Sequence[str] = BASIC,
    counts: npt.ArrayLike | None = None,
    ridge: float = 1e-3,
) -> Calibration:
    """Maximum likelihood by Newton's method, with a little ridge for separable data.

    Args:
        evidence: of ``N`` answers.
        right: whether each is, 0 or 1, or the probability.
        fitted_on: what they are to.
        features: what of the evidence counts.
        counts: how much each answer does; by default 1.
        ridge: of the squares of the coefficients, an answer; of the constant a thousandth of it.
    """
    x_NF = np.stack([each.features(features) for each in evidence])
    y_N = np.asarray(right, dtype=np.float64)
    count_N = np.ones(len(y_N)) if counts is None else np.asarray(counts, dtype=np.float64)
    beta_F = np.zeros(x_NF.shape[1])
    penalty = ridge * count_N.sum() * np.eye(len(beta_F))
    penalty[0, 0] *= 1e-3  # answers that are all right, or all wrong, have no likeliest constant
    for _ in range(50):
        p_N = 1 / (1 + np.exp(-x_NF @ beta_F))
        gradient = x_NF.T @ (count_N * (y_N - p_N)) - penalty @ beta_F
        hessian = (x_NF * (count_N * p_N * (1 - p_N))[:, None]).T @ x_NF + penalty
        step = np.linalg.solve(hessian, gradient)
        beta_F += step
        if np.abs(step).max() < 1e-9:
            break
    return Calibration(tuple(float(b) for b in beta_F), fitted_on, len(y_N), tuple(features))
