"""Describe the results of builds and updates, as text or as one line of JSON."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ragqa import artefacts
from ragqa.corpus.sources import CorpusReport
from ragqa.indexing.update import UpdateReport
from ragqa.terminal import to_json, to_one_line
from ragqa.text import format_count


def format_build(report: CorpusReport, index: Path, *, as_json: bool = False) -> str:
    """Describe a build: its numbers of documents and passages, size, recall and problems.

    Args:
        report: report on the documents that were read.
        index: directory of the index.
        as_json: True for one line of JSON, False for text.

    Raises:
        ArtefactError, DamagedArtefact, Mismatch: as for ``peek_manifest``.
    """
    manifest = artefacts.peek_manifest(index)
    if as_json:
        settings = {name: manifest.config[name] for name in ("passages", "search")}
        return to_json({"index": str(index), **settings, **asdict(report)})
    size = sum(file["size"] for file in manifest.files.values()) / 1e6
    search = manifest.config["search"]
    documents = format_count(report.documents, "documents")
    passages = format_count(manifest.config["passages"], "passages")
    line = f"{documents}, {passages}, {size:.1f} MB in {to_one_line(str(index))}"
    return "\n".join([line, *([format_recall(search)] if search else []), *report.describe_problems()])


def format_recall(search: dict[str, Any]) -> str:
    """Describe the measured recall in one line, with a note if it can miss the target.

    Args:
        search: entry ``search`` of the configuration in an index's manifest.
    """
    sample = format_count(search["queries"], "made-up queries" if search["made_up"] else "questions")
    line = f"recall@20 {search['recall']:.3f} on {sample}"
    if search["sure"]:
        return line
    if search["recall"] >= search["wanted"]:
        return f"{line}: too few to confirm the target of {search['wanted']}"
    return f"{line}: below the target of {search['wanted']}, which no search setting reaches"


def format_update(report: UpdateReport, index: Path, *, as_json: bool = False) -> str:
    """Describe an update: documents by outcome, passages of the updated index, and problems.

    Args:
        report: result of the update.
        index: directory of the index.
        as_json: True for one line of JSON, False for text.
    """
    if as_json:
        return to_json({"index": str(index), **asdict(report)})
    kinds = ("added", "replaced", "unchanged", "deleted")
    counts = [f"{count} {kind}" for kind in kinds if (count := getattr(report, kind))]
    done = ", ".join([*counts, *["compacted"] * report.compacted]) or "nothing changed"
    line = f"{done}: {format_count(report.passages, 'passages')} in {to_one_line(str(index))} ({report.seconds:.1f} s)"
    return "\n".join([line, *report.corpus.describe_problems()])
