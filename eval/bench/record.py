"""Record measured figures with the command and the machine of the measurement."""

import datetime
import json
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from eval.command import format_command_line
from ragqa import artefacts
from ragqa.artefacts.machine import describe_hardware
from ragqa.terminal import print_json

_PACKAGES = ("numpy", "onnxruntime", "tokenizers", "tantivy", "pyarrow", "torch", "transformers", "faiss-cpu", "ray")


def write_record(out: Path, figures: Mapping[str, Any], *, corpus: str, questions: str) -> None:
    """Write figures into a JSON file, with date, command, machine and versions of packages.

    Args:
        out: file to write; after an error it is unchanged.
        figures: figures as JSON values, by their names.
        corpus: description of the corpus.
        questions: description of the questions.
    """
    row = {
        "date": datetime.date.today().isoformat(),
        "command": format_command_line(),
        "hardware": describe_hardware(),
        "packages": {name: version for name in _PACKAGES if (version := _installed_version(name))},
        "corpus": corpus,
        "questions": questions,
        **figures,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    artefacts.write_text_whole(out, json.dumps(row, indent=1, ensure_ascii=False) + "\n")


def report(out: Path, figures: Mapping[str, Any], *, corpus: str, questions: str) -> None:
    """Write a record and print its figures; the arguments are as for ``write_record``."""
    write_record(out, figures, corpus=corpus, questions=questions)
    print_json(figures, indent=1)


def summarize_latency(seconds: Sequence[float], percentile: int = 95) -> dict[str, float]:
    """Return the median and another percentile in milliseconds: ``p50_ms`` and ``pNN_ms``."""
    return {f"p{share}_ms": round(1000 * float(np.percentile(seconds, share)), 1) for share in (50, percentile)}


def _installed_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
