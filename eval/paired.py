"""Two published tables of the same questions, paired: what a system gained on what it replaces.

    git show COMMIT:docs/measurements/reader/nq_wiki_bm25.tsv > before.tsv
    python -m eval.paired before.tsv docs/measurements/reader/nq_wiki_bm25.tsv

Two intervals that overlap say little of two systems that answer the same questions. Reports, where they are at hand,
are compared by ``ragqa eval compare``, which shows the questions, too.
"""

import argparse
import csv
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eval.command import one_line
from ragqa.artefacts import report_write_errors
from ragqa.errors import BadInput, Mismatch
from ragqa.evaluation.statistics import paired


def scores(table: Path) -> dict[str, float]:
    """Exact match of each question of a table that ``eval.publish`` wrote, by its id; BadInput where it is none."""
    with report_write_errors(table), table.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    try:
        found = {row["id"]: float(row["em"]) for row in rows if row["em"]}
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{table} is no table of eval.publish: {error!r}") from error
    if not found:
        raise BadInput(f"{table}: no question was answered")
    return found


def compared(before: Path, after: Path) -> dict[str, Any]:
    """Exact match of both, the difference with its interval, and p.

    Raises:
        BadInput: a file is no such table.
        Mismatch: they are of other questions.
    """
    ours, theirs = scores(after), scores(before)
    if ours.keys() != theirs.keys():
        raise Mismatch(f"{before} and {after} are of other questions: only the same ones compare")
    test = paired(list(ours.values()), [theirs[each] for each in ours])
    means = {name: sum(each.values()) / len(each) for name, each in {"before": theirs, "after": ours}.items()}
    return {"questions": len(ours), **means, "difference": asdict(test.difference), "p": test.p}


def main(arguments: Sequence[str] | None = None) -> None:
    """See above; the command line, or ``arguments``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--json", action="store_true", help="the figures as a JSON object")
    args = parser.parse_args(arguments)
    with one_line():
        found = compared(args.before, args.after)
        if args.json:
            print(json.dumps(found))
            return
        gain = found["difference"]
        before, after, value, low, high = (
            100 * each for each in (found["before"], found["after"], gain["value"], gain["low"], gain["high"])
        )
        print(
            f"{found['questions']:,} questions: EM {before:.1f} before, {after:.1f} after; "
            f"{value:+.1f} ({low:+.1f} to {high:+.1f}), p = {found['p']:.2g}"
        )


if __name__ == "__main__":
    main()
