"""Plots of a report and of a comparison, as SVG that takes its colours from the page.

They need the extra ``eval``. Coordinates are shares in percent, as on the page.
"""

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Figures = dict[str, Any]
Draw = Callable[["Axes"], None]

INK, SOFT, LINE, ONE, TWO = "#010101", "#020202", "#030303", "#040404", "#050505"
_COLOURS = {INK: "ink", SOFT: "soft", LINE: "line", ONE: "one", TWO: "two"}
"""Placeholder colours, replaced by the page's CSS variables: it has a light and a dark set, both colour-blind safe."""
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
    """A plot with its title and a sentence that explains it."""

    title: str
    svg: str
    explanation: str


def report_plots(figures: Figures) -> list[Plot]:
    """Draw all plots that the figures of a report allow.

    Raises:
        ImportError: matplotlib is missing.
    """
    plots = []
    if any(figures["answer_recall"].values()):
        plots.append(_recall_plot(figures))
    if figures["loss"] and sum(figures["loss"].values()):
        plots.append(_loss_plot(figures["loss"]))
    if figures["confidence"]:
        plots += [_risk_plot(figures["confidence"]), _reliability_plot(figures["confidence"])]
    return [*plots, *_breakdown_plots(figures)]


def comparison_plots(figures: Figures, a: Figures, b: Figures) -> list[Plot]:
    """Draw all plots of a comparison ``figures`` of the reports with figures ``a`` and ``b``."""
    plots = []
    if tests := differences(figures):
        plots.append(_differences_plot(tests))
    if any(a["answer_recall"].values()) and any(b["answer_recall"].values()):
        plots.append(_both_recalls_plot(a, b))
    if a["confidence"] and b["confidence"]:
        plots.append(_both_risks_plot(a["confidence"], b["confidence"]))
    return plots


def differences(figures: Figures) -> dict[str, Figures]:
    """Return the tests of a comparison by name."""
    named = {"EM": figures["em"], "F1": figures["f1"]}
    named |= {f"answer recall @{k}": test for k, test in figures["answer_recall"].items()}
    return {name: test for name, test in named.items() if test is not None}


# --- one report ---


def _recall_plot(figures: Figures) -> Plot:
    golds = {"passage": figures["gold_passage"], "document": figures["gold_document"]}

    def draw(axes: "Axes") -> None:
        _draw_recall(axes, figures["answer_recall"], ONE, "o-", "an answer among the first k (95 % interval)")
        for (name, gold), style in zip(golds.items(), ("s--", "^:"), strict=True):
            if gold and gold["accuracy"]:
                ks = sorted(map(int, gold["accuracy"]))
                shares = [100 * gold["accuracy"][str(k)] for k in ks]
                axes.errorbar(ks, shares, fmt=style, color=TWO, label=f"the gold {name} among the first k")
        _set_recall_axes(axes, figures["answer_recall"])

    explanation = "Share of the questions with a passage that holds an answer among the first k."
    return _plot("recall", "Answer recall by number of passages", explanation, draw)


def _draw_recall(axes: "Axes", recall: Figures, colour: str, style: str, label: str) -> None:
    ks = sorted(int(k) for k, interval in recall.items() if interval)
    value, low, high = ([100 * recall[str(k)][key] for k in ks] for key in ("value", "low", "high"))
    axes.fill_between(ks, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.errorbar(
        ks,
        value,
        [_error_lengths(value, low), _error_lengths(high, value)],
        fmt=style,
        color=colour,
        capsize=3,
        label=label,
    )


def _set_recall_axes(axes: "Axes", *recalls: Figures) -> None:
    ks = sorted({int(k) for recall in recalls for k in recall})
    axes.set(xscale="log", ylim=(0, 103), xlabel="k, passages (log scale)", ylabel="% of questions")
    axes.set_xticks(ks, map(str, ks))
    axes.set_xticks([], minor=True)


def _error_lengths(high: list[float], low: list[float]) -> list[float]:
    """Return the lengths of error bars, never negative: a mean may lie outside its interval by rounding."""
    return [max(0.0, upper - lower) for upper, lower in zip(high, low, strict=True)]


def _loss_plot(loss: dict[str, int]) -> Plot:
    total = sum(loss.values())

    def draw(axes: "Axes") -> None:
        names = list(loss)[::-1]
        bars = axes.barh(names, [loss[name] for name in names], color=[ONE if n == "right" else TWO for n in names])
        labels = [f"{loss[name]:,}  ({100 * loss[name] / total:.1f} %)" for name in names]
        axes.bar_label(bars, labels, padding=4)
        axes.set(xlim=(0, 1.3 * max(loss.values())), xlabel="questions")
        axes.grid(visible=False, axis="y")

    explanation = "Of the questions with gold answers: how far each came on its way from the corpus to the answer."
    return _plot("loss", "Where answers are lost", explanation, draw, 3.0)


def _risk_plot(confidence: Figures) -> Plot:
    declining = confidence["declining"]

    def draw(axes: "Axes") -> None:
        full = _draw_risk(axes, confidence, ONE, "-", "answered from the most confident on")
        axes.axhline(full, color=SOFT, linestyle=":", linewidth=1.4, label=f"all answered: {full:.1f} % wrong")
        if declining["right_of_answered"] is not None:
            at, risk = 100 * declining["answered"], 100 - 100 * declining["right_of_answered"]
            label = f"declined below {declining['below']:g}: {at:.1f} % answered, {risk:.1f} % of them wrong"
            axes.plot([at], [risk], "D", color=TWO, markersize=8, label=label, zorder=4, clip_on=False)
        _set_risk_axes(axes)

    area = f"{confidence['area_under_risk']:.3f}"
    explanation = (
        "Share of wrong answers if only the questions with the highest confidence are answered; lower is better."
    )
    return _plot("risk", f"Risk and coverage (area under the curve, AURC, {area})", explanation, draw)


def _draw_risk(axes: "Axes", confidence: Figures, colour: str, style: str, label: str) -> float:
    """Draw the curve and return the risk if everything is answered."""
    coverage, risk = ([100 * point[n] for point in confidence["risk_coverage"]] for n in (0, 1))
    axes.plot(coverage, risk, style, color=colour, label=label)
    return risk[-1]


def _set_risk_axes(axes: "Axes") -> None:
    axes.set(xlim=(0, 101), xlabel="coverage: % of questions answered", ylabel="risk: % of them wrong")
    axes.set_ylim(0, max(5.0, 1.08 * axes.dataLim.y1))


def _reliability_plot(confidence: Figures) -> Plot:
    bins = confidence["reliability"]

    def draw(axes: "Axes") -> None:
        axes.plot([0, 100], [0, 100], color=SOFT, linestyle=":", linewidth=1.4, label="as right as it is confident")
        right, sure = ([100 * b[key] for b in bins] for key in ("right", "confidence"))
        bars = axes.bar([100 * b["low"] for b in bins], right, 9.2, align="edge", color=ONE, alpha=0.45)
        bars.set_label("right (above: number of questions)")
        axes.bar_label(bars, [f"{b['questions']:,}" for b in bins], padding=8, fontsize=10)
        axes.plot(sure, right, "o", color=TWO, label="mean confidence of the bin")
        axes.set(xlim=(0, 100), ylim=(0, 114), xlabel="confidence, %", ylabel="% right", yticks=range(0, 101, 20))

    title = f"Reliability (expected calibration error, ECE, {confidence['calibration_error']:.3f})"
    explanation = "Below the dotted line the system is surer than it should be, above it less sure."
    return _plot("reliability", title, explanation, draw)


def _breakdown_plots(figures: Figures) -> list[Plot]:
    return [
        _breakdown_plot(number, name, [row for row in rows if row["em"]], figures["em"])
        for number, (name, rows) in enumerate(figures["breakdown"].items())
        if any(row["em"] for row in rows)
    ]


def _breakdown_plot(number: int, name: str, rows: list[Figures], overall: Figures | None) -> Plot:
    def draw(axes: "Axes") -> None:
        if overall:
            value = 100 * overall["value"]
            axes.axvline(value, color=SOFT, linestyle=":", linewidth=1.4, label=f"all questions: {value:.1f}")
        _draw_intervals(axes, {f"{row['kind']} ({row['questions']:,})": row["em"] for row in rows})
        axes.set(xlim=(-3, 103), xlabel="EM, % (95 % interval)")

    return _plot(
        f"kind{number}", f"EM by {name}", "In brackets the number of questions.", draw, _rows_height(len(rows))
    )


def _rows_height(rows: int) -> float:
    return 1.3 + 0.32 * rows


def _draw_intervals(axes: "Axes", intervals: dict[str, Figures]) -> None:
    """Draw a point with its error bar for each interval, from the top down."""
    value, low, high = ([100 * interval[key] for interval in intervals.values()] for key in ("value", "low", "high"))
    places = range(len(intervals))
    bars = [_error_lengths(value, low), _error_lengths(high, value)]
    axes.errorbar(value, places, xerr=bars, fmt="o", color=ONE, capsize=3, linewidth=1.6, clip_on=False)
    axes.set_yticks(places, list(intervals))
    axes.set_ylim(len(intervals) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")


# --- two reports ---


def _both_recalls_plot(a: Figures, b: Figures) -> Plot:
    def draw(axes: "Axes") -> None:
        _draw_recall(axes, a["answer_recall"], ONE, "o-", "a")
        _draw_recall(axes, b["answer_recall"], TWO, "s--", "b")
        _set_recall_axes(axes, a["answer_recall"], b["answer_recall"])

    explanation = "Share of the questions with a passage that holds an answer among the first k, with 95 % intervals."
    return _plot("recall", "Answer recall by number of passages", explanation, draw)


def _both_risks_plot(a: Figures, b: Figures) -> Plot:
    def draw(axes: "Axes") -> None:
        for name, confidence, colour, style in (("a", a, ONE, "-"), ("b", b, TWO, "--")):
            _draw_risk(axes, confidence, colour, style, f"{name} (AURC {confidence['area_under_risk']:.3f})")
        _set_risk_axes(axes)

    explanation = (
        "Share of wrong answers if only the questions with the highest confidence are answered; lower is better."
    )
    return _plot("risk", "Risk and coverage", explanation, draw)


def _differences_plot(tests: dict[str, Figures]) -> Plot:
    def draw(axes: "Axes") -> None:
        axes.axvline(0, color=SOFT, linewidth=1.4)
        _draw_intervals(axes, {name: test["difference"] for name, test in tests.items()})
        widest = max(1.0, *(abs(edge) for edge in axes.dataLim.intervalx))
        axes.set(xlim=(-1.1 * widest, 1.1 * widest), xlabel="a − b, percentage points (95 % interval)")

    explanation = "To the right of 0 a is better, to the left b; a difference whose interval holds 0 may be chance."
    return _plot("differences", "Differences", explanation, draw, _rows_height(len(tests)))


# --- drawing ---


def _plot(key: str, title: str, explanation: str, draw: Draw, height: float = 3.9) -> Plot:
    """Draw a plot; ``key`` distinguishes its ids from those of other plots on the page."""
    with _use_style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        axes = figure.add_subplot()
        draw(axes)
        axes.set_axisbelow(True)
        if axes.get_legend_handles_labels()[1]:
            figure.legend(loc="outside upper left")  # outside the axes, where it hides nothing
        return Plot(title, _to_svg(figure, key, title), explanation)


@contextmanager
def _use_style() -> Iterator[None]:
    """Set matplotlib's style regardless of the user's, so that the same figures give the same bytes."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def _to_svg(figure: "Figure", key: str, title: str) -> str:
    buffer = io.StringIO()
    no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=no_metadata)
    return embeddable(buffer.getvalue(), key, title)


def embeddable(svg: str, key: str, title: str) -> str:
    """Turn an SVG document of matplotlib into an element of a page."""
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
    """Replace the ids in use by numbered ones, and drop the others."""
    used = set(re.findall(r'(?:url\(|href=")#([^")]+)', svg))
    names = {old: f"{key}-{n}" for n, old in enumerate(i for i in re.findall(r' id="([^"]+)"', svg) if i in used)}
    svg = re.sub(r' id="([^"]+)"', lambda m: f' id="{names[m[1]]}"' if m[1] in names else "", svg)
    return re.sub(r'(url\(|href=")#([^")]+)', lambda m: f"{m[1]}#{names.get(m[2], m[2])}", svg)
