"""BM25 by Tantivy: scores worked out from the formula, hostile questions, ties, damage."""

import json
import lzma
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ragqa.errors import BadInput, DamagedArtefact, MissingExtra
from ragqa.retrieval import tantivy
from ragqa.retrieval.bm25 import BM25, check_engine
from ragqa.types import Passage

K1, B = 1.2, 0.75


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
    BM25.build(Shelf(texts, titles), folder / "terms")
    return BM25.open(folder / "terms", engine="tantivy")


def by_formula(texts: list[list[str]], question: list[str]) -> dict[int, float]:
    """The oracle: the score of every text with a term of the question (Robertson and Zaragoza 2009)."""
    average = sum(map(len, texts)) / len(texts)
    scores: dict[int, float] = {}
    for term in question:
        having = sum(term in text for text in texts)
        idf = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
        for row, text in enumerate(texts):
            if count := text.count(term):
                norm = count + K1 * (1 - B + B * len(text) / average)
                scores[row] = scores.get(row, 0) + idf * count * (K1 + 1) / norm
    return scores


def test_scores_are_those_of_the_formula(tmp_path: Path) -> None:
    texts = ["cat dog", "cat cat bird fish", "dog bird bird", "fish", "cat dog bird fish sea sea sea"]
    index = indexed(tmp_path, texts)
    for question in ("cat", "sea bird", "cat dog bird fish sea", "cat cat dog", "cat unicorn"):
        expected = by_formula([text.split() for text in texts], question.split())
        (found,) = index.rank([question], 10)
        assert found.rows.tolist() == sorted(expected, key=lambda row: (-expected[row], row))
        np.testing.assert_allclose(found.scores, [expected[row] for row in found.rows], rtol=1e-5)
    assert (found.rows.dtype, found.scores.dtype) == (np.int64, np.float32)


def test_words_are_folded_stemmed_and_rid_of_stop_words(tmp_path: Path) -> None:
    index = indexed(tmp_path, ["The runners were RUNNING", "a Café in Zürich", "it is the and of"])
    for question, rows in (
        ("run", [0]),
        ("runs!", [0]),
        ("cafe", [1]),
        ("CAFÉS", [1]),
        ("zurich", [1]),
        ("the and it", []),
    ):
        assert index.rank([question], 5)[0].rows.tolist() == rows


def test_the_title_is_searched_too(tmp_path: Path) -> None:
    index = indexed(tmp_path, ["first", "second", "third"], ["", "Marie Curie", "Curie point"])
    assert index.rank(["marie curie"], 5)[0].rows.tolist() == [1, 2]


HOSTILE = [
    "",
    " \t\n",
    "?!",
    "\x00",
    "\ud800",
    "the of and",
    '"',
    "(((",
    "text:cat AND",
    "row:[0 TO 5]",
    "cat~2 ^ \\ / { } *",
    "NOT cat",
    "+cat -dog",
    "'; DROP TABLE",
    "中文",
    "🦄" * 50,
    "x" * 100_000,
]


@pytest.mark.parametrize("question", HOSTILE, ids=range(len(HOSTILE)))
def test_no_character_of_a_question_is_syntax(tmp_path: Path, question: str) -> None:
    index = indexed(tmp_path, ["cat", "dog", "bird"])
    (found,) = index.rank([question], 5)
    expected = [row for row, word in enumerate(("cat", "dog", "bird")) if word in question]
    assert found.rows.tolist() == expected
    assert (found.rows.dtype, found.scores.dtype) == (np.int64, np.float32)


def test_a_million_characters_are_a_question_of_256_terms(tmp_path: Path) -> None:
    index = indexed(tmp_path, [f"word{i}" for i in range(400)])
    long = " ".join(f"word{i}" for i in range(400))
    assert index.rank([long], 400)[0].rows.tolist() == list(range(tantivy.MAX_TERMS))
    began = time.process_time()
    assert len(index.rank([f"{long} " * 400], 400)[0]) == tantivy.MAX_TERMS
    assert time.process_time() - began < 5


def test_equal_scores_are_in_order_of_rows_wherever_the_cut_is(tmp_path: Path) -> None:
    shelf = Shelf(["rare cat" if i in (1500, 2500) else "a cat" for i in range(3000)])
    BM25.build(shelf, tmp_path)
    again = np.arange(0, 3000, 2)  # taken out and put in again: a segment of its own, with every other row
    BM25.update(tmp_path, engine="tantivy", deleted=again, added=[shelf.passages[row] for row in again])
    index = BM25.open(tmp_path, engine="tantivy")
    assert index._engine._searcher.num_segments > 1, "one segment would be in order anyway"
    for k in (1, 2, 3, 7, 100, 2999, 3000, 5000):
        (found,) = index.rank(["rare cat"], k)
        others = [row for row in range(3000) if row not in (1500, 2500)]
        assert found.rows.tolist() == [1500, 2500, *others][:k]
        assert len(set(found.scores[2:].tolist())) <= 1


def test_many_questions_are_answered_as_each_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{i}" for i in rng.integers(0, 50, size=12)) for _ in range(200)]
    questions = [" ".join(f"w{i}" for i in rng.integers(0, 60, size=4)) for _ in range(50)]
    index = indexed(tmp_path, texts)
    for question, together in zip(questions, index.rank(questions, 7), strict=True):
        (alone,) = index.rank([question], 7)
        assert together.rows.tolist() == alone.rows.tolist()
        assert together.scores.tolist() == alone.scores.tolist()
        expected = by_formula([text.split() for text in texts], question.split())
        np.testing.assert_allclose(alone.scores, sorted(expected.values(), reverse=True)[:7], rtol=1e-5)


def test_an_empty_store_and_no_question(tmp_path: Path) -> None:
    index = indexed(tmp_path, [])
    assert [len(found) for found in index.rank(["cat", ""], 3)] == [0, 0]
    assert index.rank([], 3) == []
    with pytest.raises(BadInput, match="k = 0"):
        index.rank(["cat"], 0)


def test_progress_counts_passages(tmp_path: Path) -> None:
    told: list[int] = []
    BM25.build(Shelf(["cat"] * 7), tmp_path / "terms", progress=told.append)
    assert told == [3, 6, 7]


def test_neither_text_nor_positions_are_kept(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    indexed(tmp_path, [" ".join(f"w{i}" for i in rng.integers(0, 9999, size=50)) for _ in range(200)])
    for suffix in ("store", "pos"):
        assert sum(file.stat().st_size for file in (tmp_path / "terms").glob(f"*.{suffix}")) < 3000


def test_an_index_that_is_not_there_or_not_whole(tmp_path: Path) -> None:
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(DamagedArtefact, match="make the index again"):
            BM25.open(folder, engine="tantivy")
    indexed(tmp_path, ["cat", "dog"])
    for suffix in ("idx", "term", "fast"):
        for file in (tmp_path / "terms").glob(f"*.{suffix}"):
            whole = file.read_bytes()
            file.write_bytes(whole[: len(whole) // 2])
            with pytest.raises(DamagedArtefact, match="make the index again"):
                BM25.open(tmp_path / "terms", engine="tantivy").rank(["cat"], 2)
            file.write_bytes(whole)
    assert BM25.open(tmp_path / "terms", engine="tantivy").rank(["cat"], 2)[0].rows.tolist() == [0]


def test_an_index_that_may_only_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a read-only disk, in an image, in somebody else's folder; root writes anywhere, so access is faked."""
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{i}" for i in rng.integers(0, 99, size=9)) for _ in range(500)]
    expected = indexed(tmp_path, texts).rank(texts, 5)
    for lock in (tmp_path / "terms").glob("*.lock"):
        lock.unlink()
    before = sorted((tmp_path / "terms").iterdir())
    monkeypatch.setattr(tantivy.os, "access", lambda path, mode: False)
    found = BM25.open(tmp_path / "terms", engine="tantivy").rank(texts, 5)
    assert [each.rows.tolist() for each in found] == [each.rows.tolist() for each in expected]
    assert sorted((tmp_path / "terms").iterdir()) == before


def test_all_files_have_the_mode_of_new_files(tmp_path: Path) -> None:
    indexed(tmp_path, ["cat"])
    (tmp_path / "new").touch()
    modes = {file.name: file.stat().st_mode for file in (tmp_path / "terms").iterdir()}
    assert set(modes.values()) == {(tmp_path / "new").stat().st_mode}, modes


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "terms").mkdir()
    (tmp_path / "terms" / "meta.json").write_text("no index")
    with pytest.raises(BadInput, match="cannot write the terms into"):
        BM25.build(Shelf(["cat"]), tmp_path / "terms")


def test_an_engine_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="engine sphinx: choose one of tantivy, lucene"):
        BM25.open(tmp_path, engine="sphinx")
    with pytest.raises(BadInput, match="engine sphinx"):
        BM25.build(Shelf(["cat"]), tmp_path, engine="sphinx")


def test_without_tantivy_the_error_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    indexed(tmp_path, ["cat"])
    monkeypatch.setitem(sys.modules, "tantivy", None)
    for use in (
        lambda: check_engine("tantivy"),
        lambda: BM25.build(Shelf(["cat"]), tmp_path / "new"),
        lambda: BM25.open(tmp_path / "terms", engine="tantivy"),
    ):
        with pytest.raises(MissingExtra, match="needs the package 'tantivy'; install it: pip install tantivy"):
            use()


def test_dense_retrieval_imports_no_tantivy() -> None:
    code = "import sys, ragqa.retrieval.hybrid, ragqa.retrieval.bm25; print('tantivy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.slow
def test_squad_paragraphs_are_found(tmp_path: Path, shared_data: Path) -> None:
    """Gold paragraph @1/5/20 over all paragraphs of SQuAD 1.1 train and part of dev, questions of dev."""
    texts: list[str] = []
    asked: list[tuple[str, int]] = []
    for part in ("dev-a", "train"):
        with lzma.open(shared_data / "squad" / f"{part}-v1.1.json.xz", "rt") as file:
            for article in json.load(file)["data"]:
                for paragraph in article["paragraphs"]:
                    if part == "dev-a":
                        asked += [(question["question"], len(texts)) for question in paragraph["qas"]]
                    texts.append(paragraph["context"])
    index = indexed(tmp_path, texts)
    found = index.rank([question for question, _ in asked], 20)
    ranks = [np.flatnonzero(each.rows == gold) for each, (_, gold) in zip(found, asked, strict=True)]
    recall = [np.mean([len(rank) > 0 and rank[0] < k for rank in ranks]) for k in (1, 5, 20)]
    np.testing.assert_allclose(recall, [0.747, 0.899, 0.954], atol=0.01)
