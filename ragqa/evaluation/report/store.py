"""A finished evaluation on disk.

report.json     the figures (``Report.figures``)
rows.jsonl      a line a question (``Report.rows``)
missing.json    numbers of the questions whose answers the corpus lacks; null where nobody looked
report.html     to look at
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragqa import artefacts
from ragqa.errors import ArtefactError, DamagedArtefact
from ragqa.evaluation.coverage import Missing
from ragqa.evaluation.figures import figures
from ragqa.evaluation.rows import Row
from ragqa.evaluation.tally import Tally

FIGURES, ROWS, MISSING, PAGE = "report.json", "rows.jsonl", "missing.json", "report.html"


@dataclass(frozen=True)
class Report:
    """A finished evaluation, as it lies in the directory ``path``."""

    path: Path
    figures: dict[str, Any]

    @classmethod
    def load(cls, path: str | Path) -> "Report":
        """The report in the directory ``path``.

        Raises:
            ArtefactError, DamagedArtefact: there is none, or it is not whole.
        """
        folder = Path(path)
        artefacts.read_manifest(folder, "report")
        return cls(folder, json.loads((folder / FIGURES).read_text(encoding="utf-8")))

    def rows(self) -> Iterator[Row]:
        """The questions in their order, one by one."""
        return read_rows(self.path)

    def missing(self) -> Missing | None:
        """Of which questions the corpus lacks answers or gold passages; None where nobody looked."""
        row = json.loads((self.path / MISSING).read_text())
        return None if row is None else Missing.from_json(row)

    @property
    def em(self) -> float | None:
        """Share of exact matches among the questions with gold answers; None where nothing was read."""
        return self.figures["em"] and float(self.figures["em"]["value"])

    @property
    def f1(self) -> float | None:
        """Mean F1 of the same; None where nothing was read, and for patterns."""
        return self.figures["f1"] and float(self.figures["f1"]["value"])


def renew(path: str | Path) -> Report:
    """Figures and page made anew from the rows, by this version of ragqa and with what is installed now.

    Whatever else lies in the folder stays; page and manifest need not be whole.

    Raises:
        ArtefactError, DamagedArtefact: no report, or its rows are not whole.
    """
    folder = Path(path)
    manifest = artefacts.peek_manifest(folder)
    if manifest.kind != "report":
        raise ArtefactError(f"{folder} is a ragqa {manifest.kind}, not a ragqa report")
    for name in (ROWS, FIGURES, MISSING):
        if not (folder / name).is_file() or artefacts.checksum(folder / name) != manifest.files[name]["sha256"]:
            raise DamagedArtefact(f"{folder / name} is damaged, and the report cannot be made anew without it")
    old = Report(folder, json.loads((folder / FIGURES).read_text(encoding="utf-8")))
    with artefacts.replace_directory(folder) as made:
        shutil.copytree(folder, made, dirs_exist_ok=True, ignore=shutil.ignore_patterns(artefacts.MANIFEST))
        write_report(made, old.figures["about"], old.missing())
    return Report.load(folder)


def read_rows(folder: Path) -> Iterator[Row]:
    """The rows in ``folder``, one by one; raises DamagedArtefact naming a line that is none."""
    with (folder / ROWS).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield Row.from_json(line)
            except (ValueError, KeyError, TypeError) as error:
                raise DamagedArtefact(f"{folder / ROWS}:{number} is not a row: {error!r}") from error


def write_report(folder: Path, about: dict[str, Any], missing: Missing | None) -> None:
    """Write figures and page of the rows in ``folder``, and seal it."""
    from ragqa.evaluation.report.page import page

    tally = Tally(read_rows(folder), regex=about["rule"] == "regex", missing=missing)
    made = figures(tally, about, missing)
    (folder / MISSING).write_text(json.dumps(missing and missing.to_json()) + "\n")
    text = json.dumps(made, indent=1, ensure_ascii=False) + "\n"
    (folder / FIGURES).write_bytes(text.encode("utf-8", "replace"))  # a file's name need not be valid text
    (folder / PAGE).write_text(page(Report(folder, made)), encoding="utf-8")
    artefacts.write_manifest(folder, "report", {"name": about["name"]}, {})
