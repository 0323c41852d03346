"""Calibration of confidences: the probability that an answer is right, given its evidence.

A logistic regression (Platt 1999) maps evidence to the probability of a right answer. It is fitted on held-out
questions. ``calibration.json``, next to the reader's weights, stores the coefficients and three values chosen on the
same questions: the confidence below which the reader declines, the weight of retrieval scores in reading, and the
margin by which the early layer selects windows.

Legend: N answers, F features.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ragqa.artefacts import CALIBRATION, write_text_whole
from ragqa.errors import DamagedArtefact

BASIC_FEATURES = ("constant", "log-odds of weight", "span", "relevance")
"""Default features of ``fit_calibration``, and of calibration files that name no features."""
SPAN_FEATURES = (
    "constant",
    "log-odds of weight",
    "own relevance",
    "one passage",
    "passages read",
    "lead",
    "behind",
    "ahead",
    "passages that agree",
)
"""Features of span readers in ``pipelines.calibrate``.

Features from retrieval scores are in standard deviations, since every retriever has its own scale.
"""
ABSENCE_FEATURES = (*SPAN_FEATURES, "most answerable", "most relevant")
"""Features of a span reader that was trained on passages without an answer."""
THRESHOLD = 0.2
"""Confidence below which a reader declines if its calibration names no threshold."""
_RIDGE = 1e-3
"""Ridge penalty on the coefficients, per answer; the penalty on the constant is a thousandth of it."""


@dataclass(frozen=True)
class Evidence:
    """Evidence of a reader for an answer, from which its confidence is computed."""

    weight: float
    """Probability of the merged answer among all spans of the windows read to the end; p(y|x) of a generated answer."""
    span: float
    """Score of the answer's best span without relevance; log-probability per token of a generated answer."""
    relevance: float
    """Relevance of the window with the span, with the retrieval prior; for a generated answer, the largest posterior
    of a passage."""
    own_relevance: float = 0.0
    """Relevance of the window with the span, without the retrieval prior."""
    passages_read: int = 1
    lead: float = 0.0
    """Log of the ratio of the answer's weight to the weight of the best answer that does not overlap it."""
    behind_best: float = 0.0
    """Retrieval score of the passage with the best span minus the best score, in standard deviations; 0 or less."""
    best_ahead: float = 0.0
    """Best retrieval score minus the mean score, in standard deviations; 0 or more."""
    passages_agreeing: int = 1
    """Number of passages whose best candidate span is this answer."""
    most_answerable: float = 0.0
    """Log-odds of all spans of a window together against "no answer", maximum over the windows read to the end."""
    most_relevant: float = 0.0
    """Maximum of the relevance over the windows read to the end, without the retrieval prior."""

    def compute_features(self, names: Sequence[str] = BASIC_FEATURES) -> np.ndarray:
        """Return the features [F] in the order of ``names``.

        Raises:
            KeyError: a name is not the name of a feature.
        """
        weight = min(max(self.weight, 1e-4), 1 - 1e-4)
        values = {
            "constant": 1.0,
            "log-odds of weight": np.log(weight / (1 - weight)),
            "span": self.span,
            "relevance": self.relevance,
            "own relevance": self.own_relevance,
            "one passage": float(self.passages_read == 1),
            "passages read": np.log(self.passages_read),
            "lead": min(max(self.lead, -10.0), 10.0),
            "behind": self.behind_best,
            "ahead": self.best_ahead,
            "passages that agree": np.log1p(self.passages_agreeing),
            "most answerable": self.most_answerable,
            "most relevant": self.most_relevant,
        }
        return np.array([values[name] for name in names])


class FeatureSource(Protocol):
    """Evidence from which features are computed."""

    def compute_features(self, names: Sequence[str]) -> np.ndarray:
        """Return the features [F] in the order of ``names``; raise KeyError for an unknown name."""
        ...


@dataclass(frozen=True)
class Calibration:
    """Coefficients of the regression, with the settings that were chosen on the same questions."""

    coefficients: tuple[float, ...]
    """Coefficient of each of ``features``."""
    fitted_on: str = "nothing: the raw probability of the answer"
    """Description of the questions of the fit."""
    answers: int = 0
    """Number of answers in the fit; a question can have several."""
    features: tuple[str, ...] = BASIC_FEATURES
    threshold: float = THRESHOLD
    """Confidence below which a question is declined by default."""
    prior: float = 1.0
    """Weight of standardized retrieval scores in reading (``ragqa.reading.prior.make_prior``)."""
    early_margin: float | None = None
    """Maximum distance below the question's best early relevance at which a window is read to the end.

    The distance is in nats. The ``MIN_READ_ON`` best windows are always read to the end; None reads all windows.
    """

    @property
    def identity(self) -> dict[str, Any]:
        """Fields for the fingerprint of a reader, named so that old fingerprints stay valid."""
        row = asdict(self)
        row["questions"] = row.pop("answers")  # the name in earlier versions
        if row["early_margin"] is None:
            del row["early_margin"]
        return row

    def compute_confidence(self, evidence: FeatureSource) -> float:
        """Return the probability, from 0 to 1, that an answer with this evidence is right."""
        coefficients = np.clip(self.coefficients, -1e100, 1e100)  # no product or sum overflows
        log_odds = np.dot(coefficients, evidence.compute_features(self.features))
        return float(1 / (1 + np.exp(-np.clip(log_odds, -700, 700))))  # exp overflows beyond 709

    @classmethod
    def load(cls, folder: Path, *, threshold: float = THRESHOLD) -> "Calibration":
        """Read the calibration of the reader in ``folder``.

        Args:
            folder: directory of the reader.
            threshold: threshold of a reader without a calibration, whose confidence is the raw probability.

        Raises:
            DamagedArtefact: as for ``load_for``.
        """
        return cls.load_for(Evidence(0.5, 0.0, 0.0), folder) or replace(UNCALIBRATED, threshold=threshold)

    @classmethod
    def load_for(cls, example: FeatureSource, folder: Path) -> "Calibration | None":
        """Read the calibration in a folder; return None if there is no file.

        Args:
            example: evidence that has all features of the calibration.
            folder: folder of ``calibration.json``.

        Raises:
            DamagedArtefact: the file is not a calibration, or ``example`` lacks one of its features.
        """
        file = folder / CALIBRATION
        if not file.is_file():
            return None
        try:
            row = json.loads(file.read_text())
            calibration = cls(
                tuple(map(float, row["coefficients"])),
                row["fitted_on"],
                row["answers"] if "answers" in row else row["questions"],  # the name in earlier versions
                tuple(row.get("features", BASIC_FEATURES)),  # this and the next two are absent in earlier versions
                float(row.get("threshold", THRESHOLD)),
                float(row.get("prior", 1.0)),
                None if (margin := row.get("early_margin")) is None else float(margin),
            )
            calibration._check(example)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise DamagedArtefact(f"{file} is damaged: {error!r:.200}") from error
        return calibration

    def _check(self, example: FeatureSource) -> None:
        example.compute_features(self.features)
        if len(self.coefficients) != len(self.features):
            raise ValueError(f"{len(self.coefficients)} coefficients of {len(self.features)} features")
        if not all(map(isfinite, (*self.coefficients, self.prior))) or not 0 <= self.threshold <= 1:
            raise ValueError("a coefficient or the prior is not finite, or the threshold is not from 0 to 1")
        if self.early_margin is not None and not self.early_margin >= 0:
            raise ValueError("early_margin is below 0")

    def save(self, folder: Path) -> None:
        """Write ``calibration.json`` into a folder, completely or not at all."""
        write_text_whole(folder / CALIBRATION, json.dumps(asdict(self), indent=1) + "\n")


UNCALIBRATED = Calibration((0.0, 1.0, 0.0, 0.0))
"""Calibration that returns the raw probability of an answer."""


def fit_calibration(
    evidence: Sequence[FeatureSource],
    right: npt.ArrayLike,
    fitted_on: str,
    *,
    features: Sequence[str] = BASIC_FEATURES,
    counts: npt.ArrayLike | None = None,
) -> Calibration:
    """Fit a calibration by maximum likelihood (Newton's method) with a small ridge penalty.

    Args:
        evidence: evidence of N answers.
        right: [N], 0 or 1 for a wrong or right answer, or a probability.
        fitted_on: description of the questions, for the file.
        features: names of the features to use; the first is the constant.
        counts: [N], weight of each answer; 1 by default.

    Returns:
        The calibration, with the default threshold and prior.
    """
    x_NF = np.stack([item.compute_features(features) for item in evidence])
    y_N = np.asarray(right, dtype=np.float64)
    count_N = np.ones(len(y_N)) if counts is None else np.asarray(counts, dtype=np.float64)
    beta_F = np.zeros(x_NF.shape[1])
    penalty = _RIDGE * count_N.sum() * np.eye(len(beta_F))
    penalty[0, 0] *= 1e-3  # not 0: if all answers are right, or all wrong, the constant would grow without limit
    for _ in range(50):
        p_N = 1 / (1 + np.exp(-x_NF @ beta_F))
        gradient = x_NF.T @ (count_N * (y_N - p_N)) - penalty @ beta_F
        hessian = (x_NF * (count_N * p_N * (1 - p_N))[:, None]).T @ x_NF + penalty
        step = np.linalg.solve(hessian, gradient)
        beta_F += step
        if np.abs(step).max() < 1e-9:
            break
    return Calibration(tuple(beta_F.tolist()), fitted_on, len(y_N), tuple(features))
