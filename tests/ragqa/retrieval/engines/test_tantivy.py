"""BM25 by Tantivy: scores worked out from the formula, hostile questions, ties, damage."""

import json
import lzma
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ragqa.errors import BadInput, DamagedArtefact, MissingExtra
from ragqa.retrieval.bm25 import BM25, check_engine
from ragqa.retrieval.engines import tantivy
from tests.helpers.passages import PassageList
from tests.helpers.terms import build_and_open, score_by_formula

K1, B = 1.2, 0.75


def test_scores_match_the_formula(tmp_path: Path) -> None:
    texts = ["cat dog", "cat cat bird fish", "dog bird bird", "fish", "cat dog bird fish sea sea sea"]
    index = build_and_open(tmp_path, "tantivy", texts)
    for question in ("cat", "sea bird", "cat dog bird fish sea", "cat cat dog", "cat unicorn"):
        expected = score_by_formula([text.split() for text in texts], question.split(), k1=K1, b=B)
        (found,) = index.rank([question], 10)
        assert found.rows.tolist() == sorted(expected, key=lambda row: (-expected[row], row))
        np.testing.assert_allclose(found.scores, [(K1 + 1) * expected[row] for row in found.rows], rtol=1e-5)
    assert (found.rows.dtype, found.scores.dtype) == (np.int64, np.float32)


def test_words_are_folded_and_stemmed_and_stop_words_dropped(tmp_path: Path) -> None:
    index = build_and_open(tmp_path, "tantivy", ["The runners were RUNNING", "a Café in Zürich", "it is the and of"])
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
    index = build_and_open(tmp_path, "tantivy", ["first", "second", "third"], ["", "Marie Curie", "Curie point"])
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
    index = build_and_open(tmp_path, "tantivy", ["cat", "dog", "bird"])
    (found,) = index.rank([question], 5)
    expected = [row for row, word in enumerate(("cat", "dog", "bird")) if word in question]
    assert found.rows.tolist() == expected
    assert (found.rows.dtype, found.scores.dtype) == (np.int64, np.float32)


def test_a_long_question_is_cut_to_256_terms(tmp_path: Path) -> None:
    index = build_and_open(tmp_path, "tantivy", [f"word{i}" for i in range(400)])
    long = " ".join(f"word{i}" for i in range(400))
    assert index.rank([long], 400)[0].rows.tolist() == list(range(tantivy.MAX_TERMS))
    start = time.process_time()
    assert len(index.rank([f"{long} " * 400], 400)[0]) == tantivy.MAX_TERMS
    assert time.process_time() - start < 5


def test_equal_scores_are_ordered_by_row_for_every_k(tmp_path: Path) -> None:
    shelf = PassageList(["rare cat" if i in (1500, 2500) else "a cat" for i in range(3000)])
    BM25.build(shelf, tmp_path)
    readded = np.arange(0, 3000, 2)  # rows deleted and added again form a second segment
    BM25.update(tmp_path, engine="tantivy", deleted=readded, added=[shelf.passages[row] for row in readded])
    index = BM25.open(tmp_path, engine="tantivy")
    assert index._engine._searcher.num_segments > 1, "one segment would be in order anyway"
    for k in (1, 2, 3, 7, 100, 2999, 3000, 5000):
        (found,) = index.rank(["rare cat"], k)
        others = [row for row in range(3000) if row not in (1500, 2500)]
        assert found.rows.tolist() == [1500, 2500, *others][:k]
        assert len(set(found.scores[2:].tolist())) <= 1


def test_a_batch_ranks_like_single_questions(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{i}" for i in rng.integers(0, 50, size=12)) for _ in range(200)]
    questions = [" ".join(f"w{i}" for i in rng.integers(0, 60, size=4)) for _ in range(50)]
    index = build_and_open(tmp_path, "tantivy", texts)
    for question, together in zip(questions, index.rank(questions, 7), strict=True):
        (alone,) = index.rank([question], 7)
        assert together.rows.tolist() == alone.rows.tolist()
        assert together.scores.tolist() == alone.scores.tolist()
        expected = score_by_formula([text.split() for text in texts], question.split(), k1=K1, b=B)
        best = [(K1 + 1) * score for score in sorted(expected.values(), reverse=True)[:7]]
        np.testing.assert_allclose(alone.scores, best, rtol=1e-5)


def test_an_empty_store_and_an_empty_batch_give_nothing(tmp_path: Path) -> None:
    index = build_and_open(tmp_path, "tantivy", [])
    assert [len(found) for found in index.rank(["cat", ""], 3)] == [0, 0]
    assert index.rank([], 3) == []
    with pytest.raises(BadInput, match="k = 0"):
        index.rank(["cat"], 0)


def test_progress_counts_passages(tmp_path: Path) -> None:
    counts: list[int] = []
    BM25.build(PassageList(["cat"] * 7), tmp_path / "terms", progress=counts.append)
    assert counts == [3, 6, 7]


def test_neither_texts_nor_positions_are_stored(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    build_and_open(tmp_path, "tantivy", [" ".join(f"w{i}" for i in rng.integers(0, 9999, size=50)) for _ in range(200)])
    for suffix in ("store", "pos"):
        assert sum(file.stat().st_size for file in (tmp_path / "terms").glob(f"*.{suffix}")) < 3000


def test_a_missing_or_damaged_index_is_reported(tmp_path: Path) -> None:
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(DamagedArtefact, match="make the index again"):
            BM25.open(folder, engine="tantivy")
    build_and_open(tmp_path, "tantivy", ["cat", "dog"])
    for suffix in ("idx", "term", "fast"):
        for file in (tmp_path / "terms").glob(f"*.{suffix}"):
            whole = file.read_bytes()
            for content in (whole[: len(whole) // 2], whole):
                # Not in place: a process that has mapped a file dies if the file becomes shorter.
                (tmp_path / "aside").write_bytes(content)
                (tmp_path / "aside").replace(file)
                if content != whole:
                    with pytest.raises(DamagedArtefact, match="make the index again"):
                        BM25.open(tmp_path / "terms", engine="tantivy").rank(["cat"], 2)
    assert BM25.open(tmp_path / "terms", engine="tantivy").rank(["cat"], 2)[0].rows.tolist() == [0]


@pytest.mark.parametrize("schema", [[], "[" * 10_000], ids=["empty", "long"])
def test_a_schema_that_is_not_ours_is_reported_in_a_short_message(tmp_path: Path, schema: object) -> None:
    build_and_open(tmp_path, "tantivy", ["cat"])
    meta = tmp_path / "terms" / "meta.json"
    meta.write_text(json.dumps({**json.loads(meta.read_text()), "schema": schema}))
    with pytest.raises(DamagedArtefact, match="make the index again") as caught:
        BM25.open(tmp_path / "terms", engine="tantivy")
    assert len(str(caught.value)) < len(str(tmp_path)) + 400


def test_a_read_only_index_can_be_searched_and_is_left_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Access is faked, because root may write anywhere."""
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{i}" for i in rng.integers(0, 99, size=9)) for _ in range(500)]
    expected = build_and_open(tmp_path, "tantivy", texts).rank(texts, 5)
    for lock in (tmp_path / "terms").glob("*.lock"):
        lock.unlink()
    before = sorted((tmp_path / "terms").iterdir())
    monkeypatch.setattr(tantivy.os, "access", lambda path, mode: False)
    found = BM25.open(tmp_path / "terms", engine="tantivy").rank(texts, 5)
    assert [each.rows.tolist() for each in found] == [each.rows.tolist() for each in expected]
    assert sorted((tmp_path / "terms").iterdir()) == before


def test_all_files_have_the_mode_of_new_files(tmp_path: Path) -> None:
    build_and_open(tmp_path, "tantivy", ["cat"])
    (tmp_path / "new").touch()
    modes = {file.name: file.stat().st_mode for file in (tmp_path / "terms").iterdir()}
    assert set(modes.values()) == {(tmp_path / "new").stat().st_mode}, modes


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "terms").mkdir()
    (tmp_path / "terms" / "meta.json").write_text("no index")
    with pytest.raises(BadInput, match="cannot write the terms into"):
        BM25.build(PassageList(["cat"]), tmp_path / "terms")


def test_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="engine sphinx: choose one of tantivy, lucene"):
        BM25.open(tmp_path, engine="sphinx")
    with pytest.raises(BadInput, match="engine sphinx"):
        BM25.build(PassageList(["cat"]), tmp_path, engine="sphinx")


def test_without_tantivy_the_error_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_and_open(tmp_path, "tantivy", ["cat"])
    monkeypatch.setitem(sys.modules, "tantivy", None)
    for use in (
        lambda: check_engine("tantivy"),
        lambda: BM25.build(PassageList(["cat"]), tmp_path / "new"),
        lambda: BM25.open(tmp_path / "terms", engine="tantivy"),
    ):
        with pytest.raises(MissingExtra, match="needs the package 'tantivy'; install it: pip install tantivy"):
            use()


def test_dense_retrieval_imports_no_tantivy() -> None:
    code = "import sys, ragqa.retrieval.hybrid, ragqa.retrieval.bm25; print('tantivy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.slow
def test_recall_on_squad_paragraphs_matches_the_recorded_figures(tmp_path: Path, shared_data: Path) -> None:
    """Recall of gold paragraphs @1/5/20: dev questions over the paragraphs of SQuAD 1.1 train and dev-a."""
    texts: list[str] = []
    questions: list[tuple[str, int]] = []
    for part in ("dev-a", "train"):
        with lzma.open(shared_data / "squad" / f"{part}-v1.1.json.xz", "rt") as file:
            for article in json.load(file)["data"]:
                for paragraph in article["paragraphs"]:
                    if part == "dev-a":
                        questions += [(question["question"], len(texts)) for question in paragraph["qas"]]
                    texts.append(paragraph["context"])
    index = build_and_open(tmp_path, "tantivy", texts)
    found = index.rank([question for question, _ in questions], 20)
    ranks = [np.flatnonzero(each.rows == gold) for each, (_, gold) in zip(found, questions, strict=True)]
    recall = [np.mean([len(rank) > 0 and rank[0] < k for rank in ranks]) for k in (1, 5, 20)]
    np.testing.assert_allclose(recall, [0.747, 0.899, 0.954], atol=0.01)
