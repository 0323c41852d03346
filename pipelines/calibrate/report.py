"""Figures and a plot of the calibration of confidence.

Legend: N answers.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.calibrate.conditions import ANSWERABLE, MISSED, NO_GOLD_ANSWER, UNANSWERABLE
from pipelines.calibrate.threshold import MAX_DECLINED
from pipelines.common.plot import check_plot
from ragqa import artefacts
from ragqa.evaluation.statistics import (
    compute_accuracy_at_coverage,
    compute_calibration_error,
    compute_refusal_rates,
    compute_reliability,
    compute_risk_coverage,
)

COVERAGE = 0.5
"""Share of questions to answer in the main figures."""
_CURVE_POINTS = 100


def summarise_answers(confidence_N: np.ndarray, right_N: np.ndarray, kind_N: np.ndarray) -> dict[str, Any]:
    """Return the figures of the answers to the questions of one set.

    Unanswerable questions count only in figures by kind and in ``refusals``. ``times_em`` is the accuracy of the more
    confident half of the answers, divided by the accuracy of all answers. ``times_em_at_most`` is its maximum, reached
    if all right answers are more confident than the wrong ones.

    Args:
        confidence_N: confidence of each answer.
        right_N: probability that each answer is right. In ``refusals`` an answer is right only if the value is 1.
        kind_N: kind of each question (see ``pipelines.calibrate.conditions``).

    Returns:
        Figures by name; shares are from 0 to 1. A figure is None if the answers do not determine it.
    """
    ordinary = kind_N != UNANSWERABLE
    coverage, risk = compute_risk_coverage(confidence_N[ordinary], right_N[ordinary])
    em, half = float(right_N[ordinary].mean()), compute_accuracy_at_coverage(coverage, risk, COVERAGE)
    kinds = (ANSWERABLE, MISSED, UNANSWERABLE, NO_GOLD_ANSWER)
    groups = {"as_asked": ordinary, **{kind: kind_N == kind for kind in kinds}}
    groups = {name: mask for name, mask in groups.items() if mask.any()}
    has_both = (kind_N == UNANSWERABLE).any() and (kind_N == ANSWERABLE).any()
    return {
        "answers": {kind: int((kind_N == kind).sum()) for kind in kinds},
        "calibration_error": {
            name: round(compute_calibration_error(confidence_N[mask], right_N[mask]), 4)
            for name, mask in groups.items()
        },
        "mean_confidence": {name: round(float(confidence_N[mask].mean()), 4) for name, mask in groups.items()},
        "reliability": [asdict(bin_) for bin_ in compute_reliability(confidence_N[ordinary], right_N[ordinary])],
        "em": round(em, 4),
        "em_at_half_coverage": half and round(half, 4),
        "times_em": half and em and round(half / em, 3),
        "times_em_at_most": em and round(min(1.0, em / COVERAGE) / em, 3),
        "refusals": measure_refusals(confidence_N, right_N, kind_N) if has_both else None,
    }


def measure_refusals(confidence_N: np.ndarray, right_N: np.ndarray, kind_N: np.ndarray) -> dict[str, Any]:
    """Return the shares of questions that are declined, by threshold.

    By a strict rule, a refusal is wrong if the question is answerable; by a mild rule, only if its answer is right.

    Args:
        confidence_N: confidence of each answer.
        right_N: 1 for a right answer; other values count as wrong.
        kind_N: kind of each question (see ``pipelines.calibrate.conditions``).

    Returns:
        ``curve``: at most 100 rows, each with a threshold and the shares that it declines of answerable questions, of
        right answers and of unanswerable questions. ``unanswerable_declined_at_5_percent_of``: maximum share of
        unanswerable questions declined by a threshold that declines at most ``MAX_DECLINED`` of answerable questions
        (``answerable``) or of right answers (``right_answers``).
    """
    is_unanswerable, is_answerable = kind_N == UNANSWERABLE, kind_N == ANSWERABLE
    is_right = (kind_N != UNANSWERABLE) & (right_N == 1)
    thresholds, unanswerable = compute_refusal_rates(confidence_N, confidence_N[is_unanswerable])
    answerable, right = (
        compute_refusal_rates(confidence_N, confidence_N[mask])[1] for mask in (is_answerable, is_right)
    )
    thresholds[-1] = 1.0  # infinity, which JSON does not have
    points = np.unique(np.linspace(0, len(thresholds) - 1, _CURVE_POINTS).astype(int))
    return {
        "unanswerable_declined_at_5_percent_of": {
            "answerable": round(float(unanswerable[answerable <= MAX_DECLINED].max(initial=0)), 4),
            "right_answers": round(float(unanswerable[right <= MAX_DECLINED].max(initial=0)), 4),
        },
        "curve": np.round(np.stack([thresholds, answerable, right, unanswerable], -1)[points], 4).tolist(),
    }


def plot_figures(figures: Mapping[str, dict[str, Any]], file: Path) -> None:
    """Plot the refusal curves and the reliability diagram of each set.

    Args:
        figures: figures of ``summarise_answers`` by the name of the set.
        file: picture to write.

    Raises:
        BadInput: ``file`` does not end in .png, .svg or .pdf.
        MissingExtra: matplotlib is not installed.
    """
    check_plot(file)
    from matplotlib import pyplot

    figure, (refusal_axes, reliability_axes) = pyplot.subplots(1, 2, figsize=(11, 4.4))
    reliability_axes.plot([0, 1], [0, 1], color="grey", lw=0.6, ls=":")
    for number, (name, set_figures) in enumerate(figures.items()):
        color = f"C{number}"
        if set_figures["refusals"]:
            _, answerable, right_answers, unanswerable = (100 * np.array(set_figures["refusals"]["curve"])).T
            refusal_axes.plot(answerable, unanswerable, color=color, label=f"{name}: of answerable questions")
            refusal_axes.plot(right_answers, unanswerable, "--", color=color, label=f"{name}: of right answers")
        bins, error = set_figures["reliability"], set_figures["calibration_error"]["as_asked"]
        points = [bin_["confidence"] for bin_ in bins], [bin_["right"] for bin_ in bins]
        reliability_axes.plot(*points, "o-", color=color, label=f"{name}: ECE {error:.3f}")
    refusal_axes.axvline(100 * MAX_DECLINED, color="grey", lw=0.6, ls=":")
    refusal_axes.set(
        xlabel="% wrongly declined", ylabel="% of unanswerable questions declined", xlim=(0, 100), ylim=(0, 101)
    )
    reliability_axes.set(xlabel="mean confidence", ylabel="share right")
    for axes in (refusal_axes, reliability_axes):
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7)
    figure.tight_layout()
    with artefacts.replace_file(file) as temporary:
        figure.savefig(temporary, dpi=110, format=file.suffix[1:])
    pyplot.close(figure)
