"""Searches during updates see either the whole old version or the whole new version."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ragqa import artefacts
from ragqa.errors import ArtefactError, Mismatch
from ragqa.evaluation.corpus_coverage import find_missing
from ragqa.evaluation.rows import Rule, SystemResult, score_result
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.pipeline import Pipeline
from ragqa.retrieval.base import Retriever
from ragqa.retrieval.live import LiveRetriever, open_retriever
from ragqa.types import Answer, Question
from tests.helpers.updates import (
    ALL_TERMS,
    RETRIEVERS_OF_HYBRID,
    WordEncoder,
    apply_update,
    make_index,
    replace_encoders,
    search,
    update_repeatedly,
    write_records,
)


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> WordEncoder:
    return replace_encoders(monkeypatch)


SEARCHER = """
import sys
from ragqa.retrieval.live import open_retriever
from pathlib import Path
retriever = open_retriever(Path(sys.argv[1]))
print("open", flush=True)
for question in sys.stdin:
    print(*sorted(hit.passage.document for hit in retriever.search([question], 10)[0]), flush=True)
"""


def test_another_process_sees_an_update_at_its_next_search(tmp_path: Path) -> None:
    index = make_index(tmp_path, retriever="bm25")
    with subprocess.Popen(
        [sys.executable, "-c", SEARCHER, index], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None

        def ask(question: str) -> list[str]:
            assert process.stdin is not None and process.stdout is not None
            print(question, file=process.stdin, flush=True)
            return process.stdout.readline().split()

        assert process.stdout.readline() == "open\n"
        assert ask("cat dog fox") == ["cat", "dog"]
        apply_update(index, {"fox": "a fox ran"}, ["cat"], compact=False)
        assert ask("cat dog fox") == ["dog", "fox"]
        apply_update(index, {"fox": "an owl, in truth"}, compact=True)
        assert ask("cat dog ran") == ["dog"]
        assert ask("truth") == ["fox"]
        build_index([write_records(tmp_path / "docs.jsonl", {"hen": "a hen"})], index, IndexConfig(retriever="bm25"))
        assert ask("cat dog hen") == ["hen"]
        process.stdin.close()


STRESSED = """
import sys
from pathlib import Path
from ragqa.retrieval.live import open_retriever
index, done = Path(sys.argv[1]), Path(sys.argv[2])
retriever, count = open_retriever(index, "bm25"), 0
print("open", flush=True)
while not done.with_name("stop").exists():
    at_least = int(done.read_text())
    for each in (retriever, open_retriever(index, "bm25")):
        hits = each.search(["version cat"], 10)[0]
        (version,) = [hit.passage.document for hit in hits if hit.passage.document != "cat"]
        assert len(hits) == 2 and int(version[1:]) >= at_least, (hits, at_least)
        count += 1
print(count)
"""


def test_deleted_passages_are_never_returned_during_updates(tmp_path: Path, encoder: WordEncoder) -> None:
    """A process and threads search continuously. No search fails or returns a passage deleted before its start."""
    index, done = make_index(tmp_path), tmp_path / "done"
    update_repeatedly(index, 1)
    done.write_text("1")
    process = subprocess.Popen(
        [sys.executable, "-c", STRESSED, index, done], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    retrievers = [open_retriever(index, retriever) for retriever in RETRIEVERS_OF_HYBRID]
    stop = False

    def search_until_done(retriever: Retriever) -> int:
        count = 0
        while not stop:
            at_least = int(done.read_text())
            hits = [row[0] for row in search(retriever, ALL_TERMS)]
            (version,) = [name for name in hits if name.startswith("v")]
            assert int(version[1:]) >= at_least
            assert len(hits) == 5
            count += 1
        return count

    try:
        assert process.stdout is not None and process.stdout.readline() == "open\n"
        with ThreadPoolExecutor(3) as pool:
            searches = [pool.submit(search_until_done, retriever) for retriever in retrievers]
            try:
                for number in range(2, 12):
                    update_repeatedly(index, number)
                    (tmp_path / "aside").write_text(str(number))
                    (tmp_path / "aside").rename(done)
            finally:
                stop = True
            assert all(each.result() > 0 for each in searches)
    finally:
        (tmp_path / "stop").touch()
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert int(out) > 0


def test_a_search_waits_while_directories_are_exchanged_in_two_steps(
    tmp_path: Path, encoder: WordEncoder, monkeypatch
) -> None:
    """For a moment there is no index, which must not disturb open pipelines."""
    index = make_index(tmp_path)
    monkeypatch.setattr(artefacts.atomic, "exchange_directories", lambda one, other: False)
    opened, searched = open_retriever(index, "dense"), []
    rename = os.rename

    def slow(source: str | Path, target: str | Path) -> None:
        rename(source, target)
        if Path(source) == index:
            assert not index.exists()
            searched.append(pool.submit(search, opened, "fox ran", 1))
            time.sleep(0.05)

    monkeypatch.setattr(os, "rename", slow)
    with ThreadPoolExecutor(1) as pool:
        apply_update(index, {"fox": "a fox ran"}, compact=False)
        assert [each.result()[0][0] for each in searched] == ["fox"]


def test_a_removed_index_is_reported(tmp_path: Path, encoder: WordEncoder, monkeypatch) -> None:
    monkeypatch.setattr("ragqa.retrieval.live.SWAP_SECONDS", 0.02)
    index = make_index(tmp_path)
    opened = open_retriever(index)
    index.rename(tmp_path / "elsewhere")
    for _ in range(2):
        with pytest.raises(ArtefactError, match=r"docs\.index does not exist"):
            opened.search(["cat"], 1)
    (tmp_path / "elsewhere").rename(index)
    assert search(opened, "cat", 1)[0][0] == "cat"


def test_a_version_is_opened_as_a_whole(tmp_path: Path, encoder: WordEncoder) -> None:
    """An index replaced while it is opened must not mix old passages with new terms."""
    index = make_index(tmp_path)
    updates = iter([{"fox": "a fox ran"}, {"hen": "a hen ran"}])
    opened_by_hand = []

    def load() -> Retriever:
        retriever = open_retriever(index).current()
        opened_by_hand.append(len(retriever.passages))
        for add in updates:
            apply_update(index, add, compact=False)
            break
        return retriever

    live = LiveRetriever(index, load)  # type: ignore[arg-type]
    assert len(live.passages) == 6
    assert opened_by_hand == [4, 5, 6]


def test_open_indexes_survive_a_change_of_directory(tmp_path: Path, encoder: WordEncoder, monkeypatch) -> None:
    index = make_index(tmp_path / "here")
    monkeypatch.chdir(tmp_path)
    opened = open_retriever(Path("here/docs.index"))
    monkeypatch.chdir("/")
    assert search(opened, "cat", 1)[0][0] == "cat"
    apply_update(index, {"fox": "a fox ran"})
    assert search(opened, "fox ran", 1)[0][0] == "fox"


def test_an_update_does_not_reload_the_encoder(tmp_path: Path, encoder: WordEncoder, monkeypatch) -> None:
    """Loading an encoder takes most of a second."""
    index = make_index(tmp_path)
    loaded = []
    monkeypatch.setattr("ragqa.retrieval.dense.load_encoder", lambda *_, **__: loaded.append(1) or encoder)
    opened = open_retriever(index)
    for number in range(3):
        update_repeatedly(index, number)
        assert f"v{number}" in [row[0] for row in search(opened, ALL_TERMS)]
    assert len(loaded) == 1
    encoder.fingerprint = "other words"
    build_index([write_records(tmp_path / "docs.jsonl", {"hen": "a hen"})], index)
    loaded.clear()
    monkeypatch.setattr("ragqa.retrieval.dense.load_encoder", lambda *_, **__: loaded.append(1) or other)
    other = WordEncoder()
    other.fingerprint = "other words"
    encoder.fingerprint = "words"
    assert search(opened, "hen", 1)[0][0] == "hen"
    assert len(loaded) == 1


def test_a_saved_pipeline_works_over_an_updated_index(tmp_path: Path, encoder: WordEncoder) -> None:
    """A pipeline accepts an update of its index, but not another index in its place."""
    index = make_index(tmp_path)
    Pipeline.load(index, k=3).save(tmp_path / "p")
    described = Pipeline.load(tmp_path / "p").describe()
    for number in range(2):
        update_repeatedly(index, number)
        pipeline = Pipeline.load(tmp_path / "p")
        assert search(pipeline.retriever, f"version {number}", 1)[0][0] == f"v{number}"
        now = pipeline.describe()
        assert now["index"] != described["index"] and now["corpus"] != described["corpus"]
        assert now["passages"] == 5
        pipeline.save(tmp_path / "p2")
        assert Pipeline.load(tmp_path / "p2").k == 3
    make_index(tmp_path, {"hen": "a hen"})
    for saved in ("p", "p2"):
        with pytest.raises(Mismatch, match="not the index it was saved with: save the pipeline again"):
            Pipeline.load(tmp_path / saved)


def test_corpus_coverage_ignores_deleted_passages(tmp_path: Path, encoder: WordEncoder) -> None:
    texts = {f"d{n}": f"text {n} holds answer{n}" for n in range(1100)}
    index = make_index(tmp_path, texts, retriever="bm25")
    apply_update(index, {"d1050": "text 1050 holds another"}, [f"d{n}" for n in range(100)], compact=False)
    nothing = SystemResult(Answer("?", None, 0.0, 0.0), [], [])
    answers = ("answer7", "answer500", "answer1050", "another")
    rows = [score_result(n, Question("?", (answer,)), nothing, Rule()) for n, answer in enumerate(answers)]
    assert find_missing(open_retriever(index).passages, rows).answers == {0, 2}
    rest = [f"d{n}" for n in range(100, 1100)]  # no row of the first 1,000 is left
    apply_update(index, {"new": "text holds answer7"}, rest, compact=False)
    assert find_missing(open_retriever(index).passages, rows).answers == {1, 2, 3}
