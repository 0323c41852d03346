"""Intervals, tests and curves: hand-computed values, closed forms, invariants."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragqa.evaluation.statistics import (
    compare_paired,
    compute_accuracy_at_coverage,
    compute_area_under_risk,
    compute_bootstrap_interval,
    compute_calibration_error,
    compute_percentiles,
    compute_reliability,
    compute_risk_coverage,
)

right_or_wrong = st.lists(st.booleans(), min_size=1, max_size=60)


def test_the_interval_of_a_share_is_near_the_normal_approximation() -> None:
    values = np.array([1] * 640 + [0] * 360)
    found = compute_bootstrap_interval(values)
    half = 1.96 * math.sqrt(0.64 * 0.36 / 1000)
    assert found.value == 0.64
    assert found.low == pytest.approx(0.64 - half, abs=0.002)
    assert found.high == pytest.approx(0.64 + half, abs=0.002)


def test_the_interval_of_many_valued_scores_is_near_the_normal_approximation() -> None:
    values = np.random.default_rng(1).random(2000)
    found = compute_bootstrap_interval(values)
    half = 1.96 * values.std() / math.sqrt(2000)
    assert found.high - found.low == pytest.approx(2 * half, rel=0.05)


def test_an_interval_of_equal_values_is_a_point() -> None:
    assert vars(compute_bootstrap_interval([1, 1, 1])) == {"value": 1.0, "low": 1.0, "high": 1.0}


def test_no_values_have_no_mean() -> None:
    with pytest.raises(ValueError, match="no values"):
        compute_bootstrap_interval([])


@given(right_or_wrong)
def test_an_interval_contains_its_value_and_is_reproducible(values: list[bool]) -> None:
    found = compute_bootstrap_interval(values)
    assert 0 <= found.low <= found.value + 1e-9 and found.value <= found.high + 1e-9 <= 1 + 2e-9
    assert found == compute_bootstrap_interval(values)


@pytest.mark.parametrize(
    ("wins", "losses", "p"),
    [
        (0, 0, 1.0),  # nothing changed
        (1, 0, 1.0),  # one coin: both sides are as extreme
        (5, 0, 2 / 32),
        (8, 2, 2 * (1 + 10 + 45) / 1024),  # McNemar's exact test by hand
        (2, 8, 2 * (1 + 10 + 45) / 1024),
        (5, 5, 1.0),
    ],
)
def test_the_paired_test_of_right_and_wrong_is_mcnemars(wins: int, losses: int, p: float) -> None:
    ours = [1] * wins + [0] * losses + [1, 1, 0]
    theirs = [0] * wins + [1] * losses + [1, 1, 0]
    found = compare_paired(ours, theirs)
    assert found.p == pytest.approx(p)
    assert found.difference.value == pytest.approx((wins - losses) / len(ours))


def test_the_randomisation_test_is_near_the_exact_one() -> None:
    ours = np.array([0.9, 0.5, 0.7, 0.8, 0.6, 0.4])
    theirs = np.array([0.5, 0.45, 0.5, 0.2, 0.65, 0.1])
    difference = ours - theirs
    signs = np.array(np.meshgrid(*[[-1, 1]] * 6)).reshape(6, -1).T
    exact = np.mean(np.abs(signs @ difference) >= abs(difference.sum()) - 1e-9)
    assert compare_paired(ours, theirs).p == pytest.approx(exact, abs=0.01)


def test_scores_of_different_questions_cannot_be_paired() -> None:
    with pytest.raises(ValueError, match="2 and 3 scores"):
        compare_paired([1, 0], [1, 0, 1])


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_exchanging_the_systems_negates_the_difference_and_keeps_p(scores: list[tuple[bool, bool]]) -> None:
    ours, theirs = zip(*scores, strict=True)
    one, other = compare_paired(ours, theirs), compare_paired(theirs, ours)
    assert one.p == other.p
    assert one.difference.value == -other.difference.value
    assert 0 < one.p <= 1


def test_risk_and_coverage_match_a_count_by_hand() -> None:
    coverage, risk = compute_risk_coverage([0.9, 0.8, 0.7, 0.6], [1, 1, 0, 1])
    assert coverage.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert risk.tolist() == pytest.approx([0, 0, 1 / 3, 1 / 4])
    assert compute_area_under_risk(coverage, risk) == pytest.approx((0 + 0 + 1 / 3 + 1 / 4) / 4)


def test_questions_of_equal_confidence_are_answered_together() -> None:
    """No threshold separates them, whatever their order."""
    for right in ([1, 0, 0], [0, 0, 1]):
        coverage, risk = compute_risk_coverage([0.5, 0.5, 0.5], right)
        assert coverage.tolist() == [1.0] and risk.tolist() == pytest.approx([2 / 3])


def test_accuracy_at_a_coverage_uses_the_first_threshold_that_reaches_it() -> None:
    coverage, risk = compute_risk_coverage([0.9, 0.8, 0.8, 0.1], [1, 0, 1, 0])
    assert compute_accuracy_at_coverage(coverage, risk, 0.25) == 1.0
    assert compute_accuracy_at_coverage(coverage, risk, 0.5) == pytest.approx(2 / 3)
    assert compute_accuracy_at_coverage(coverage, risk, 1.0) == 0.5


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=50))
def test_the_risk_at_full_coverage_is_the_error_rate(scores: list[tuple[float, bool]]) -> None:
    confidence, right = zip(*scores, strict=True)
    coverage, risk = compute_risk_coverage(confidence, right)
    assert coverage[-1] == 1.0
    assert risk[-1] == pytest.approx(1 - np.mean(right))
    assert 0 <= compute_area_under_risk(coverage, risk) <= 1


def test_the_calibration_error_matches_a_count_by_hand() -> None:
    """Bins 0.1-0.2 (one, wrong) and 0.8-0.9 (three, two right): (|0.15 - 0| + 3 |0.85 - 2/3|) / 4."""
    confidence, right = [0.15, 0.85, 0.85, 0.85], [0, 1, 1, 0]
    assert compute_calibration_error(confidence, right) == pytest.approx((0.15 + 3 * (0.85 - 2 / 3)) / 4)
    assert [(b.low, b.questions, b.right) for b in compute_reliability(confidence, right)] == [
        (0.1, 1, 0.0),
        (0.8, 3, pytest.approx(2 / 3)),
    ]


def test_full_confidence_belongs_to_the_last_bin() -> None:
    assert [(b.low, b.high, b.questions) for b in compute_reliability([1.0, 0.95], [1, 1])] == [(0.9, 1.0, 2)]


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=50))
def test_the_calibration_error_is_at_least_the_gap_of_the_means(scores: list[tuple[float, bool]]) -> None:
    confidence, right = zip(*scores, strict=True)
    gap = abs(np.mean(confidence) - np.mean(right))
    assert gap - 1e-9 <= compute_calibration_error(confidence, right) <= 1 + 1e-9


def test_percentiles_of_a_hundred_times() -> None:
    found = compute_percentiles(np.arange(101) / 100)
    assert found == pytest.approx({"mean": 0.5, "p50": 0.5, "p95": 0.95, "p99": 0.99})
