"""The figures of a report as they can be committed: a JSON file, and a line a question by its id, without texts.

python -m eval.publish REPORT --out docs/measurements/NAME.json
"""

import argparse
import json
from pathlib import Path

from eval.command import one_line
from ragqa.artefacts import report_write_errors
from ragqa.errors import BadInput
from ragqa.evaluation import Report
from ragqa.evaluation.report.summary import corpus, heading
from ragqa.evaluation.tally import stage

_ELSEWHERE = ("published", "source", "caution", "answer_type")
"""What the suite's file says already."""


def check_place(out: Path) -> None:
    """Raise BadInput where ``publish`` could not write there."""
    if out.suffix != ".json":
        raise BadInput(f"{out}: the figures go into a .json file, and the questions beside it into a .tsv")


def publish(report: Report, out: Path) -> None:
    """Write ``out``, and beside it the table ``.tsv``: id, em, f1, confidence, rank of the first answer, loss.

    Date, machine and command are those of the run, not of the publishing.
    """
    check_place(out)
    about = {key: value for key, value in report.figures["about"].items() if key not in _ELSEWHERE}
    first = {key: about.pop(key, None) for key in ("date", "command", "hardware")}
    row = {**first, "corpus": corpus(about), "questions": heading(about), **report.figures, "about": about}
    missing = report.missing()
    lines = ["id\tem\tf1\tconfidence\trank\tloss"]
    for each in report.rows():
        em = "" if each.loss is None else int(each.em)
        values = (each.id, em, _short(each.f1), _short(each.confidence), each.rank or "", stage(each, missing))
        lines.append("\t".join(" ".join(str(value).split()) for value in values))
    with report_write_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(row, indent=1, ensure_ascii=False) + "\n")
        out.with_suffix(".tsv").write_text("\n".join(lines) + "\n")


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    with one_line():
        publish(Report.load(args.report), args.out)


if __name__ == "__main__":
    main()
