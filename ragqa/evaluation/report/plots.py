"""Plots of a report or a comparison (extra ``eval``), as SVG in the page's colours."""

import io
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Figures = dict[str, Any]

INK, SOFT, LINE, ONE, TWO = "#010101", "#020202", "#030303", "#040404", "#050505"
_COLOURS = {INK: "ink", SOFT: "soft", LINE: "line", ONE: "one", TWO: "two"}
"""Placeholder colours, replaced by the page's CSS variables.

The page has a light and a dark set of colours, which colour-blind people can distinguish.
"""
_STYLE: dict[Any, Any] = {
    "axes.edgecolor": LINE,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 11,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "legend.fontsize": 10.5,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "lines.linewidth": 2,
    "svg.fonttype": "none",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.color": SOFT,
    "ytick.labelcolor": INK,
}
_WIDTH = 5.8
"""Width of a plot in inches."""


@dataclass(frozen=True)
class Plot:
    """Plot as an SVG element, with its title and a sentence that explains it."""

    title: str
    svg: str
    explanation: str


def draw_report_plots(figures: Figures) -> list[Plot]:
    """Return the plots for which a report has figures.

    Raises:
        ImportError: matplotlib is not installed.
    """
    plots: list[Plot] = []
    if any(figures["answer_recall"].values()):
        golds = {name: figures[f"gold_{name}"] for name in ("passage", "document")}
        curves = {"an answer among the first k (95 % interval)": figures["answer_recall"]}
        _add_recall(
            plots, curves, golds, "Share of the questions with a passage that holds an answer among the first k."
        )
    if figures["loss"] and sum(figures["loss"].values()):
        _add_losses(plots, figures["loss"])
    if confidence := figures["confidence"]:
        title = f"Risk and coverage (area under the curve, AURC, {confidence['area_under_risk']:.3f})"
        curves = {"answered from the most confident on": confidence}
        _add_risk(plots, title, curves, declining=confidence["declining"])
        _add_reliability(plots, confidence)
    for number, (name, rows) in enumerate(figures["breakdown"].items()):
        _add_breakdown(plots, number, name, [row for row in rows if row["em"]], figures["em"])
    return plots


def draw_comparison_plots(figures: Figures, a: Figures, b: Figures) -> list[Plot]:
    """Return the plots for which a comparison has figures.

    Args:
        figures: figures of the comparison.
        a: figures of the first report.
        b: figures of the second report.

    Raises:
        ImportError: matplotlib is not installed.
    """
    plots: list[Plot] = []
    if tests := list_tests(figures):
        _add_differences(plots, tests)
    if any(a["answer_recall"].values()) and any(b["answer_recall"].values()):
        explanation = (
            "Share of the questions with a passage that holds an answer among the first k, with 95 % intervals."
        )
        _add_recall(plots, {"a": a["answer_recall"], "b": b["answer_recall"]}, {}, explanation)
    if a["confidence"] and b["confidence"]:
        confidences = {"a": a["confidence"], "b": b["confidence"]}
        curves = {
            f"{name} (AURC {confidence['area_under_risk']:.3f})": confidence for name, confidence in confidences.items()
        }
        _add_risk(plots, "Risk and coverage", curves)
    return plots


def list_tests(figures: Figures) -> dict[str, Figures]:
    """Return the significance tests that a comparison contains, by the name of the score."""
    named = {"EM": figures["em"], "F1": figures["f1"]}
    named |= {f"answer recall @{k}": test for k, test in figures["answer_recall"].items()}
    return {name: test for name, test in named.items() if test is not None}


def _add_recall(
    plots: list[Plot], curves: dict[str, Figures], golds: dict[str, Figures | None], explanation: str
) -> None:
    with _add_plot(plots, "recall", "Answer recall by number of passages", explanation) as axes:
        for (label, recall), colour, style in zip(curves.items(), (ONE, TWO), ("o-", "s--"), strict=False):
            ks = sorted(int(k) for k, interval in recall.items() if interval)
            intervals = [recall[str(k)] for k in ks]
            low, high = ([100 * interval[key] for interval in intervals] for key in ("low", "high"))
            axes.fill_between(ks, low, high, color=colour, alpha=0.15, linewidth=0)
            value, errors = _percent_intervals(intervals)
            axes.errorbar(ks, value, errors, fmt=style, color=colour, capsize=3, label=label)
        for (name, gold), style in zip(golds.items(), ("s--", "^:"), strict=False):
            if gold and gold["accuracy"]:
                ks = sorted(map(int, gold["accuracy"]))
                shares = [100 * gold["accuracy"][str(k)] for k in ks]
                axes.errorbar(ks, shares, fmt=style, color=TWO, label=f"the gold {name} among the first k")
        ks = sorted({int(k) for recall in curves.values() for k in recall})
        axes.set(xscale="log", ylim=(0, 103), xlabel="k, passages (log scale)", ylabel="% of questions")
        axes.set_xticks(ks, map(str, ks))
        axes.set_xticks([], minor=True)


def _add_losses(plots: list[Plot], loss: dict[str, int]) -> None:
    explanation = "Questions with gold answers by the stage, from the corpus to the reader, at which they were lost."
    with _add_plot(plots, "loss", "Where answers are lost", explanation, 3.0) as axes:
        names, total = list(loss)[::-1], sum(loss.values())
        bars = axes.barh(names, [loss[name] for name in names], color=[ONE if n == "right" else TWO for n in names])
        axes.bar_label(bars, [f"{loss[name]:,}  ({100 * loss[name] / total:.1f} %)" for name in names], padding=4)
        axes.set(xlim=(0, 1.3 * max(loss.values())), xlabel="questions")
        axes.grid(visible=False, axis="y")


def _add_risk(plots: list[Plot], title: str, curves: dict[str, Figures], *, declining: Figures | None = None) -> None:
    explanation = (
        "Share of wrong answers if only the questions with the highest confidence are answered; lower is better."
    )
    with _add_plot(plots, "risk", title, explanation) as axes:
        for (label, confidence), colour, style in zip(curves.items(), (ONE, TWO), ("-", "--"), strict=False):
            coverage, risk = ([100 * point[n] for point in confidence["risk_coverage"]] for n in (0, 1))
            axes.plot(coverage, risk, style, color=colour, label=label)
        if declining:
            full = risk[-1]
            axes.axhline(full, color=SOFT, linestyle=":", linewidth=1.4, label=f"all answered: {full:.1f} % wrong")
            if declining["right_of_answered"] is not None:
                answered, wrong = 100 * declining["answered"], 100 - 100 * declining["right_of_answered"]
                label = (
                    f"declined below {declining['below']:.3g}: {answered:.1f} % answered, {wrong:.1f} % of them wrong"
                )
                axes.plot([answered], [wrong], "D", color=TWO, markersize=8, label=label, zorder=4, clip_on=False)
        axes.set(xlim=(0, 101), xlabel="coverage: % of questions answered", ylabel="risk: % of them wrong")
        axes.set_ylim(0, max(5.0, 1.08 * axes.dataLim.y1))


def _add_reliability(plots: list[Plot], confidence: Figures) -> None:
    title = f"Reliability (expected calibration error, ECE, {confidence['calibration_error']:.3f})"
    explanation = "Below the dotted line the confidence is too high, above it too low."
    with _add_plot(plots, "reliability", title, explanation) as axes:
        bins = confidence["reliability"]
        axes.plot([0, 100], [0, 100], color=SOFT, linestyle=":", linewidth=1.4, label="as right as it is confident")
        right, sure = ([100 * b[key] for b in bins] for key in ("right", "confidence"))
        bars = axes.bar([100 * b["low"] for b in bins], right, 9.2, align="edge", color=ONE, alpha=0.45)
        bars.set_label("right (above: number of questions)")
        axes.bar_label(bars, [f"{b['questions']:,}" for b in bins], padding=8, fontsize=10)
        axes.plot(sure, right, "o", color=TWO, label="mean confidence of the bin")
        axes.set(xlim=(0, 100), ylim=(0, 114), xlabel="confidence, %", ylabel="% right", yticks=range(0, 101, 20))


def _add_breakdown(plots: list[Plot], number: int, name: str, rows: list[Figures], overall: Figures | None) -> None:
    if not rows:
        return
    height = _compute_height(len(rows))
    explanation = "In brackets the number of questions."
    with _add_plot(plots, f"kind{number}", f"EM by {name}", explanation, height) as axes:
        if overall:
            value = 100 * overall["value"]
            axes.axvline(value, color=SOFT, linestyle=":", linewidth=1.4, label=f"all questions: {value:.1f}")
        _draw_intervals(axes, {f"{row['kind']} ({row['questions']:,})": row["em"] for row in rows})
        axes.set(xlim=(-3, 103), xlabel="EM, % (95 % interval)")


def _add_differences(plots: list[Plot], tests: dict[str, Figures]) -> None:
    explanation = "To the right of 0 a is better, to the left b; a difference whose interval holds 0 may be chance."
    with _add_plot(plots, "differences", "Differences", explanation, _compute_height(len(tests))) as axes:
        axes.axvline(0, color=SOFT, linewidth=1.4)
        _draw_intervals(axes, {name: test["difference"] for name, test in tests.items()})
        widest = max(1.0, *(abs(edge) for edge in axes.dataLim.intervalx))
        axes.set(xlim=(-1.1 * widest, 1.1 * widest), xlabel="a − b, percentage points (95 % interval)")


def _compute_height(rows: int) -> float:
    return 1.3 + 0.32 * rows


def _draw_intervals(axes: "Axes", intervals: dict[str, Figures]) -> None:
    value, errors = _percent_intervals(intervals.values())
    places = range(len(intervals))
    axes.errorbar(value, places, xerr=errors, fmt="o", color=ONE, capsize=3, linewidth=1.6, clip_on=False)
    axes.set_yticks(places, list(intervals))
    axes.set_ylim(len(intervals) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")


def _percent_intervals(intervals: Iterable[Figures]) -> tuple[list[float], list[list[float]]]:
    """Return the values, and the lengths of their error bars below and above, in percent."""
    # Negative lengths become 0, since rounding can put a mean outside its interval.
    rows = [[100 * interval[key] for key in ("value", "low", "high")] for interval in intervals]
    below, above = (
        [max(0.0, value - low) for value, low, _ in rows],
        [max(0.0, high - value) for value, _, high in rows],
    )
    return [value for value, _, _ in rows], [below, above]


@contextmanager
def _add_plot(plots: list[Plot], key: str, title: str, explanation: str, height: float = 3.9) -> Iterator["Axes"]:
    """Yield axes to draw in, and add the plot to ``plots`` at the end of the block.

    ``key`` is the prefix of the plot's ids, which are unique on the page. ``height`` is in inches.
    """
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # ignore the user's style, so that the same figures give the same bytes
        matplotlib.rcParams.update(_STYLE)
        from matplotlib.figure import Figure

        figure, buffer = Figure(figsize=(_WIDTH, height), layout="constrained"), io.StringIO()
        axes = figure.add_subplot()
        yield axes
        axes.set_axisbelow(True)
        if axes.get_legend_handles_labels()[1]:
            figure.legend(loc="outside upper left")  # outside the axes, so that it covers no curve
        no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=no_metadata)
    plots.append(Plot(title, _embed_svg(buffer.getvalue(), key, title), explanation))


def _embed_svg(svg: str, key: str, title: str) -> str:
    from markupsafe import escape

    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r" font-family: [^;]*;| transform=\"rotate\(-0 [^\"]*\"", "", svg)
    box = re.search(r'viewBox="[^"]*"', svg)
    assert box is not None
    svg = re.sub(r"<svg[^>]*>", f'<svg {box[0]} role="img" aria-label="{escape(title)}">', svg, count=1)
    for colour, name in _COLOURS.items():
        svg = svg.replace(colour, f"var(--{name})")
    return _number_ids(svg, key)


def _number_ids(svg: str, key: str) -> str:
    """Replace the ids that an SVG refers to by ``key`` and a number; remove its other ids."""
    used = set(re.findall(r'(?:url\(|href=")#([^")]+)', svg))
    names = {old: f"{key}-{n}" for n, old in enumerate(i for i in re.findall(r' id="([^"]+)"', svg) if i in used)}
    svg = re.sub(r' id="([^"]+)"', lambda m: f' id="{names[m[1]]}"' if m[1] in names else "", svg)
    return re.sub(r'(url\(|href=")#([^")]+)', lambda m: f"{m[1]}#{names.get(m[2], m[2])}", svg)
