"""Write a measurement: the figures, the command that made them, the machine they were made on."""

import datetime
import json
from importlib import metadata
from pathlib import Path
from typing import Any

from eval.command import command
from ragqa import artefacts
from ragqa.artefacts.machine import describe_hardware

_PACKAGES = ("numpy", "onnxruntime", "tokenizers", "tantivy", "pyarrow", "torch", "transformers", "faiss-cpu", "ray")


def record(out: Path, figures: dict[str, Any], *, corpus: str, questions: str) -> None:
    """Write ``out`` with ``figures``, and print these; ``corpus`` and ``questions`` say what they were measured on."""
    note(out, figures, corpus=corpus, questions=questions)
    print(json.dumps(figures, indent=1, ensure_ascii=False))


def note(out: Path, figures: dict[str, Any], *, corpus: str, questions: str) -> None:
    """Write ``out`` alone, whole or not at all."""
    row = {
        "date": datetime.date.today().isoformat(),
        "command": command(),
        "hardware": describe_hardware(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "corpus": corpus,
        "questions": questions,
        **figures,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    artefacts.write_text_whole(out, json.dumps(row, indent=1, ensure_ascii=False) + "\n")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
