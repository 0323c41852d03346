"""Statistics of scores: intervals, a paired test, risk and coverage, calibration.

Shapes: N questions, T thresholds. Random numbers have a fixed seed, so that a report can be reproduced exactly.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
"""Array of float64 values."""

SAMPLES = 10_000
"""Number of samples of a bootstrap or of a randomisation test."""
_BINS = 10
"""Number of bins of confidence."""
_MAX_SAMPLED = 2_000_000
"""Maximum number of values sampled at a time (16 MB)."""


@dataclass(frozen=True)
class Interval:
    """Mean with its 95 % percentile-bootstrap interval, from ``low`` to ``high``."""

    value: float
    low: float
    high: float


def compute_bootstrap_interval(values_N: npt.ArrayLike) -> Interval:
    """Return the mean of N scores with its 95 % interval, by resampling questions (Efron 1979).

    Args:
        values_N: [N] score of each question.

    Raises:
        ValueError: there are no values.
    """
    values = np.asarray(values_N, np.float64)
    if not len(values):
        raise ValueError("no values to take a mean of")
    distinct, counts = np.unique(values, return_counts=True)
    # Scores have few distinct values, so it is fast to sample how often each value occurs in a resample of N questions.
    random, means = np.random.default_rng(0), np.empty(SAMPLES)
    chunk = max(1, _MAX_SAMPLED // len(distinct))
    for start in range(0, SAMPLES, chunk):
        size = min(chunk, SAMPLES - start)
        counts_of_samples = random.multinomial(len(values), counts / len(values), size=size)
        means[start : start + size] = counts_of_samples @ distinct / len(values)
    low, high = np.percentile(means, [2.5, 97.5])
    return Interval(float(values.mean()), float(low), float(high))


def compute_wilson_interval(share: float, questions: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of questions, also for 0 and 1 (Wilson 1927).

    Args:
        share: share of the questions, from 0 to 1.
        questions: number of questions, at least 1.

    Returns:
        The lower and the upper end of the interval.
    """
    z2 = 1.959964**2 / questions
    middle, half = share + z2 / 2, math.sqrt(z2 * share * (1 - share) + z2 * z2 / 4)
    return (middle - half) / (1 + z2), (middle + half) / (1 + z2)


@dataclass(frozen=True)
class PairedTest:
    """Mean difference of two systems on the same questions, with its interval and p-value."""

    difference: Interval
    """Mean of the first system's score minus the second system's."""
    p: float
    """Two-sided p-value: probability of so large a difference, in either direction, for exchangeable systems."""


def compare_paired(ours_N: npt.ArrayLike, theirs_N: npt.ArrayLike) -> PairedTest:
    """Test the mean difference of paired scores by randomisation (Noreen 1989).

    If all differences are -1, 0 or 1, the test is exact (McNemar's test).

    Args:
        ours_N: [N] scores of the first system.
        theirs_N: [N] scores of the second system, on the same questions.

    Raises:
        ValueError: there are no scores, or their numbers differ.
    """
    ours, theirs = np.asarray(ours_N, np.float64), np.asarray(theirs_N, np.float64)
    if ours.shape != theirs.shape:
        raise ValueError(f"{len(ours)} and {len(theirs)} scores cannot be paired")
    difference = ours - theirs
    changed = difference[difference != 0]
    if np.isin(changed, (-1, 1)).all():
        p = _sign_test(int((changed > 0).sum()), len(changed))
    else:
        p = _randomisation_test(changed)
    return PairedTest(compute_bootstrap_interval(difference), p)


def _sign_test(wins: int, changed: int) -> float:
    """Return the two-sided p-value of ``wins`` heads in ``changed`` tosses of a fair coin."""
    ways, tail = 1, 1
    for n in range(1, min(wins, changed - wins) + 1):
        ways = ways * (changed - n + 1) // n  # "changed choose n" from "changed choose n - 1"
        tail += ways
    return min(1.0, float(Fraction(2 * tail, 2**changed)))


def _randomisation_test(changed: Values) -> float:
    """Return the two-sided p-value of differences by a randomisation test.

    It is the share of sums with random signs that are at least as far from 0 as the observed sum, which counts as one.
    """
    random = np.random.default_rng(0)
    observed, extreme, chunk = abs(changed.sum()), 0, 500
    for _ in range(SAMPLES // chunk):
        signs = random.integers(0, 2, (chunk, len(changed)), dtype=np.int8) * 2 - 1
        extreme += int((np.abs(signs @ changed) >= observed - 1e-9).sum())
    return (extreme + 1) / (SAMPLES + 1)


def compute_risk_coverage(confidence_N: npt.ArrayLike, right_N: npt.ArrayLike) -> tuple[Values, Values]:
    """Return coverage and risk at each threshold of confidence (El-Yaniv & Wiener 2010).

    Coverage is the share of answers with at least the confidence of the threshold. Risk is the share of wrong answers
    among these.

    Args:
        confidence_N: [N] confidence of each answer.
        right_N: [N] 1 for right answers, 0 for wrong ones.

    Returns:
        [T] coverage and [T] risk for the T distinct confidences, by rising coverage.
    """
    confidence, right = np.asarray(confidence_N, np.float64), np.asarray(right_N, np.float64)
    order = np.argsort(-confidence, kind="stable")
    answered = np.arange(1, len(order) + 1)
    risk = 1 - np.cumsum(right[order]) / answered
    last_of_equals = np.append(np.diff(confidence[order]) != 0, True)[: len(order)]
    return answered[last_of_equals] / max(1, len(order)), risk[last_of_equals]


def compute_area_under_risk(coverage: Values, risk: Values) -> float:
    """Return the area under the risk–coverage curve (AURC, Geifman & El-Yaniv 2017).

    Arguments: the results of ``compute_risk_coverage``.
    """
    return float(np.sum(np.diff(coverage, prepend=0.0) * risk))


def compute_accuracy_at_coverage(coverage: Values, risk: Values, share: float) -> float | None:
    """Return the share of right answers among the most confident answers.

    Args:
        coverage: [T] first result of ``compute_risk_coverage``.
        risk: [T] second result of ``compute_risk_coverage``.
        share: coverage at which the accuracy is measured, from 0 to 1.

    Returns:
        Accuracy at the first coverage that reaches ``share``; None if no coverage does.
    """
    point = int(np.searchsorted(coverage, share - 1e-12))
    return float(1 - risk[point]) if point < len(risk) else None


def compute_refusal_rates(thresholds_N: npt.ArrayLike, confidence_M: npt.ArrayLike) -> tuple[Values, Values]:
    """Return the share of answers that are declined at each threshold of confidence.

    An answer is declined if its confidence is below the threshold. The shares of unanswerable and of answerable
    questions, at the same thresholds, make the ROC curve of a detector of unanswerable questions.

    Args:
        thresholds_N: [N] thresholds, in any order.
        confidence_M: [M] confidence of each answer.

    Returns:
        [T] distinct thresholds in rising order, with infinity at the end, and [T] shares of declined answers.
    """
    thresholds = np.append(np.unique(np.asarray(thresholds_N, np.float64)), np.inf)
    confidence = np.sort(np.asarray(confidence_M, np.float64))
    return thresholds, np.searchsorted(confidence, thresholds, side="left") / max(1, len(confidence))


@dataclass(frozen=True)
class ReliabilityBin:
    """Answers with a confidence from ``low`` to ``high`` (exclusive, unless ``high`` is 1)."""

    low: float
    high: float
    questions: int
    """Number of answers."""
    confidence: float
    """Mean confidence of the answers."""
    right: float
    """Share of the answers that are right."""


def compute_reliability(confidence_N: npt.ArrayLike, right_N: npt.ArrayLike) -> list[ReliabilityBin]:
    """Sort answers by confidence into ten bins of equal width.

    Args:
        confidence_N: [N] confidence of each answer, from 0 to 1.
        right_N: [N] 1 for right answers, 0 for wrong ones.

    Returns:
        Bins in rising order of confidence; bins without answers are left out.
    """
    confidence, right = np.asarray(confidence_N, np.float64), np.asarray(right_N, np.float64)
    place = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    table = []
    for n in np.unique(place).tolist():
        sure, is_right = confidence[place == n], right[place == n]
        table.append(ReliabilityBin(n / _BINS, (n + 1) / _BINS, len(sure), float(sure.mean()), float(is_right.mean())))
    return table


def compute_calibration_error(confidence_N: npt.ArrayLike, right_N: npt.ArrayLike) -> float:
    """Return the expected calibration error over ten bins of equal width (Guo et al. 2017).

    The error is 0 if there are no answers. Arguments: as for ``compute_reliability``.
    """
    table = compute_reliability(confidence_N, right_N)
    total = sum(b.questions for b in table)
    return sum(abs(b.confidence - b.right) * b.questions for b in table) / max(1, total)


def compute_percentiles(seconds_N: npt.ArrayLike) -> dict[str, float]:
    """Return the mean and percentiles of durations.

    Args:
        seconds_N: [N] durations in seconds, at least one.

    Returns:
        ``mean``, ``p50`` (the median), ``p95`` and ``p99`` in seconds.
    """
    seconds = np.asarray(seconds_N, np.float64)
    p50, p95, p99 = np.percentile(seconds, [50, 95, 99])
    return {"mean": float(seconds.mean()), "p50": float(p50), "p95": float(p95), "p99": float(p99)}
