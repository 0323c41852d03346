"""Write the files of a report from its rows."""

import json
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ragqa import artefacts
from ragqa.artefacts.ownership import iter_other_files
from ragqa.errors import ArtefactError, DamagedArtefact
from ragqa.evaluation.corpus_coverage import Missing
from ragqa.evaluation.figures import compute_figures
from ragqa.evaluation.report.page import render_page
from ragqa.evaluation.report.store import FIGURES, MISSING, PAGE, ROWS, Report, read_rows
from ragqa.evaluation.tally import Tally


def write_report(
    folder: Path, about: dict[str, Any], missing: Missing | None, *, user_files: Collection[str] = ()
) -> None:
    """Write all files of a report but the rows, which it is computed from.

    Args:
        folder: directory of the report, which contains the rows.
        about: description of the run.
        missing: questions that the corpus does not cover; None if the corpus was not searched.
        user_files: relative paths of the user's files in ``folder``.

    Raises:
        DamagedArtefact: a line of the rows is not a row.
    """
    tally = Tally(read_rows(folder), regex=about["rule"] == "regex", missing=missing)
    figures = compute_figures(tally, about, missing)
    (folder / MISSING).write_text(json.dumps(missing and missing.to_json()) + "\n")
    text = json.dumps(figures, indent=1, ensure_ascii=False) + "\n"
    (folder / FIGURES).write_bytes(text.encode("utf-8", "replace"))  # file names need not be valid UTF-8
    (folder / PAGE).write_text(render_page(Report(folder, figures)), encoding="utf-8")
    artefacts.write_manifest(folder, "report", {"name": about["name"]}, {}, user_files=user_files)


def rebuild_report(path: str | Path) -> Report:
    """Compute the figures and the page of a report again from its rows.

    The user's files in the directory are kept. A damaged page is replaced.

    Raises:
        ArtefactError: the directory is not a report.
        BadInput: the directory cannot be written.
        DamagedArtefact: a file other than the page is damaged.
        Mismatch: a newer version of ragqa wrote the report.
    """
    folder = Path(path)
    manifest = artefacts.peek_manifest(folder)
    if manifest.kind != "report":
        raise ArtefactError(f"{folder} is a ragqa {manifest.kind}, not a ragqa report")
    for name in (ROWS, FIGURES, MISSING):
        if (
            name not in manifest.files
            or not (folder / name).is_file()
            or artefacts.checksum(folder / name) != manifest.files[name]["sha256"]
        ):
            raise DamagedArtefact(f"{folder / name} is damaged, and the report cannot be rebuilt without it")
    user_files = list(iter_other_files(folder, manifest.files))
    with artefacts.replace_directory(folder, copies_user_files=True) as rebuilt, artefacts.report_damage(folder):
        old = Report(folder, json.loads((folder / FIGURES).read_text(encoding="utf-8")))
        shutil.copytree(folder, rebuilt, dirs_exist_ok=True, ignore=shutil.ignore_patterns(artefacts.MANIFEST))
        write_report(rebuilt, old.figures["about"], old.missing(), user_files=user_files)
    return Report.load(folder)
