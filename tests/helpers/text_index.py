"""Small files of questions, and indexes of given texts."""

import json
from pathlib import Path
from typing import Any

from ragqa.corpus.store import PassageStore
from ragqa.indexing.build import IndexConfig, build_index


def write_rows(file: Path, rows: list[Any]) -> Path:
    """Write one JSON object per line."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def index_texts(folder: Path, texts: list[str], retriever: str = "bm25", encoder: str = "default") -> Path:
    """Build an index with one passage per text, in the same order."""
    file = write_rows(folder / "c.jsonl", [{"id": str(n), "text": text} for n, text in enumerate(texts)])
    build_index([file], folder / "c.index", IndexConfig(retriever=retriever, encoder=encoder))
    assert [p.text for p in PassageStore.open(folder / "c.index" / "passages").get(range(len(texts)))] == texts
    return folder / "c.index"
