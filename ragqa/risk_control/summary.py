"""Describe the threshold that was chosen for an index, as text or as one line of JSON."""

from dataclasses import asdict
from pathlib import Path

from ragqa.risk_control.run import CurvePoint, RiskReport
from ragqa.terminal import to_json, to_one_line
from ragqa.text import format_count

FEW_QUESTIONS = 100
"""Number of questions below which the report calls the threshold uncertain."""
_COLUMNS = ("threshold", "answered", "wrong", "right declined", "unanswerable declined")


def format_report(report: RiskReport, index: Path, *, as_json: bool = False) -> str:
    """Return the threshold, its guarantee, and a table of shares by threshold, as text or JSON.

    Args:
        report: result of ``set_threshold``.
        index: directory of the index.
        as_json: True to return one line of JSON instead of text.
    """
    if as_json:
        return to_json({"index": str(index), **asdict(report)})
    stored = report.at_threshold
    others = [
        point for point in report.curve if stored is None or f"{point.threshold:.3f}" != f"{stored.threshold:.3f}"
    ]
    points = sorted([*others, *filter(None, [stored])], key=lambda point: point.threshold)
    rows = [_COLUMNS, *(_format_point(point) for point in points)]
    widths = [len(name) for name in _COLUMNS]
    table = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    if stored:
        table[points.index(stored) + 1] += "  <- stored"
    return "\n".join([*_format_head(report, index), "", *table])


def _format_head(report: RiskReport, index: Path) -> list[str]:
    source = "made from the documents" if report.is_made else "of the file"
    basis = f"{format_count(report.questions, 'questions')} {source}"
    if report.missing:
        basis += f"; asked without their documents with a weight of {_percent(report.missing)}"
    if report.threshold is None:
        return [basis]
    place = to_one_line(str(index))
    lines = [
        f"threshold {report.threshold:.3f} (before: {report.before:.3f}), stored in {place}",
        basis,
        f"Of questions like these, at most {_percent(report.risk)} are expected to get a wrong answer.",
        "For other questions, nothing is guaranteed.",
    ]
    if report.is_made and report.threshold == report.lowest:
        lines.append("This is the reader's own threshold: only questions of your own (--questions) can lower it.")
    if report.questions < FEW_QUESTIONS:
        lines.append("These are few questions, so the threshold is uncertain: give more of your own with --questions.")
    return lines


def _format_point(point: CurvePoint) -> tuple[str, ...]:
    shares = (point.answered, point.wrong, point.right_declined, point.missing_declined)
    return (f"{point.threshold:.3f}", *("–" if share is None else _percent(share) for share in shares))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %".replace(".0 %", " %")
