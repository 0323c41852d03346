"""How far a confidence can be trusted: figures of answers whose questions are of known kinds, and their picture."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.calibrate.conditions import ANSWERABLE, MISSED, VAIN
from pipelines.common.plot import check_plot
from ragqa.evaluation.statistics import (
    accuracy_at_coverage,
    calibration_error,
    refusal_rates,
    reliability,
    risk_coverage,
)

REFUSED, COVERED = 0.05, 0.5
"""Share that may be refused wrongly, and share of the questions that are answered, where single figures are given."""
_POINTS = 100
"""Of the curve that are written."""


def figures(said: np.ndarray, right: np.ndarray, kind: np.ndarray) -> dict[str, Any]:
    """What answers to the questions of one set show; all arrays ``[N]``.

    Shares in [0, 1]. Those that are asked in vain count where they are named, and nowhere else. ``times_em_at_most`` is
    what no confidence can surpass: the surer half cannot be more than all right.

    Args:
        said: confidence of each answer; 0 where there is none.
        right: whether it is, 1 or 0, or the probability; right answers that are counted are those with 1.
        kind: of its question, see ``pipelines.calibrate.conditions``.
    """
    asked = kind != VAIN
    coverage, risk = risk_coverage(said[asked], right[asked])
    em, half = float(right[asked].mean()), accuracy_at_coverage(coverage, risk, COVERED)
    groups = {"as_asked": asked, **{name: kind == name for name in (ANSWERABLE, MISSED, VAIN)}}
    return {
        "answers": {name: int((kind == name).sum()) for name in (ANSWERABLE, MISSED, VAIN)},
        "calibration_error": {
            name: round(calibration_error(said[inside], right[inside]), 4)
            for name, inside in groups.items()
            if inside.any()
        },
        "mean_confidence": {
            name: round(float(said[inside].mean()), 4) for name, inside in groups.items() if inside.any()
        },
        "reliability": [asdict(part) for part in reliability(said[asked], right[asked])],
        "em": round(em, 4),
        "em_at_half_coverage": half and round(half, 4),
        "times_em": half and em and round(half / em, 3),
        "times_em_at_most": em and round(min(1.0, em / COVERED) / em, 3),
        "refusals": curve(said, right, kind) if (kind == VAIN).any() and (kind == ANSWERABLE).any() else None,
    }


def curve(said: np.ndarray, right: np.ndarray, kind: np.ndarray) -> dict[str, Any]:
    """What declining below a confidence would do; arrays as of ``figures``.

    ``curve`` has a row a threshold: it, the share of answerable questions that are refused below it, of right answers
    that are, and of the questions asked in vain. Both of the first two are wrong refusals, by a strict and by a mild
    reckoning: what is answered wrongly loses nothing by being refused.
    """
    vain, answerable, sure = kind == VAIN, kind == ANSWERABLE, (kind != VAIN) & (right == 1)
    thresholds, declined = refusal_rates(said, said[vain])
    refused, lost = (refusal_rates(said, said[each])[1] for each in (answerable, sure))
    thresholds[-1] = 1.0  # above all of them
    kept = np.unique(np.linspace(0, len(thresholds) - 1, _POINTS).astype(int))
    return {
        "vain_declined_at_5_percent_of": {
            "answerable_refused": round(float(declined[refused <= REFUSED].max(initial=0)), 4),
            "right_answers_refused": round(float(declined[lost <= REFUSED].max(initial=0)), 4),
        },
        "curve": np.round(np.stack([thresholds, refused, lost, declined], -1)[kept], 4).tolist(),
    }


def threshold(said: np.ndarray, right: np.ndarray) -> float:
    """The highest confidence, in hundredths, below which at most ``REFUSED`` of the right answers lie; both ``[N]``."""
    sure = np.sort(said[right == 1])
    return float(np.floor(100 * sure[int(REFUSED * len(sure))]) / 100) if len(sure) else 0.0


def plot(found: Mapping[str, dict[str, Any]], file: Path) -> None:
    """Draw the curves of refusals of each set beside their reliability; raises as ``check_plot``."""
    check_plot(file)
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.4))
    right.plot([0, 1], [0, 1], color="grey", lw=0.6, ls=":")
    for number, (name, each) in enumerate(found.items()):
        color = f"C{number}"
        if each["refusals"]:
            _, refused, lost, declined = (100 * np.array(each["refusals"]["curve"])).T
            left.plot(refused, declined, color=color, label=f"{name}: of answerable questions")
            left.plot(lost, declined, "--", color=color, label=f"{name}: of right answers")
        bins, off = each["reliability"], each["calibration_error"]["as_asked"]
        points = [part["confidence"] for part in bins], [part["right"] for part in bins]
        right.plot(*points, "o-", color=color, label=f"{name}: ECE {off:.3f}")
    left.axvline(100 * REFUSED, color="grey", lw=0.6, ls=":")
    left.set(xlabel="% wrongly refused", ylabel="% declined of those asked in vain", xlim=(0, 100), ylim=(0, 101))
    right.set(xlabel="mean confidence", ylabel="share right")
    for axes in (left, right):
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7)
    figure.tight_layout()
    aside = file.with_name(f".{file.name}")
    figure.savefig(aside, dpi=110, format=file.suffix[1:])
    aside.replace(file)
    pyplot.close(figure)
