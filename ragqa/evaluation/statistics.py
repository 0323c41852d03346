"""What figures are worth: intervals, a paired test, risk against coverage, calibration, percentiles.

Shapes: N questions. All sampling starts from a fixed seed, so that a report is made twice the same.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

SAMPLES = 10_000
"""Resamples of a bootstrap or a randomisation test."""
_DRAWN = 2_000_000
"""Numbers drawn at a time: 16 MB."""


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % percentile-bootstrap interval."""

    value: float
    low: float
    high: float


def bootstrap(values_N: npt.ArrayLike) -> Interval:
    """The mean of N values with its 95 % interval, questions resampled (Efron 1979).

    Raises:
        ValueError: there are no values.
    """
    values = np.asarray(values_N, np.float64)
    if not len(values):
        raise ValueError("no values to take a mean of")
    distinct, counts = np.unique(values, return_counts=True)
    # Drawing N questions is drawing how often each distinct value occurs among them.
    random, means = np.random.default_rng(0), np.empty(SAMPLES)
    chunk = max(1, _DRAWN // len(distinct))
    for at in range(0, SAMPLES, chunk):
        size = min(chunk, SAMPLES - at)
        drawn = random.multinomial(len(values), counts / len(values), size=size)
        means[at : at + size] = drawn @ distinct / len(values)
    low, high = np.percentile(means, [2.5, 97.5])
    return Interval(float(values.mean()), float(low), float(high))


def wilson(share: float, questions: int) -> tuple[float, float]:
    """The 95 % interval of a share of questions (Wilson 1927), which is no point where none or all are right."""
    z2 = 1.959964**2 / questions
    middle, half = share + z2 / 2, math.sqrt(z2 * share * (1 - share) + z2 * z2 / 4)
    return (middle - half) / (1 + z2), (middle + half) / (1 + z2)


def bootstrap_ratio(above_N: npt.ArrayLike, below_N: npt.ArrayLike) -> Interval:
    """The sum of N values over the sum of N others with its 95 % interval, both resampled together; 0 over 0 is 0.

    Precision, recall and F1 over many texts are such ratios: of what was found right, to what was found.

    Raises:
        ValueError: no values, or not as many of each.
    """
    above, below = np.asarray(above_N, np.float64), np.asarray(below_N, np.float64)
    if not len(above) or len(above) != len(below):
        raise ValueError(f"{len(above)} and {len(below)} values make no ratio")
    random, ratios = np.random.default_rng(0), np.empty(SAMPLES)
    chunk = max(1, _DRAWN // len(above))
    for at in range(0, SAMPLES, chunk):
        drawn = random.multinomial(len(above), np.full(len(above), 1 / len(above)), size=min(chunk, SAMPLES - at))
        ratios[at : at + chunk] = (drawn @ above) / np.maximum(drawn @ below, 1e-12)
    low, high = np.percentile(ratios, [2.5, 97.5])
    return Interval(float(above.sum() / max(below.sum(), 1e-12)), float(low), float(high))


@dataclass(frozen=True)
class Paired:
    """The mean difference of two systems on the same questions, its 95 % interval, and its p-value."""

    difference: Interval
    p: float
    """Probability of so large a difference, on either side, if the systems were exchangeable on every question."""


def paired(ours_N: npt.ArrayLike, theirs_N: npt.ArrayLike) -> Paired:
    """Test ``ours - theirs`` by randomisation (Noreen 1989): exact for 0/1 scores, where it is McNemar's test.

    Raises:
        ValueError: no values, or not as many of each.
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
    return Paired(bootstrap(difference), p)


def _sign_test(wins: int, changed: int) -> float:
    """Two-sided probability of at most as even a split of ``changed`` fair coins."""
    fewer = min(wins, changed - wins)
    ways, tail = 1, 1
    for n in range(1, fewer + 1):
        ways = ways * (changed - n + 1) // n
        tail += ways
    return min(1.0, float(Fraction(2 * tail, 2**changed)))


def _randomisation_test(changed: Values) -> float:
    """Share of random assignments of the signs whose sum is as far from 0, this one included."""
    random = np.random.default_rng(0)
    observed, extreme, chunk = abs(changed.sum()), 0, 500
    for _ in range(SAMPLES // chunk):
        signs = random.integers(0, 2, (chunk, len(changed)), dtype=np.int8) * 2 - 1
        extreme += int((np.abs(signs @ changed) >= observed - 1e-9).sum())
    return (extreme + 1) / (SAMPLES + 1)


def risk_coverage(confidence_N: npt.ArrayLike, right_N: npt.ArrayLike) -> tuple[Values, Values]:
    """Coverage and risk for every threshold: share of questions answered, share of those answered wrongly.

    Questions are answered from the most confident on; those of equal confidence together
    (El-Yaniv & Wiener 2010).
    """
    confidence, right = np.asarray(confidence_N, np.float64), np.asarray(right_N, np.float64)
    order = np.argsort(-confidence, kind="stable")
    answered = np.arange(1, len(order) + 1)
    risk = 1 - np.cumsum(right[order]) / answered
    last_of_equals = np.append(np.diff(confidence[order]) != 0, True)[: len(order)]
    return answered[last_of_equals] / max(1, len(order)), risk[last_of_equals]


def area_under_risk(coverage: Values, risk: Values) -> float:
    """Mean risk over all coverages (AURC, Geifman & El-Yaniv 2017); lower is better."""
    return float(np.sum(np.diff(coverage, prepend=0.0) * risk))


def accuracy_at_coverage(coverage: Values, risk: Values, wanted: float) -> float | None:
    """Share right among the most confident ``wanted`` share of the questions; None where fewer are answered."""
    at = int(np.searchsorted(coverage, wanted - 1e-12))
    return float(1 - risk[at]) if at < len(risk) else None


def refusals(thresholds_N: npt.ArrayLike, confidence_M: npt.ArrayLike) -> tuple[Values, Values]:
    """The different thresholds, rising, with one above all, and for each the share of M answers below it.

    Of answers to unanswerable questions these are the ones that are rightly declined, of others those refused wrongly:
    one against the other is the curve of a detector (ROC) of unanswerable questions.
    """
    thresholds = np.append(np.unique(np.asarray(thresholds_N, np.float64)), np.inf)
    confidence = np.sort(np.asarray(confidence_M, np.float64))
    return thresholds, np.searchsorted(confidence, thresholds, side="left") / max(1, len(confidence))


@dataclass(frozen=True)
class Bin:
    """Answers whose confidence lies in ``low … high``."""

    low: float
    high: float
    questions: int
    confidence: float
    """Their mean confidence."""
    right: float
    """The share of them that is right."""


def reliability(confidence_N: npt.ArrayLike, right_N: npt.ArrayLike, *, bins: int = 10) -> list[Bin]:
    """Bins of equal width that are not empty, by rising confidence."""
    confidence, right = np.asarray(confidence_N, np.float64), np.asarray(right_N, np.float64)
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    return [
        Bin(b / bins, (b + 1) / bins, int(inside.sum()), float(confidence[inside].mean()), float(right[inside].mean()))
        for b in sorted(set(place.tolist()))
        for inside in (place == b,)
    ]


def calibration_error(confidence_N: npt.ArrayLike, right_N: npt.ArrayLike, *, bins: int = 10) -> float:
    """Expected calibration error over bins of equal width (Guo et al. 2017)."""
    table = reliability(confidence_N, right_N, bins=bins)
    total = sum(b.questions for b in table)
    return sum(abs(b.confidence - b.right) * b.questions for b in table) / max(1, total)


def percentiles(seconds_N: npt.ArrayLike) -> dict[str, float]:
    """Mean, median, 95th and 99th percentile."""
    seconds = np.asarray(seconds_N, np.float64)
    p50, p95, p99 = np.percentile(seconds, [50, 95, 99])
    return {"mean": float(seconds.mean()), "p50": float(p50), "p95": float(p95), "p99": float(p99)}
