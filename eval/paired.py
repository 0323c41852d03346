"""Compare the recorded tables of two systems, question by question.

    git show COMMIT:docs/measurements/reader/nq_wiki_bm25.tsv > before.tsv
    python -m eval.paired before.tsv docs/measurements/reader/nq_wiki_bm25.tsv

The scores of two systems can differ significantly although their confidence intervals overlap, because both answered
the same questions. So this command computes the interval of the difference. For whole reports, use ``ragqa eval
compare``, which also shows the questions.
"""

import csv
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from eval.command import run_command
from ragqa.errors import BadInput, Mismatch
from ragqa.evaluation.statistics import compare_paired
from ragqa.settings.groups import POSITIONAL
from ragqa.terminal import print_text, to_json


@dataclass(frozen=True, kw_only=True)
class PairedConfig:
    """Settings of the comparison."""

    before: Annotated[Path, POSITIONAL]
    """Table (.tsv) of the old system."""
    after: Annotated[Path, POSITIONAL]
    """Table (.tsv) of the new system."""
    json: bool = False
    """Print the figures as one JSON object."""


def read_scores(table: Path) -> dict[str, float]:
    """Return the exact match of each question in an exported table, by the question's id.

    Questions without an exact match, which were not read, are left out.

    Raises:
        BadInput: the file cannot be read or is not such a table, or no question is left.
    """
    try:
        with table.open(encoding="utf-8", newline="") as lines:
            rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
            if not {"id", "em"} <= set(rows.fieldnames or ()):
                raise ValueError("no column of ids or of exact match")
            scores = {row["id"]: float(row["em"]) for row in rows if row["em"]}
        if not all(0 <= score <= 1 for score in scores.values()):
            raise ValueError("a score that is not from 0 to 1")
    except OSError as error:
        raise BadInput(f"{table} cannot be read: {error.strerror or error}") from error
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise BadInput(f"{table} is not a table (.tsv) that eval.export_figures or --record wrote") from error
    if not scores:
        raise BadInput(f"{table}: no question was answered")
    return scores


def compare_tables(before: Path, after: Path) -> dict[str, Any]:
    """Compare two systems on the same questions by their exact match.

    Args:
        before: table of the old system.
        after: table of the new system.

    Returns:
        ``questions``: number of questions. ``before`` and ``after``: exact match from 0 to 1. ``difference``: ``value``
        of after minus before, with its interval from ``low`` to ``high``. ``p``: p-value of the difference.

    Raises:
        BadInput: as for ``read_scores``.
        Mismatch: the tables have different questions.
    """
    new, old = read_scores(after), read_scores(before)
    if new.keys() != old.keys():
        raise Mismatch(f"{before} and {after} have different questions: compare tables of the same questions")
    test = compare_paired(list(new.values()), [old[question] for question in new])
    means = {name: sum(scores.values()) / len(scores) for name, scores in {"before": old, "after": new}.items()}
    return {"questions": len(new), **means, "difference": asdict(test.difference), "p": test.p}


def format_comparison(figures: dict[str, Any]) -> str:
    """Return one line with the figures of ``compare_tables``, in percent."""
    gain = figures["difference"]
    shares = (figures["before"], figures["after"], gain["value"], gain["low"], gain["high"])
    before, after, value, low, high = (100 * share for share in shares)
    return (
        f"{figures['questions']:,} questions: EM {before:.1f} before, {after:.1f} after; "
        f"{value:+.1f} ({low:+.1f} to {high:+.1f}), p = {figures['p']:.2g}"
    )


def main(config: PairedConfig) -> None:
    """Compare the two tables that the settings name, and print the result.

    Raises:
        BadInput, Mismatch: as for ``compare_tables``.
    """
    figures = compare_tables(config.before, config.after)
    print_text(to_json(figures) if config.json else format_comparison(figures))


if __name__ == "__main__":
    run_command(main, PairedConfig, __doc__)
