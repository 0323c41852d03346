"""Write a measurement: the figures, the command that made them, the machine they were made on."""

import datetime
import json
from importlib import metadata
from pathlib import Path
from typing import Any

from eval.command import command
from ragqa.machine import hardware

_PACKAGES = ("numpy", "onnxruntime", "tokenizers", "tantivy", "pyarrow", "torch", "transformers", "faiss-cpu", "ray")


def record(out: Path, figures: dict[str, Any], *, corpus: str, questions: str) -> None:
    """Write ``out`` with ``figures``; ``corpus`` and ``questions`` say what they were measured on."""
    row = {
        "date": datetime.date.today().isoformat(),
        "command": command(),
        "hardware": hardware(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "corpus": corpus,
        "questions": questions,
        **figures,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(row, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps(figures, indent=1, ensure_ascii=False))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
