"""Compare two recorded tables question by question: the gain of one system over another.

    git show COMMIT:docs/measurements/reader/nq_wiki_bm25.tsv > before.tsv
    python -m eval.paired before.tsv docs/measurements/reader/nq_wiki_bm25.tsv

Two intervals that overlap say little about two systems that answer the same questions. For whole reports use
``ragqa eval compare``, which also shows the questions.
"""

import csv
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eval.command import run_command
from ragqa.artefacts import report_write_errors
from ragqa.errors import BadInput, Mismatch
from ragqa.evaluation.statistics import compare_paired


@dataclass(frozen=True, kw_only=True)
class PairedConfig:
    """Two tables and the form of the result."""

    before: Path
    """Table of the system that is replaced."""
    after: Path
    """Table of the system that replaces it."""
    json: bool = False
    """Print the figures as one JSON object."""


def read_scores(table: Path) -> dict[str, float]:
    """Return the exact match of each question, by its id, from an exported table.

    Raises:
        BadInput: the file is no table of ``eval.export_figures``, or no question was answered.
    """
    with report_write_errors(table), table.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    try:
        scores = {row["id"]: float(row["em"]) for row in rows if row["em"]}
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{table} is no table of eval.export_figures: {error!r}") from error
    if not scores:
        raise BadInput(f"{table}: no question was answered")
    return scores


def compare_tables(before: Path, after: Path) -> dict[str, Any]:
    """Return the exact match of both, the difference with its interval, and p.

    Raises:
        BadInput: a file is no table of ``eval.export_figures``.
        Mismatch: the tables hold different questions.
    """
    new, old = read_scores(after), read_scores(before)
    if new.keys() != old.keys():
        raise Mismatch(f"{before} and {after} are of other questions: only the same ones compare")
    test = compare_paired(list(new.values()), [old[question] for question in new])
    means = {name: sum(scores.values()) / len(scores) for name, scores in {"before": old, "after": new}.items()}
    return {"questions": len(new), **means, "difference": asdict(test.difference), "p": test.p}


def format_comparison(figures: dict[str, Any]) -> str:
    """Return the figures of ``compare_tables`` in one line."""
    gain = figures["difference"]
    shares = (figures["before"], figures["after"], gain["value"], gain["low"], gain["high"])
    before, after, value, low, high = (100 * share for share in shares)
    return (
        f"{figures['questions']:,} questions: EM {before:.1f} before, {after:.1f} after; "
        f"{value:+.1f} ({low:+.1f} to {high:+.1f}), p = {figures['p']:.2g}"
    )


def main(config: PairedConfig) -> None:
    """Compare two recorded tables from the command line."""
    figures = compare_tables(config.before, config.after)
    print(json.dumps(figures) if config.json else format_comparison(figures))


if __name__ == "__main__":
    run_command(main, PairedConfig, __doc__, positional=True)
