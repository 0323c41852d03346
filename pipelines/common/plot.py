"""Plot training runs side by side.

    python -m pipelines.common.plot runs/realm runs/realm-stale --out docs/realm.png

One panel for each group of figures that the runs have logged, a colour for each run; thin lines are single steps, thick
ones their running mean.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ragqa.errors import BadInput, MissingExtra
from ragqa.training.log import read_rows

PANELS: dict[str, tuple[str, ...]] = {
    "loss, nats a token": ("nll", "nll_alone", "nll_own", "nll_other"),
    "retrieval utility, nats": ("utility", "utility_top"),
    "loss of questions, nats an answer": ("gen_nll", "gen_nll_alone"),
    "retrieval utility for questions, nats": ("gen_utility", "gen_utility_top"),
    "loss of the span reader, nats": ("span_nll",),
    "recall, held-out questions": ("recall@1", "recall@5", "recall@20"),
    "p(z|x): entropy, weight of null": ("entropy", "null"),
    "different passages, share": ("distinct",),
    "accuracy": ("accuracy",),
    "exact match, dev": ("em", "span_em"),
    "staleness of the index, steps": ("staleness",),
    "tokens a second": ("tokens/s",),
    "model-FLOPs utilisation": ("utilisation",),
}
"""Titles of panels, and the figures in them."""
KINDS = (".png", ".svg", ".pdf")
_STYLES = ("-", "--", ":", "-.")
"""Line styles of a panel's figures, in their order."""
_MEAN = 0.02
"""Share of a run's rows that the running mean covers."""


def check_plot(out: Path) -> None:
    """Set matplotlib up to draw into files, and make the folder of ``out``.

    Raises:
        BadInput: ``out`` is no name of a picture.
        MissingExtra: matplotlib is not installed.
    """
    if out.suffix not in KINDS:
        raise BadInput(f"{out}: the name of a picture ends in {', '.join(KINDS)}")
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtra("a plot", "eval") from error
    matplotlib.use("Agg")


def plot(runs: Sequence[Path], out: Path, *, names: Sequence[str] = ()) -> None:
    """Draw ``runs`` into the file ``out``.

    Raises:
        BadInput: a directory holds no figures, or ``out`` is no name of a picture.
        MissingExtra: matplotlib is not installed.
    """
    check_plot(out)
    logs = [_points(run) for run in runs]
    if empty := [run for run, rows in zip(runs, logs, strict=True) if not rows]:
        below = sorted({str(file.parent) for run in empty for file in run.glob("*/metrics.jsonl")})
        there = f"; there are runs in {', '.join(below)}" if below else ""
        raise BadInput(f"{', '.join(map(str, empty))}: no metrics.jsonl with figures there{there}")
    from matplotlib import pyplot
    from matplotlib.lines import Line2D

    panels = {title: each for title, each in PANELS.items() if any(_has(rows, each) for rows in logs)}
    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(lines, columns, figsize=(5 * columns, 3.2 * lines), squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    for axis, (title, fields) in zip(axes.flat, panels.items(), strict=False):
        styles = dict(
            zip((field for field in fields if any(_has(rows, [field]) for rows in logs)), _STYLES, strict=False)
        )
        for colour, rows in enumerate(logs):
            for field, style in styles.items():
                _draw(axis, rows, field, f"C{colour}", style)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("step", fontsize=8)
        if len(fields) > 1:
            drawn = [Line2D([], [], color="black", ls=style) for style in styles.values()]
            axis.legend(drawn, styles, fontsize=7, loc="upper right")
    labels = names or [run.name for run in runs]
    colours = [Line2D([], [], color=f"C{colour}", lw=2) for colour in range(len(runs))]
    figure.tight_layout(rect=(0, 0.3 / (3.2 * lines), 1, 1))
    figure.legend(colours, labels, loc="lower center", ncols=6, fontsize=9, frameon=False)
    figure.savefig(out, dpi=110)
    pyplot.close(figure)


def _points(run: Path) -> list[dict[str, Any]]:
    """Return the figures of a run that have a panel, a row for each step that has any."""
    drawn = {field for fields in PANELS.values() for field in fields}
    found = []
    for row in read_rows(run):
        points = {name: value for name, value in row.items() if name in drawn and isinstance(value, int | float)}
        if points and isinstance(row.get("step"), int):
            found.append({"step": row["step"], **points})
    return found


def _has(rows: list[dict[str, Any]], fields: Sequence[str]) -> bool:
    return any(field in row for row in rows for field in fields)


def _draw(axis: Any, rows: list[dict[str, Any]], field: str, colour: str, style: str) -> None:
    points = [(row["step"], row[field]) for row in rows if row.get(field) is not None]
    if not points:
        return
    steps, values = (np.array(column, float) for column in zip(*points, strict=True))
    window = max(1, int(_MEAN * len(points))) if len(points) > 100 else 1
    if window > 1:
        axis.plot(steps, values, color=colour, lw=0.4, alpha=0.25)
        weights = np.convolve(np.ones(len(values)), np.ones(window), "same")
        values = np.convolve(values, np.ones(window), "same") / weights
    axis.plot(steps, values, style, color=colour, lw=1.4, marker="." if len(points) < 40 else "")


def main() -> None:
    """Run the command line."""
    from ragqa.settings.command_line import report_errors

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="directories of runs")
    parser.add_argument("--out", type=Path, required=True, help=f"picture to write: {', '.join(KINDS)}")
    parser.add_argument("--names", nargs="*", default=(), help="names of the runs, in their order")
    args = parser.parse_args()
    with report_errors("pipelines.common.plot"):
        if args.names and len(args.names) != len(args.runs):
            raise BadInput(f"{len(args.names)} names for {len(args.runs)} runs")
        plot(args.runs, args.out, names=args.names)
    print(args.out)


if __name__ == "__main__":
    main()
