"""The figures of a report as they can be committed: a JSON file, and a line a question by its id, without texts.

python -m eval.publish REPORT --out docs/measurements/NAME.json
"""

import argparse
from pathlib import Path

from eval.bench.record import record
from ragqa.errors import BadInput
from ragqa.evaluation import Report
from ragqa.evaluation.summary import corpus, heading

_ELSEWHERE = ("published", "source", "caution", "answer_type")
"""What the suite's file says already."""


def publish(report: Report, out: Path) -> None:
    """Write ``out``, and beside it the table ``.tsv``: id, em, f1, confidence, rank of the first answer, loss."""
    if out.suffix != ".json":
        raise BadInput(f"{out}: the figures go into a .json file, and the questions beside it into a .tsv")
    about = {key: value for key, value in report.figures["about"].items() if key not in _ELSEWHERE}
    record(out, {**report.figures, "about": about}, corpus=corpus(about), questions=heading(about), show=False)
    lines = ["id\tem\tf1\tconfidence\trank\tloss"]
    lines += [
        f"{row.id}\t{int(row.em)}\t{_short(row.f1)}\t{_short(row.confidence)}\t{row.rank or ''}\t{row.loss}"
        for row in report.rows()
    ]
    out.with_suffix(".tsv").write_text("\n".join(lines) + "\n")


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    publish(Report.load(args.report), args.out)


if __name__ == "__main__":
    main()
