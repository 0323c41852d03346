"""A tiny data set of made-up words: one passage per fact, and a question about each."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ragqa.indexing.build import IndexConfig, build_index


@dataclass(frozen=True)
class TinyWorld:
    """Paths of the index and of the question files."""

    corpus: Path
    train: Path
    dev: Path


def write(root: Path, *, facts: int = 40, asked: int = 10, retriever: str = "bm25", seed: int = 0) -> TinyWorld:
    """Write ``facts`` passages "… entity … object …"; dev asks about the last ``asked``, train about the others.

    The words w0 to w19 are common, an entity is one of w100 and so on, its object one of w600 and so on.
    """
    rng = np.random.default_rng(seed)
    passages, questions = [], []
    for fact in range(facts):
        entity, thing = f"w{100 + fact}", f"w{600 + int(rng.integers(facts))}"
        before, after = (" ".join(f"w{word}" for word in rng.integers(0, 20, 4)) for _ in range(2))
        passages.append({"id": str(fact), "text": f"{before} {entity} w50 {thing} {after}"})
        questions.append({"question": f"w60 w61 {entity}", "answers": [thing]})
    root.mkdir(parents=True, exist_ok=True)
    for name, rows in (
        ("passages", passages),
        ("train", questions[: facts - asked]),
        ("dev", questions[facts - asked :]),
    ):
        (root / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    build_index([root / "passages.jsonl"], root / "corpus.index", IndexConfig(retriever=retriever))
    return TinyWorld(root / "corpus.index", root / "train.jsonl", root / "dev.jsonl")
