"""Report of an evaluation as a directory.

manifest.json   the manifest of the artefact
report.json     the figures (``Report.figures``)
rows.jsonl      a line for each question (``Row``)
missing.json    the questions whose answers or gold texts the corpus lacks, or null (``Report.missing``)
report.html     the page
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragqa import artefacts
from ragqa.errors import DamagedArtefact
from ragqa.evaluation.corpus_coverage import Missing
from ragqa.evaluation.rows import Row

FIGURES, ROWS, MISSING, PAGE = "report.json", "rows.jsonl", "missing.json", "report.html"


@dataclass(frozen=True)
class Report:
    """Report of an evaluation, stored in the directory ``path``."""

    path: Path
    figures: dict[str, Any]
    """Result of ``ragqa.evaluation.figures.compute_figures``."""

    @classmethod
    def load(cls, path: str | Path) -> "Report":
        """Load the report in the directory ``path``.

        Raises:
            ArtefactError: the directory is not a report.
            DamagedArtefact: a file of the report is missing or damaged.
            Mismatch: a newer version of ragqa wrote the report.
        """
        folder = Path(path)
        artefacts.read_manifest(folder, "report")
        with artefacts.report_damage(folder / FIGURES):
            return cls(folder, dict(json.loads((folder / FIGURES).read_text(encoding="utf-8"))))

    def rows(self) -> Iterator[Row]:
        """Yield the rows in the order of the questions.

        Raises:
            DamagedArtefact: a line is not a row.
        """
        return read_rows(self.path)

    def missing(self) -> Missing | None:
        """Return the questions that the corpus does not cover; None if the corpus was not searched."""
        row = json.loads((self.path / MISSING).read_text())
        return None if row is None else Missing.from_json(row)

    @property
    def em(self) -> float | None:
        """Share of exact matches, from 0 to 1, over answerable questions; None if not scored."""
        return self.figures["em"] and float(self.figures["em"]["value"])

    @property
    def f1(self) -> float | None:
        """Mean F1 over answerable questions, from 0 to 1.

        It is None if gold answers are patterns (regular expressions), or if no answer is scored.
        """
        return self.figures["f1"] and float(self.figures["f1"]["value"])


def read_rows(folder: Path) -> Iterator[Row]:
    """Yield the rows of a report in the directory ``folder``.

    Raises:
        DamagedArtefact: a line is not a row.
    """
    with (folder / ROWS).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield Row.from_json(line)
            except (ValueError, KeyError, TypeError) as error:
                raise DamagedArtefact(f"{folder / ROWS}:{number} is not a row: {error!r}") from error
