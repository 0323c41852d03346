"""Plot training runs side by side.

    python -m pipelines.common.plot runs/realm runs/realm-stale --out docs/realm.png

The picture has one panel for each group of figures, and one colour for each run. Thin lines show single values. Thick
lines show the running mean, or the values themselves if there are at most 100.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from ragqa.errors import BadInput, MissingExtra
from ragqa.settings.command_line import parse_config, report_errors
from ragqa.settings.groups import POSITIONAL
from ragqa.terminal import print_text
from ragqa.text import replace_surrogates
from ragqa.training.log import read_rows

PANELS: dict[str, tuple[str, ...]] = {
    "loss, nats a token": ("nll", "nll_alone", "nll_own", "nll_other"),
    "retrieval utility, nats": ("utility", "utility_top"),
    "loss of questions, nats an answer": ("gen_nll", "gen_nll_alone"),
    "retrieval utility for questions, nats": ("gen_utility", "gen_utility_top"),
    "loss of the span reader, nats": ("span_nll",),
    "loss of passages in the span reader, nats": ("relevance_bce", "absence_bce", "early_bce"),
    "recall, held-out questions": ("recall@1", "recall@5", "recall@20"),
    "p(z|x): entropy, weight of null": ("entropy", "null"),
    "different passages, share": ("distinct",),
    "accuracy": ("accuracy",),
    "exact match, dev": ("em", "span_em"),
    "staleness of the index, steps": ("staleness",),
    "tokens a second": ("tokens/s",),
    "model-FLOPs utilisation": ("utilisation",),
}
"""Names of the figures in each panel, by the title of the panel."""
KINDS = (".png", ".svg", ".pdf")
"""Suffixes of pictures."""
_STYLES = ("-", "--", ":", "-.")
_MEAN = 0.02
"""Width of the running mean, as a share of the values of a figure."""


@dataclass(frozen=True, kw_only=True)
class PlotConfig:
    """Settings of a plot of runs."""

    runs: Annotated[tuple[Path, ...], POSITIONAL]
    """Directories of runs."""
    out: Path
    """Picture to write: .png, .svg or .pdf."""
    names: tuple[str, ...] = ()
    """Names of the runs in the legend; default: the names of the directories."""

    def __post_init__(self) -> None:
        """Raise BadInput for settings that cannot be used."""
        if not self.runs:
            raise BadInput("no runs: name the directories of the runs to plot")
        if self.names and len(self.names) != len(self.runs):
            raise BadInput(f"{len(self.names)} names for {len(self.runs)} runs")


def check_plot(out: Path) -> None:
    """Check the suffix of the picture ``out``, make its folder and load matplotlib.

    Raises:
        BadInput: ``out`` does not end in .png, .svg or .pdf.
        MissingExtra: matplotlib is not installed.
    """
    if out.suffix not in KINDS:
        raise BadInput(f"{out}: the name of a picture must end in {', '.join(KINDS)}")
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtra("a plot", "eval") from error
    matplotlib.use("Agg")


def plot(runs: Sequence[Path], out: Path, *, names: Sequence[str] = ()) -> None:
    """Plot the logs of runs into a picture.

    Args:
        runs: directories of runs.
        out: picture to write.
        names: names of the runs in the legend; default: the names of the directories.

    Raises:
        BadInput: a directory holds no figures, or ``out`` does not end in .png, .svg or .pdf.
        MissingExtra: matplotlib is not installed.
    """
    check_plot(out)
    from matplotlib import pyplot
    from matplotlib.lines import Line2D

    logs = [_read_curves(run) for run in runs]
    if empty := [run for run, curves in zip(runs, logs, strict=True) if not curves]:
        below = sorted({str(file.parent) for run in empty for file in run.glob("*/metrics.jsonl")})
        hint = f"; there are runs in {', '.join(below)}" if below else ""
        raise BadInput(f"{', '.join(map(str, empty))}: no metrics.jsonl with figures there{hint}")
    logged = set().union(*logs)
    panels = {title: fields for title, fields in PANELS.items() if not logged.isdisjoint(fields)}
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(5 * columns, 3.2 * rows), squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    for axis, (title, fields) in zip(axes.flat, panels.items(), strict=False):
        styles = dict(zip((field for field in fields if field in logged), _STYLES, strict=False))
        for colour, curves in enumerate(logs):
            for field, style in styles.items():
                if field in curves:
                    steps, values = np.array(curves[field], float).T
                    _draw(axis, steps, values, f"C{colour}", style)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("step", fontsize=8)
        if len(fields) > 1:
            lines = [Line2D([], [], color="black", ls=style) for style in styles.values()]
            axis.legend(lines, styles, fontsize=7, loc="upper right")
    labels = [replace_surrogates(name) for name in names or [run.name for run in runs]]
    lines = [Line2D([], [], color=f"C{colour}", lw=2) for colour in range(len(runs))]
    figure.tight_layout(rect=(0, 0.3 / (3.2 * rows), 1, 1))
    figure.legend(lines, labels, loc="lower center", ncols=6, fontsize=9, frameon=False)
    figure.savefig(out, dpi=110)
    pyplot.close(figure)


def _read_curves(run: Path) -> dict[str, list[tuple[int, float]]]:
    curves: dict[str, list[tuple[int, float]]] = {}
    for row in read_rows(run):
        for field in (field for fields in PANELS.values() for field in fields):
            if isinstance(row.get("step"), int) and isinstance(row.get(field), int | float):
                curves.setdefault(field, []).append((row["step"], row[field]))
    return curves


def _draw(axis: Any, steps: np.ndarray, values: np.ndarray, colour: str, style: str) -> None:
    window = max(1, int(_MEAN * len(steps))) if len(steps) > 100 else 1
    if window > 1:
        axis.plot(steps, values, color=colour, lw=0.4, alpha=0.25)
        weights = np.convolve(np.ones(len(values)), np.ones(window), "same")
        values = np.convolve(values, np.ones(window), "same") / weights
    axis.plot(steps, values, style, color=colour, lw=1.4, marker="." if len(steps) < 40 else "")


def main() -> None:
    """Plot the runs that the command line names."""
    with report_errors("pipelines.common.plot"):
        config = parse_config(PlotConfig, __doc__)
        plot(config.runs, config.out, names=config.names)
        print_text(str(config.out))


if __name__ == "__main__":
    main()
