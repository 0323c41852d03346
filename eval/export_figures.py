"""Export the figures of a report, without the texts of its questions, answers and passages.

    python -m eval.export_figures REPORT docs/measurements/NAME.json

The command writes a JSON file, and next to it a table with one row for each question (.tsv).
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from eval.command import run_command
from ragqa.artefacts import report_write_errors
from ragqa.errors import BadInput
from ragqa.evaluation import Report
from ragqa.evaluation.report.summary import describe_corpus, describe_questions
from ragqa.evaluation.tally import find_loss
from ragqa.settings.groups import POSITIONAL

_IN_SUITE = ("published", "source", "caution", "answer_type")
"""Keys of ``about`` that are not exported, because the file of the suite has their values."""


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """Settings of the export."""

    report: Annotated[Path, POSITIONAL]
    """Directory of a report."""
    out: Annotated[Path, POSITIONAL]
    """JSON file to write; the table gets the same name with .tsv."""


def check_place(out: Path) -> None:
    """Raise BadInput unless the name of the file to write ends in .json."""
    if out.suffix != ".json":
        raise BadInput(f"{out}: the name of the file must end in .json; a .tsv file is written next to it")


def export_figures(report: Report, out: Path) -> None:
    """Write the figures of a report into a JSON file, and a table of its questions.

    The file has the date, the machine and the command of the evaluation, not of the export.

    Args:
        report: report to export.
        out: JSON file; the table has the same name with the suffix ``.tsv``.

    Raises:
        BadInput: the name of ``out`` does not end in .json, or a file cannot be written.
    """
    check_place(out)
    about = {key: value for key, value in report.figures["about"].items() if key not in _IN_SUITE}
    first = {key: about.pop(key, None) for key in ("date", "command", "hardware")}
    record = {
        **first,
        "corpus": describe_corpus(about),
        "questions": describe_questions(about),
        **report.figures,
        "about": about,
    }
    missing = report.missing()
    lines = ["id\tem\tf1\tconfidence\trank\tloss"]
    for row in report.rows():
        em = "" if row.loss is None else int(row.em)
        values = (row.id, em, _format(row.f1), _format(row.confidence), row.rank or "", find_loss(row, missing))
        lines.append("\t".join(" ".join(str(value).split()) for value in values))
    with report_write_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        out.with_suffix(".tsv").write_text("\n".join(lines) + "\n")


def _format(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def main(config: ExportConfig) -> None:
    """Export the figures of the report that the settings name.

    Raises:
        RagqaError: as for ``Report.load`` and ``export_figures``.
    """
    export_figures(Report.load(config.report), config.out)


if __name__ == "__main__":
    run_command(main, ExportConfig, __doc__)
