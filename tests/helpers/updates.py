"""An encoder without a model, and short ways to build, update and search an index."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from ragqa.corpus.store import PassageStore
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.indexing.update import UpdateReport, update_index
from ragqa.retrieval.base import Retriever
from ragqa.retrieval.registry import RetrieverKind

RETRIEVERS = sorted(RetrieverKind)
RETRIEVERS_OF_HYBRID = [kind for kind in RETRIEVERS if RetrieverKind.HYBRID.can_search_as(kind)]
"""Kinds that can search the index of ``make_index``, which is hybrid by default."""
TEXTS = {
    "cat": "a cat sat on the red mat",
    "dog": "a dog barked at the postman",
    "sea": "rain fell on the grey sea",
    "owl": "the owl flew over the old barn",
}
ALL_TERMS = "version cat dog sea owl"
"""A question with one term of each document and of the documents v<number>."""
Texts = dict[str, str]


class WordEncoder:
    """Encoder without a model: the vector of a text is the sum of random vectors of its words."""

    width = 64

    def __init__(self) -> None:
        self.fingerprint = "words"
        self.encoded: list[str] = []
        self._known: dict[str, np.ndarray] = {}

    def encode(self, texts: Sequence[str], on_done: Callable[[int], None] | None = None) -> np.ndarray:
        self.encoded.extend(texts)
        sums = [sum(self._word(word) for word in text.lower().split()) for text in texts]
        return np.stack([v / np.linalg.norm(v) for v in sums]).astype(np.float32)

    encode_questions = encode

    def _word(self, word: str) -> np.ndarray:
        if word not in self._known:
            self._known[word] = np.random.default_rng(list(word.encode())).standard_normal(self.width)
        return self._known[word]


def write_records(path: Path, texts: Texts) -> Path:
    rows = [{"id": name, "title": name, "text": text} for name, text in texts.items()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def make_index(folder: Path, texts: Texts = TEXTS, **config: object) -> Path:
    """Build the index ``docs.index`` of records."""
    folder.mkdir(exist_ok=True)
    out = folder / "docs.index"
    build_index([write_records(folder / "docs.jsonl", texts)], out, IndexConfig(**config))  # type: ignore[arg-type]
    return out


def apply_update(
    index: Path, add: Texts | None = None, delete: Sequence[str] = (), compact: bool | None = None, file: str = "new"
) -> UpdateReport:
    """Update an index with records of a file next to it."""
    paths = [write_records(index.with_name(f"{file}.jsonl"), add)] if add else []
    return update_index(index, add=paths, delete=delete, compact=compact)


def get_counts(report: UpdateReport) -> tuple[int, int, int, int]:
    return report.added, report.replaced, report.unchanged, report.deleted


def list_documents(index: Path) -> list[str]:
    """Return the document of each live passage, in order."""
    return [p.document for batch in PassageStore.open(index / "passages").iter_batches() for p in batch]


Found = list[tuple[str, int, str, float]]


def search_all(retriever: Retriever, questions: list[str], k: int = 1000) -> list[Found]:
    """Return document, start, text and score of the hits, equal scores sorted by document."""
    rows = [
        [(hit.passage.document, hit.passage.start, hit.passage.text, hit.score) for hit in hits]
        for hits in retriever.search(questions, k)
    ]
    return [sorted(each, key=lambda row: (-row[3], *row[:2])) for each in rows]


def search(retriever: Retriever, question: str, k: int = 1000) -> Found:
    return search_all(retriever, [question], k)[0]


def read_files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def list_neighbours(index: Path) -> list[str]:
    """List the files next to the index that are not documents."""
    return sorted(p.name for p in index.parent.iterdir() if p.suffix != ".jsonl")


def replace_encoders(monkeypatch: pytest.MonkeyPatch) -> WordEncoder:
    """Replace every encoder by one without a model."""
    words = WordEncoder()
    for module in ("retrieval.dense", "indexing.build", "indexing.compact", "indexing.update"):
        monkeypatch.setattr(f"ragqa.{module}.load_encoder", lambda *_, **__: words)
    return words


def update_repeatedly(index: Path, number: int, before: Callable[[], object] = lambda: None) -> None:
    """Replace the documents whose names begin with v by document v<number>."""
    old = [name for name in list_documents(index) if name.startswith("v") and name != f"v{number}"]
    file = write_records(index.with_name("new.jsonl"), {f"v{number}": f"version {number} is here"})
    before()
    update_index(index, add=[file], delete=old, compact=number % 2 == 0)
