"""Updates: an index that was changed answers like one built afresh, at once, and nothing is ever half done."""

import errno
import io
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from conftest import DOCUMENTS, run

from ragqa import artefacts
from ragqa.artefacts.lock import hold_lock
from ragqa.corpus.blocks import make_word_splitter as word_blocks
from ragqa.corpus.store import PassageStore, PassageWriter
from ragqa.errors import ArtefactError, BadInput, BadLine, DamagedArtefact, Mismatch
from ragqa.evaluation.coverage import find_missing
from ragqa.evaluation.rows import Rule, SystemResult, score
from ragqa.indexing import update
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.indexing.summary import format_update
from ragqa.indexing.update import UpdateReport, update_index
from ragqa.pipeline import Pipeline
from ragqa.retrieval.base import Retriever
from ragqa.retrieval.live import LiveRetriever, open_retriever
from ragqa.retrieval.vectors.kinds import IndexKind
from ragqa.types import Answer, Question

RETRIEVERS = ["bm25", "dense", "hybrid"]
TEXTS = {
    "cat": "a cat sat on the red mat",
    "dog": "a dog barked at the postman",
    "sea": "rain fell on the grey sea",
    "owl": "the owl flew over the old barn",
}
EACH = "version cat dog sea owl"
"""A question that finds each of these, and ``versions``, by a term of its own."""
Texts = dict[str, str]


class WordEncoder:
    """Encoder without a model: the vector of a text is the sum of random vectors of its words."""

    width = 64

    def __init__(self) -> None:
        self.fingerprint = "words"
        self.encoded: list[str] = []
        self._known: dict[str, np.ndarray] = {}

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.encoded.extend(texts)
        sums = [sum(self._word(word) for word in text.lower().split()) for text in texts]
        return np.stack([v / np.linalg.norm(v) for v in sums]).astype(np.float32)

    encode_questions = encode

    def _word(self, word: str) -> np.ndarray:
        if word not in self._known:
            self._known[word] = np.random.default_rng(list(word.encode())).standard_normal(self.width)
        return self._known[word]


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> WordEncoder:
    """Replace every encoder by one without a model."""
    words = WordEncoder()
    for module in ("retrieval.dense", "indexing.build", "indexing.compact", "indexing.update"):
        monkeypatch.setattr(f"ragqa.{module}.load_encoder", lambda *_, **__: words)
    return words


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


# What an update does


@pytest.mark.parametrize("retriever", RETRIEVERS)
def test_add_replace_and_delete_at_once(tmp_path: Path, encoder: WordEncoder, retriever: str) -> None:
    index = make_index(tmp_path, retriever=retriever)
    before = open_retriever(index)
    report = apply_update(index, {"cat": "a cat slept in the sun", "fox": "a fox ran to the barn"}, ["dog"])
    assert get_counts(report) == (1, 1, 0, 1)
    assert report.passages == 4 and report.seconds > 0
    assert list_documents(index) == ["sea", "owl", "cat", "fox"]
    for searched in (before, open_retriever(index)):
        for question, document in (("cat slept", "cat"), ("fox ran", "fox"), ("the grey sea", "sea")):
            assert search(searched, question)[0][0] == document
        left = {row[2] for question in TEXTS.values() for row in search(searched, question)}
        assert left == {"a cat slept in the sun", "a fox ran to the barn", TEXTS["sea"], TEXTS["owl"]}
    assert list_neighbours(index) == ["docs.index"]


def test_adding_replacing_and_deleting_work_separately(tmp_path: Path, encoder: WordEncoder) -> None:
    index = make_index(tmp_path)
    assert get_counts(apply_update(index, {"fox": "a fox ran"})) == (1, 0, 0, 0)
    assert get_counts(apply_update(index, {"fox": "a fox slept"})) == (0, 1, 0, 0)
    assert get_counts(apply_update(index, {"fox": "a fox slept"})) == (0, 0, 1, 0)
    assert get_counts(apply_update(index, delete=["fox", "owl"])) == (0, 0, 0, 2)
    assert sorted(list_documents(index)) == ["cat", "dog", "sea"]
    report = apply_update(index, compact=True)
    assert get_counts(report) == (0, 0, 0, 0) and report.compacted


def test_open_pipelines_answer_from_the_new_text(folder: Path, index: Path, tmp_path: Path) -> None:
    """The models that come with the package, and a pipeline that is open meanwhile."""
    shutil.copytree(index, tmp_path / "copy.index")
    pipeline = Pipeline.load(tmp_path / "copy.index")
    question = "Who built Skarvik Lighthouse?"
    assert pipeline.ask(question).text == "Ada Holm"
    shutil.copytree(folder, tmp_path / "docs")
    lighthouse = tmp_path / "docs" / "lighthouse.md"
    lighthouse.write_text(DOCUMENTS["lighthouse.md"].replace("Ada Holm", "Carl Berg"))
    update_index(tmp_path / "copy.index", add=[lighthouse], delete=[str(folder / "lighthouse.md")])
    for asked in (pipeline, Pipeline.load(tmp_path / "copy.index")):
        answer = asked.ask(question)
        assert answer.text == "Carl Berg"
        assert answer.sources[0].hit.passage.path == str(lighthouse)
    assert Pipeline.load(index).ask(question).text == "Ada Holm"


@pytest.mark.parametrize("blocks", ["words", "sentences", "wordpieces"])
def test_documents_of_several_passages(tmp_path: Path, encoder: WordEncoder, blocks: str) -> None:
    long = " ".join(f"Sentence {n} is about number {n}." for n in range(30))
    index = make_index(tmp_path, {"long": long, "other": "something else"}, blocks=blocks, block_size=20)
    assert list_documents(index).count("long") > 5
    apply_update(index, {"long": "Sentence 3 is all that is left."}, compact=False)
    assert list_documents(index) == ["other", "long"]
    assert [row[0] for row in search(open_retriever(index, "bm25"), "sentence 29")] == ["long"]
    apply_update(index, {"long": long + " More."}, compact=False)
    fresh = make_index(
        tmp_path / "fresh", {"other": "something else", "long": long + " More."}, blocks=blocks, block_size=20
    )
    assert [search(open_retriever(i, "dense"), "sentence 12") for i in (index,)] == [
        search(open_retriever(fresh, "dense"), "sentence 12")
    ]


def test_an_index_is_compacted_once_a_fifth_is_deleted_or_added(tmp_path: Path, encoder: WordEncoder) -> None:
    texts = {f"d{n}": f"number {n} of these texts" for n in range(20)}
    index = make_index(tmp_path, texts)
    assert not apply_update(index, delete=["d3"]).compacted
    assert not apply_update(index, {"d21": "one more"}).compacted
    encoder.encoded.clear()
    report = apply_update(index, {"d4": "another text"}, ["d19"])  # 3 rows of 22 deleted, 2 added
    assert report.compacted and report.passages == 19
    assert len(encoder.encoded) == 1 and "another text" in encoder.encoded[0]
    left = {n: t for n, t in texts.items() if n not in ("d3", "d4", "d19")} | {"d21": "one more", "d4": "another text"}
    fresh = make_index(tmp_path / "fresh", left)
    assert (index / "dense" / "vectors.npy").read_bytes() == (fresh / "dense" / "vectors.npy").read_bytes()
    assert sorted(p.name for p in (index / "dense").iterdir()) == ["vectors.npy"]
    assert sorted(p.name for p in (index / "passages").iterdir()) == ["00000.arrow"]
    for retriever in RETRIEVERS:
        one, other = (open_retriever(i, retriever) for i in (index, fresh))
        assert search(one, "number 7 of texts") == search(other, "number 7 of texts")
    assert not apply_update(index, delete=["d7"]).compacted, "what was compacted counts as built"


def test_compact_false_never_compacts(tmp_path: Path, encoder: WordEncoder) -> None:
    index = make_index(tmp_path)
    assert not apply_update(index, {"dog": "a dog slept"}, ["cat", "sea"], compact=False).compacted
    assert list_documents(index) == ["owl", "dog"]
    assert [row[0] for row in search(open_retriever(index, "dense"), "dog", k=5)] == ["dog", "owl"]


# Like one built afresh


def random_text(rng: random.Random) -> str:
    return " ".join(f"w{int(rng.paretovariate(0.7)) % 60}" for _ in range(rng.randint(3, 35)))


def check_random_updates(folder: Path, seed: int, retriever: str) -> None:
    """Apply random updates and compactions; check the documents after each, and the last answers."""
    rng = random.Random(seed)
    config = {"retriever": retriever, "block_size": 10}
    texts = {f"d{n}": random_text(rng) for n in range(8)}
    index = make_index(folder, texts, **config)
    opened = open_retriever(index)
    for step in range(6):
        delete = rng.sample(sorted(texts), rng.randint(0, min(3, len(texts) - 1)))
        others = sorted(texts.keys() - set(delete))
        same = {name: texts[name] for name in rng.sample(others, rng.randint(0, min(2, len(others))))}
        add = same | {f"d{rng.randrange(15)}": random_text(rng) for _ in range(rng.randint(0 if delete else 1, 3))}
        gone = [name for name in delete if name not in add]
        report = apply_update(index, add, delete, rng.choice([None, None, False, True]), f"new{step % 2}")
        assert report.added == len(add.keys() - texts.keys()) and report.deleted == len(gone)
        assert report.added + report.replaced + report.unchanged == len(add)
        assert report.unchanged <= sum(texts.get(name) == text for name, text in add.items())  # not from another file
        texts = {name: text for name, text in texts.items() if name not in gone} | add
        spans = word_blocks(10)
        expected = sorted((name, text[i:j]) for name, text in texts.items() for i, j in spans(text, 0))
        live = [p for batch in PassageStore.open(index / "passages").iter_batches() for p in batch]
        assert sorted((p.document, p.text) for p in live) == expected
        assert sorted(row[::2] for row in search(opened, "w1 w2 w3")) == sorted(
            row[::2] for row in search(open_retriever(index), "w1 w2 w3")
        )
        if retriever != "bm25":
            assert len(search(opened, "w1")) == len(expected)
    fresh = make_index(folder / "fresh", texts, **config)
    questions = [random_text(rng) for _ in range(5)]
    for question in questions:
        if retriever != "bm25":
            one, other = (open_retriever(i, "dense") for i in (index, fresh))
            assert search(one, question) == search(other, question)
    apply_update(index, compact=True)
    one, other = (open_retriever(i) for i in (index, fresh))
    for question in questions:
        assert search(one, question) == search(other, question)


@pytest.mark.parametrize("seed", range(4))
def test_random_updates_equal_a_new_build(tmp_path: Path, encoder: WordEncoder, seed: int) -> None:
    check_random_updates(tmp_path, seed, RETRIEVERS[seed % 3])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_many_random_updates_equal_a_new_build(tmp_path: Path, encoder: WordEncoder, seed: int) -> None:
    check_random_updates(tmp_path, seed, RETRIEVERS[seed % 3])


@pytest.mark.parametrize("seed", range(3))
def test_adding_a_folder_again_equals_a_new_build(tmp_path: Path, encoder: WordEncoder, seed: int) -> None:
    """Files that number their records alike, emptied, doubled, changed and new ones; nothing is embedded twice."""
    rng, docs = random.Random(seed), tmp_path / "docs"
    docs.mkdir()
    texts = ["", *(f"text {n} of a few" for n in range(12))]  # few, so that doubles are frequent
    files: dict[str, Texts] = {"a": {"0": "the first of all"}}
    for step in range(8):
        for name in rng.sample("abc", 2):
            held = files.setdefault(name, {})
            held.update({str(rng.randrange(6)): rng.choice(texts) for _ in range(rng.randint(0, 3))})
            rows = [{"id": identifier, "text": text} for identifier, text in held.items()]
            (docs / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (docs / f"{rng.randrange(3)}.txt").write_text(rng.choice(texts))
        index, fresh = tmp_path / "x.index", tmp_path / f"{step}.index"
        if step == 0:
            build_index([docs], index)
        else:
            report = update_index(index, add=[docs], compact=rng.random() < 0.2)
            assert report.corpus.documents == report.added + report.replaced + report.unchanged
        build_index([docs], fresh)
        left, expected = (
            sorted(
                (p.document, p.path, p.start, p.text)
                for batch in PassageStore.open(i / "passages").iter_batches()
                for p in batch
            )
            for i in (index, fresh)
        )
        assert left == expected
        one, other = (open_retriever(i, "dense") for i in (index, fresh))
        assert search(one, "text 7 of a few") == search(other, "text 7 of a few")


@pytest.mark.parametrize("kind", IndexKind)
def test_recall_of_every_kind_equals_that_of_a_new_build(tmp_path: Path, encoder: WordEncoder, kind: str) -> None:
    """Recall@20 of the true best, by exact search over a fresh build, before and after the compaction."""
    if kind != "flat":
        pytest.importorskip("faiss", reason="needs the extra 'cpu'")
    rng = random.Random(0)
    texts = {f"d{n}": random_text(rng) for n in range(300)}
    index = make_index(tmp_path, texts, retriever="dense", kind=kind)
    delete, changed = [f"d{n}" for n in range(0, 300, 23)], {f"d{n}": random_text(rng) for n in range(277, 297)}
    report = apply_update(index, changed, delete)
    texts = {name: text for name, text in (texts | changed).items() if name not in delete}
    assert not report.compacted and report.passages == len(texts)
    fresh = open_retriever(make_index(tmp_path / "fresh", texts, retriever="dense"))
    questions = [random_text(rng) for _ in range(40)]
    truths = search_all(fresh, questions, 20)
    for _ in range(2):
        recall = []
        for truth, hits in zip(truths, search_all(open_retriever(index), questions, 20), strict=True):
            recall.append(len({row[:2] for row in truth} & {row[:2] for row in hits}) / 20)
            assert len(hits) == 20 and not {row[0] for row in hits} & set(delete)
            if kind == "flat":
                assert hits == truth
        assert np.mean(recall) >= 0.95
        apply_update(index, compact=True)


@pytest.mark.parametrize("kind", ["flat", "ivf-flat"])
def test_indexes_of_earlier_versions_are_updated_or_rejected(tmp_path: Path, encoder: WordEncoder, kind: str) -> None:
    """Their manifests have no search settings: flat works, other kinds must be rebuilt."""
    if kind != "flat":
        pytest.importorskip("faiss", reason="needs the extra 'cpu'")
    rng = random.Random(0)
    index = make_index(tmp_path, {f"d{n}": random_text(rng) for n in range(60)}, retriever="dense", kind=kind)
    manifest = artefacts.read_manifest(index, "index")
    old = {name: value for name, value in manifest.config.items() if name not in ("recall", "questions", "search")}
    artefacts.write_manifest(index, "index", old, manifest.parents)
    if kind == "flat":
        assert apply_update(index, {}, [f"d{n}" for n in range(30)]).compacted
        assert len(search(open_retriever(index), "king", 60)) == 30
    else:
        with pytest.raises(Mismatch, match="made by an earlier ragqa, which stored no search effort"):
            open_retriever(index)


def test_updates_work_without_the_sample_questions(tmp_path: Path, encoder: WordEncoder) -> None:
    pytest.importorskip("faiss", reason="needs the extra 'cpu'")
    rng, questions = random.Random(0), tmp_path / "q.jsonl"
    questions.write_text('{"question": "king", "answers": []}\n')
    texts = {f"d{n}": random_text(rng) for n in range(60)}
    index = make_index(tmp_path, texts, retriever="dense", kind="ivf-flat", questions=str(questions))
    assert artefacts.peek_manifest(index).config["search"]["made_up"] is False
    questions.write_text("no JSON")
    assert apply_update(index, {}, [f"d{n}" for n in range(30)]).compacted
    assert artefacts.peek_manifest(index).config["search"]["made_up"] is True


def test_bm25_before_a_compaction_finds_nearly_the_same(tmp_path: Path) -> None:
    """Tantivy counts documents that are deleted among those that have a term, until they are compacted away."""
    rng = random.Random(0)
    texts = {f"d{n}": random_text(rng) for n in range(300)}
    index = make_index(tmp_path, texts, retriever="bm25")
    delete, changed = [f"d{n}" for n in range(0, 300, 23)], {f"d{n}": random_text(rng) for n in range(277, 298)}
    apply_update(index, changed, delete, compact=False)
    texts = {name: text for name, text in (texts | changed).items() if name not in delete}
    updated, fresh = open_retriever(index), open_retriever(make_index(tmp_path / "fresh", texts, retriever="bm25"))
    recall = []
    for question in [random_text(rng) for _ in range(40)]:
        truth, hits = search(fresh, question, 20), search(updated, question, 20)
        recall.append(len({row[0] for row in truth} & {row[0] for row in hits}) / len(truth))
    assert np.mean(recall) >= 0.97, recall


# Which document is meant


def test_files_are_deleted_by_path_from_any_working_directory(
    tmp_path: Path, encoder: WordEncoder, monkeypatch
) -> None:
    notes, elsewhere = tmp_path / "notes", tmp_path / "elsewhere"
    (notes / "deep").mkdir(parents=True)
    elsewhere.mkdir()
    for name in ("a.txt", "b.txt", "deep/c.txt", "deep/d.txt"):
        (notes / name).write_text(f"the text of {name} is this")
    monkeypatch.chdir(elsewhere)
    build_index([Path("../notes")], tmp_path / "x.index")
    assert list_documents(tmp_path / "x.index") == [
        str(notes / n) for n in ("a.txt", "b.txt", "deep/c.txt", "deep/d.txt")
    ]
    monkeypatch.chdir(notes)
    (notes / "a.txt").write_text("something new")
    assert get_counts(update_index("../x.index", add=["a.txt"])) == (0, 1, 0, 0)
    monkeypatch.chdir(notes / "deep")
    (notes / "b.txt").write_text("something newer")
    assert get_counts(update_index("../../x.index", add=["./../b.txt"], delete=["c.txt"])) == (0, 1, 0, 1)
    (notes / "deep" / "d.txt").unlink()  # gone, and known all the same
    (notes / "a.txt").rename(notes / "e.txt")
    monkeypatch.chdir(elsewhere)
    report = update_index(tmp_path / "x.index", add=[notes], delete=["../notes/deep/d.txt", str(notes / "a.txt")])
    assert get_counts(report) == (2, 0, 1, 2)
    assert sorted(list_documents(tmp_path / "x.index")) == [str(notes / n) for n in ("b.txt", "deep/c.txt", "e.txt")]


def test_paths_through_symbolic_links_are_resolved(tmp_path: Path, encoder: WordEncoder, monkeypatch) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "real" / "a.txt").write_text("one text")
    (tmp_path / "link").symlink_to(tmp_path / "real" / "deep")
    (tmp_path / "a.txt").write_text("another text")
    build_index([tmp_path / "link" / ".." / "a.txt"], tmp_path / "x.index")
    assert list_documents(tmp_path / "x.index") == [str(tmp_path / "real" / "a.txt")]


def test_file_names_that_are_not_utf_8_can_be_deleted(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    file = tmp_path / "docs" / os.fsdecode(b"caf\xe9.txt")
    file.write_text("coffee")
    (tmp_path / "docs" / "other.txt").write_text("tea")
    write_records(tmp_path / "docs" / "r.jsonl", {"half \ud83d": "half of a pair"})
    build_index([tmp_path / "docs"], tmp_path / "x.index", IndexConfig(retriever="bm25"))
    file.write_text("more coffee")
    assert get_counts(update_index(tmp_path / "x.index", add=[file])) == (0, 1, 0, 0)
    assert get_counts(update_index(tmp_path / "x.index", delete=[str(file), "half \ud83d"])) == (0, 0, 0, 2)
    with pytest.raises(BadInput, match="no document has the id nobody \ufffd"):
        update_index(tmp_path / "x.index", delete=["nobody \ud83d"])


def test_unchanged_files_are_not_embedded_again(tmp_path: Path, encoder: WordEncoder) -> None:
    (tmp_path / "docs").mkdir()
    for name in TEXTS:
        (tmp_path / "docs" / f"{name}.txt").write_text(TEXTS[name])
    index = tmp_path / "x.index"
    build_index([tmp_path / "docs"], index)
    encoder.encoded.clear()
    before = read_files(index)
    report = update_index(index, add=[tmp_path / "docs"])
    assert get_counts(report) == (0, 0, 4, 0) and not report.compacted
    assert read_files(index) == before
    (tmp_path / "docs" / "cat.txt").write_text("a cat slept")
    (tmp_path / "docs" / "fox.txt").write_text("a fox ran")
    assert get_counts(update_index(index, add=[tmp_path / "docs"], compact=False)) == (1, 1, 3, 0)
    assert len(encoder.encoded) == 2 and all("slept" in text or "fox" in text for text in encoder.encoded)
    assert list_neighbours(index) == ["docs", "x.index"]


def test_deleting_what_is_added_unchanged_changes_nothing(tmp_path: Path, encoder: WordEncoder) -> None:
    index = make_index(tmp_path)
    assert get_counts(update_index(index, add=[tmp_path / "docs.jsonl"], delete=["cat"])) == (0, 0, 4, 0)
    assert get_counts(apply_update(index, {"cat": "a new cat"}, ["cat", "dog"], file="docs")) == (0, 1, 0, 1)
    assert sorted(list_documents(index)) == ["cat", "owl", "sea"]


def test_documents_that_became_empty_are_deleted(tmp_path: Path, encoder: WordEncoder) -> None:
    """A build would leave them out, too."""
    docs = tmp_path / "docs"
    for folder in ("a", "b"):
        (docs / folder).mkdir(parents=True)
        for name, text in TEXTS.items():
            (docs / folder / f"{name}.txt").write_text(f"in {folder} {text}")
    index = tmp_path / "x.index"
    build_index([docs], index)
    (docs / "a" / "cat.txt").write_text("  \n")
    (docs / "a" / "owl.txt").write_text((docs / "b" / "owl.txt").read_text())  # which a build would leave out then
    (docs / "a" / "new.txt").write_text("")
    report = update_index(index, add=[docs, docs / "b"])
    assert get_counts(report) == (0, 1, 5, 2)
    assert (report.corpus.empty, report.corpus.duplicates) == (2, 5)
    left = ["a/dog", "a/owl", "a/sea", "b/cat", "b/dog", "b/sea"]
    assert sorted(list_documents(index)) == [str(docs / f"{name}.txt") for name in left]
    build_index([tmp_path / "docs"], tmp_path / "fresh.index")
    fresh, updated = (open_retriever(i, "dense") for i in (tmp_path / "fresh.index", index))
    assert search(fresh, "barn sea") == search(updated, "barn sea")


def test_an_empty_addition_is_rejected(tmp_path: Path, encoder: WordEncoder) -> None:
    index = make_index(tmp_path)
    before = read_files(index)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.txt").write_text(" ")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0")
    for path, why in (("empty", "no documents"), ("empty.txt", "1 empty"), ("picture.png", "1 binary")):
        with pytest.raises(BadInput, match=f"^nothing to add in .*{path}: .*{why}"):
            update_index(index, add=[tmp_path / path])
        with pytest.raises(BadInput, match="nothing to add in"):
            update_index(index, add=[tmp_path / path], delete=["cat"])
    assert read_files(index) == before


def test_files_with_the_same_ids_are_updated_separately(tmp_path: Path, encoder: WordEncoder) -> None:
    a, b = (
        write_records(tmp_path / "a.jsonl", {"1": "one of a"}),
        write_records(tmp_path / "b.jsonl", {"1": "one of b"}),
    )
    index = tmp_path / "x.index"
    build_index([a, b], index)
    write_records(a, {"1": "a new one of a", "2": "two of a"})
    assert get_counts(update_index(index, add=[a])) == (1, 1, 0, 0)
    assert sorted(row[2] for row in search(open_retriever(index), "one")) == ["a new one of a", "one of b", "two of a"]
    c = write_records(tmp_path / "c.jsonl", {"1": "one of c", "2": "two of c"})
    assert get_counts(update_index(index, add=[a, b, c])) == (2, 0, 3, 0)
    assert len(list_documents(index)) == 5
    assert get_counts(update_index(index, delete=["1"])) == (0, 0, 0, 3)
    assert list_documents(index) == ["2", "2"]


def test_a_correction_in_another_file_replaces_a_document(tmp_path: Path, encoder: WordEncoder) -> None:
    index = make_index(tmp_path)
    assert get_counts(apply_update(index, {"cat": "a cat slept", "dog": "a dog slept", "fox": "a fox slept"})) == (
        1,
        2,
        0,
        0,
    )
    assert get_counts(apply_update(index, {"cat": "a cat woke", "owl": ""}, ["dog"], file="newer")) == (0, 1, 0, 2)
    assert sorted(row[2] for row in search(open_retriever(index, "dense"), "cat")) == [
        "a cat woke",
        "a fox slept",
        "rain fell on the grey sea",
    ]


def test_a_repeated_id_is_reported_and_changes_nothing(tmp_path: Path, encoder: WordEncoder) -> None:
    index = make_index(tmp_path)
    before = read_files(index)
    file = tmp_path / "twice.jsonl"
    file.write_text('{"id": "x", "text": "one"}\n{"id": "x", "text": "two"}\n')
    with pytest.raises(BadLine, match=r"twice\.jsonl:2: the id 'x' belongs to another text already"):
        update_index(index, add=[file])
    assert read_files(index) == before
    report = update_index(index, add=[file], skip_bad=True)
    assert get_counts(report) == (1, 0, 0, 0) and report.corpus.bad == 1
    shown = format_update(report, index)
    assert shown.startswith("1 added") and "left out or repaired: 1 bad" in shown and "twice.jsonl:2" in shown
    assert get_counts(update_index(index, add=[file, file], skip_bad=True)) == (0, 0, 1, 0)


# What cannot be done


def test_unknown_ids_change_nothing(tmp_path: Path, encoder: WordEncoder) -> None:
    index = make_index(tmp_path)
    before = read_files(index)
    with pytest.raises(BadInput, match=r"^no document has the id nobody, none: nothing was changed$"):
        apply_update(index, {"fox": "a fox"}, ["cat", "nobody", "none"])
    with pytest.raises(BadInput, match="nowhere: no such file or folder"):
        update_index(index, add=[tmp_path / "nowhere"], delete=["cat"])
    apply_update(index, delete=["cat"])
    with pytest.raises(BadInput, match="no document has the id cat"):
        apply_update(index, delete=["cat"])
    assert before.keys() - read_files(index).keys() <= {name for name in before if name.startswith("bm25")}
    assert list_neighbours(index) == ["docs.index"]


def test_the_last_passage_cannot_be_deleted(tmp_path: Path, encoder: WordEncoder) -> None:
    index = make_index(tmp_path)
    before = read_files(index)
    with pytest.raises(BadInput, match="no passage would be left"):
        apply_update(index, delete=list(TEXTS))
    assert read_files(index) == before
    assert get_counts(apply_update(index, {"fox": "a fox"}, list(TEXTS))) == (1, 0, 0, 4)
    for retriever in RETRIEVERS:
        assert [row[0] for row in search(open_retriever(index, retriever), "a fox")] == ["fox"]


def test_calls_without_work_or_lists_are_rejected(tmp_path: Path) -> None:
    index = make_index(tmp_path, retriever="bm25")
    with pytest.raises(BadInput, match="nothing to do"):
        update_index(index)
    for wrong in ({"add": "docs"}, {"add": tmp_path}, {"delete": "cat"}):
        with pytest.raises(BadInput, match="must be lists"):
            update_index(index, **wrong)


def test_other_folders_cannot_be_updated(tmp_path: Path, encoder: WordEncoder) -> None:
    index = make_index(tmp_path)
    for nowhere in (tmp_path / "nowhere", tmp_path / "no" / "where"):
        with pytest.raises(ArtefactError, match="where does not exist"):
            update_index(nowhere, delete=["cat"])
    with pytest.raises(ArtefactError, match="is not a ragqa directory"):
        update_index(tmp_path, delete=["cat"])
    Pipeline.load(index).save(tmp_path / "p")
    with pytest.raises(ArtefactError, match="is a ragqa pipeline, not a ragqa index"):
        update_index(tmp_path / "p", delete=["cat"])
    vectors = index / "dense" / "vectors.npy"
    vectors.write_bytes(vectors.read_bytes()[:-1] + b"?")
    with pytest.raises(DamagedArtefact, match=r"vectors\.npy is damaged"):
        update_index(index, delete=["cat"])
    assert list_neighbours(index) == ["docs.index", "p"]


def test_an_index_of_lucene_is_rejected(tmp_path: Path) -> None:
    index = make_index(tmp_path, retriever="bm25")
    manifest = artefacts.peek_manifest(index)
    artefacts.write_manifest(index, "index", {**manifest.config, "engine": "lucene"}, manifest.parents)
    before = read_files(index)
    with pytest.raises(BadInput, match="holds terms of lucene, which cannot be updated: index again"):
        apply_update(index, delete=["cat"])
    assert read_files(index) == before


def test_another_encoder_is_rejected_when_passages_are_added(tmp_path: Path, encoder: WordEncoder) -> None:
    index = make_index(tmp_path)
    before = read_files(index)
    encoder.fingerprint = "other words"
    with pytest.raises(Mismatch, match="made with encoder words, which is now other words"):
        apply_update(index, {"fox": "a fox ran"}, ["cat"])
    assert read_files(index) == before and list_neighbours(index) == ["docs.index"]
    assert get_counts(apply_update(index, delete=["cat"])) == (0, 0, 0, 1)
    encoder.fingerprint = "words"
    assert "cat" not in [row[0] for row in search(open_retriever(index), "cat")]


def test_a_second_update_at_once_is_rejected(tmp_path: Path) -> None:
    index = make_index(tmp_path, retriever="bm25")
    with hold_lock(tmp_path / ".docs.index.lock", wait=False):
        with pytest.raises(BadInput, match="another process is at work and holds"):
            apply_update(index, delete=["cat"])
        with pytest.raises(BadInput, match="another process is at work and holds"):
            make_index(tmp_path, retriever="bm25")
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(update_index, index, delete=[name]) for name in ("cat", "dog", "sea")]
    errors = [str(future.exception()) for future in futures if future.exception()]
    assert all("another process is at work" in error for error in errors)
    assert len(list_documents(index)) == 4 - (3 - len(errors))
    apply_update(index, {"fox": "a fox"})
    assert list_neighbours(index) == ["docs.index"]


AS_NOBODY = """
import os, sys
from pathlib import Path
from ragqa.errors import BadInput
from ragqa.indexing.update import update_index
if os.getuid() == 0:
    os.setuid(65534)
try:
    update_index(sys.argv[1], delete=["cat"])
except BadInput as error:
    print(error)
"""


@pytest.mark.parametrize("frozen", [".", "docs.index", "docs.index/bm25"])
def test_a_read_only_folder_is_a_one_line_error(tmp_path: Path, frozen: str) -> None:
    index = make_index(tmp_path, retriever="bm25")
    before = read_files(index)
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    for folder in (tmp_path, index, *index.iterdir()):
        if folder.is_dir():
            folder.chmod(0o777)
    (tmp_path / frozen).chmod(0o555)
    done = subprocess.run([sys.executable, "-c", AS_NOBODY, index], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith("cannot write ") and line.endswith("Permission denied; nothing was changed")
    assert read_files(index) == before and list_neighbours(index) == ["docs.index"]


# Nothing lost, nothing half-written


class SimulatedKill(BaseException):
    """Stand-in for a kill within the process."""


def update_repeatedly(index: Path, number: int, before: Callable[[], object] = lambda: None) -> None:
    """Document v<number> takes the place of any other that is called so."""
    old = [name for name in list_documents(index) if name.startswith("v")]
    file = write_records(index.with_name("new.jsonl"), {f"v{number}": f"version {number} is here"})
    before()
    update_index(index, add=[file], delete=old, compact=number % 2 == 0)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, BaseException | None], int]]:
    """Arms a failure at the n-th step that changes the disk; called with 0 it disarms and tells what was left to go."""
    left, failure = 0, OSError(errno.ENOSPC, "No space left on device")

    def arm(moment: int, error: BaseException | None = None) -> int:
        nonlocal left, failure
        before, left = left, moment
        failure = error or failure  # type: ignore[assignment]
        return before

    def step(
        call: Callable[..., object], is_counted: Callable[..., bool] = lambda *_, **__: True
    ) -> Callable[..., object]:
        def counted(*arguments: object, **options: object) -> object:
            nonlocal left
            if left and is_counted(*arguments, **options):
                left -= 1
                if left == 0:
                    raise failure
            return call(*arguments, **options)

        return counted

    def writes(file: object, mode: str = "r", *_: object, **__: object) -> bool:
        return mode[0] in "wax"

    for name in ("rename", "replace", "unlink", "link", "mkdir", "rmdir", "chmod"):
        monkeypatch.setattr(os, name, step(getattr(os, name)))
    monkeypatch.setattr(io, "open", step(io.open, writes))
    monkeypatch.setattr(np, "save", step(np.save))
    monkeypatch.setattr(PassageWriter, "_write_batch", step(PassageWriter._write_batch))
    yield arm
    left = 0


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("how", ["full disk", "kill"])
def test_a_failure_at_any_step_leaves_the_old_index(
    tmp_path: Path, encoder: WordEncoder, failing: Callable[..., int], how: str, exchange: bool, monkeypatch
) -> None:
    """Each step of an update fails in turn: the old index is whole and answers, and the next update works."""
    if not exchange:  # a file system that cannot swap two directories in one step
        monkeypatch.setattr(artefacts.atomic, "exchange_directories", lambda one, other: False)
    index = make_index(tmp_path)
    update_repeatedly(index, 0)
    opened, failed = open_retriever(index), 0
    for moment in range(1, 200):
        before, error = artefacts.peek_manifest(index).fingerprint, None
        arm = partial(failing, moment, SimulatedKill() if how == "kill" else None)
        try:
            update_repeatedly(index, moment, arm)
        except BadInput as caught:
            error, failed = str(caught), failed + 1
        except SimulatedKill:
            failed += 1
        reached = failing(0) == 0
        now = artefacts.read_manifest(index, "index").fingerprint
        if error:
            assert error.startswith("cannot write ") and "\n" not in error
            assert now == before, moment
        names = list_documents(index)
        assert names[:4] == list(TEXTS) and len(names) == 5, moment
        for searched in (opened, open_retriever(index)):
            assert sorted(row[0] for row in search(searched, EACH)) == sorted(names), moment
        if not reached:
            break
    assert 20 < failed < moment < 199
    update_repeatedly(index, 1000)
    assert list_documents(index) == [*TEXTS, "v1000"]
    assert list_neighbours(index) == ["docs.index"]


def test_remains_of_a_killed_update_are_removed(tmp_path: Path, encoder: WordEncoder, monkeypatch) -> None:
    index = make_index(tmp_path)
    shutil.copytree(index, tmp_path / ".docs.index.updating")
    (tmp_path / ".docs.index.updating" / "passages" / "00001.arrow").write_text("half of it")
    (tmp_path / ".docs.index.lock").touch()
    index.rename(tmp_path / ".docs.index.4711.replaced")
    assert get_counts(apply_update(index, {"fox": "a fox ran"}, ["cat"])) == (1, 0, 0, 1)
    assert list_documents(index) == ["dog", "sea", "owl", "fox"]
    assert list_neighbours(index) == ["docs.index"]


def test_a_limit_on_file_sizes_leaves_the_old_index(tmp_path: Path, encoder: WordEncoder) -> None:
    """The disk is full for whoever writes, Tantivy and Arrow among them: files end at so many bytes."""
    index = make_index(tmp_path)
    before, limits = read_files(index), resource.getrlimit(resource.RLIMIT_FSIZE)
    changes = write_records(tmp_path / "new.jsonl", {f"n{i}": f"text number {i} and its words" for i in range(40)})
    for size in (0, 60, 130, 300, 500, 900, 1500):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        try:
            with pytest.raises(BadInput) as error:
                update_index(index, add=[changes], delete=["cat"], compact=size % 20 == 0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert str(error.value).startswith("cannot write ") and "\n" not in str(error.value)
        assert read_files(index) == before, size
        assert list_neighbours(index) == ["docs.index"]
        assert len(search(open_retriever(index), "cat")) == 4
    assert get_counts(update_index(index, add=[changes], delete=["cat"])) == (40, 0, 0, 1)


WITHOUT_END = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[2], sys.argv[2] + "/tests"]
from tests.ragqa.indexing import test_updating
index, number = Path(sys.argv[1]), 1
while True:
    test_updating.update_repeatedly(index, number)
    print(number, flush=True)
    number += 1
"""


def check_kills(tmp_path: Path, seeds: Sequence[int]) -> None:
    """Send SIGKILL at random moments of endless updates; the index must be the old or the new one, and whole."""
    index = make_index(tmp_path, retriever="bm25")
    for seed in seeds:
        command = [sys.executable, "-c", WITHOUT_END, str(index), str(Path(__file__).parents[3])]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        time.sleep(random.Random(seed).uniform(0, 0.3))
        process.kill()
        done = int((process.communicate()[0].splitlines() or ["1"])[-1])
        artefacts.read_manifest(index, "index")
        (version,) = [name for name in list_documents(index) if name.startswith("v")]
        assert int(version[1:]) in (done, done + 1)
        assert {row[0] for row in search(open_retriever(index), EACH)} == {*TEXTS, version}
    update_repeatedly(index, 7)
    assert sorted(list_documents(index)) == sorted([*TEXTS, "v7"])
    assert list_neighbours(index) == ["docs.index"]


def test_random_kills_lose_nothing(tmp_path: Path) -> None:
    check_kills(tmp_path, range(2))


@pytest.mark.slow
def test_many_random_kills_lose_nothing(tmp_path: Path) -> None:
    check_kills(tmp_path, range(10, 30))


def test_updates_never_write_into_shared_files(tmp_path: Path, encoder: WordEncoder) -> None:
    """A copy of the index by hard links must stay as it was."""
    index = make_index(tmp_path)
    apply_update(index, {"fox": "a fox ran", "cat": "a cat slept"}, compact=False)
    kept = tmp_path / "kept.index"
    shutil.copytree(index, kept, copy_function=os.link)
    before = read_files(kept)
    apply_update(index, {"hen": "a hen sat", "fox": "a fox slept"}, ["dog"], compact=False)
    assert read_files(kept) == before
    apply_update(index, {"hen": "a hen ran"}, compact=True)
    apply_update(kept, {"ape": "an ape ran"}, file="ape")
    assert {name: data for name, data in read_files(kept).items() if name in before} != before  # its manifest, at least
    assert sorted(list_documents(index)) == ["cat", "fox", "hen", "owl", "sea"]
    assert sorted(list_documents(kept)) == ["ape", "cat", "dog", "fox", "owl", "sea"]
    for one in (index, kept):
        assert {row[0] for row in search(open_retriever(one), f"{EACH} fox hen ape")} == set(list_documents(one))


def test_files_are_copied_where_links_are_impossible(tmp_path: Path, encoder: WordEncoder, monkeypatch) -> None:
    index = make_index(tmp_path)

    def no_links(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    assert get_counts(apply_update(index, {"fox": "a fox ran"}, ["cat"])) == (1, 0, 0, 1)
    assert search(open_retriever(index, "dense"), "fox", 1)[0][0] == "fox"
    artefacts.read_manifest(index, "index")


def test_a_symbolic_link_to_an_updated_index_stays_a_link(tmp_path: Path, encoder: WordEncoder) -> None:
    index = make_index(tmp_path / "real")
    (tmp_path / "link").symlink_to(index)
    opened = open_retriever(tmp_path / "link")
    apply_update(tmp_path / "link", {"fox": "a fox ran"})
    assert (tmp_path / "link").is_symlink()
    assert search(opened, "fox ran", 1)[0][0] == "fox"


def test_all_files_have_the_mode_of_new_files(tmp_path: Path, encoder: WordEncoder) -> None:
    index = make_index(tmp_path)
    (index / "dense").chmod(0o775)
    apply_update(index, {"fox": "a fox ran"}, ["cat"], compact=False)
    (tmp_path / "new").touch()
    modes = {name: (index / name).stat().st_mode for name in read_files(index)}
    assert set(modes.values()) == {(tmp_path / "new").stat().st_mode}, modes
    assert (index / "dense").stat().st_mode & 0o777 == 0o775


def test_many_updates_leave_few_files(tmp_path: Path, encoder: WordEncoder, monkeypatch) -> None:
    """Every file stays open with the index, and a process may not open thousands."""
    monkeypatch.setattr(update, "_SMALL", 5)
    texts = {f"d{n}": f"number {n} of these texts" for n in range(60)}
    index = make_index(tmp_path, texts, retriever="dense")
    for number in range(12):
        new = {f"n{number}": f"update {number} and its text", "d7": f"version {number} of seven"}
        assert not apply_update(index, new, compact=False).compacted
    assert len(list((index / "passages").glob("*.arrow"))) == 1 + 4
    assert len(list((index / "dense").glob("added-*.npy"))) == 1 + 3
    texts |= {f"n{number}": f"update {number} and its text" for number in range(12)} | {"d7": "version 11 of seven"}
    fresh = make_index(tmp_path / "fresh", texts, retriever="dense")
    assert search(open_retriever(index), "update 5 text") == search(open_retriever(fresh), "update 5 text")
    apply_update(index, compact=True)
    assert search(open_retriever(index), "update 5 text") == search(open_retriever(fresh), "update 5 text")


# Searches under way


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
    """A process and threads search continuously; none returns a passage deleted before it started, or fails."""
    index, done = make_index(tmp_path), tmp_path / "done"
    update_repeatedly(index, 1)
    done.write_text("1")
    process = subprocess.Popen(
        [sys.executable, "-c", STRESSED, index, done], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    retrievers = [open_retriever(index, retriever) for retriever in RETRIEVERS]
    stop = False

    def search_until_done(retriever: Retriever) -> int:
        count = 0
        while not stop:
            at_least = int(done.read_text())
            hits = [row[0] for row in search(retriever, EACH)]
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
    """Open pipelines must not notice that there is no index for a moment."""
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
    """Replaced while it is being opened: passages of the old version and terms of the new one do not go together."""
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
    """Loading one takes most of a second."""
    index = make_index(tmp_path)
    loaded = []
    monkeypatch.setattr("ragqa.retrieval.dense.load_encoder", lambda *_, **__: loaded.append(1) or encoder)
    opened = open_retriever(index)
    for number in range(3):
        update_repeatedly(index, number)
        assert f"v{number}" in [row[0] for row in search(opened, EACH)]
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
    """As one that is loaded does; another index must not take the place of its own."""
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
        with pytest.raises(Mismatch, match="not the one it was saved with: save the pipeline again"):
            Pipeline.load(tmp_path / saved)


def test_corpus_coverage_ignores_deleted_passages(tmp_path: Path, encoder: WordEncoder) -> None:
    texts = {f"d{n}": f"text {n} holds answer{n}" for n in range(1100)}
    index = make_index(tmp_path, texts, retriever="bm25")
    apply_update(index, {"d1050": "text 1050 holds another"}, [f"d{n}" for n in range(100)], compact=False)
    nothing = SystemResult(Answer("?", None, 0.0, 0.0), [], [])
    answers = ("answer7", "answer500", "answer1050", "another")
    rows = [score(n, Question("?", (answer,)), nothing, Rule()) for n, answer in enumerate(answers)]
    assert find_missing(open_retriever(index).passages, rows).answers == {0, 2}
    rest = [f"d{n}" for n in range(100, 1100)]  # no row of the first 1,000 is left
    apply_update(index, {"new": "text holds answer7"}, rest, compact=False)
    assert find_missing(open_retriever(index).passages, rows).answers == {1, 2, 3}


# The command


def test_the_update_command_reports_its_changes(
    tmp_path: Path, encoder: WordEncoder, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    for name, text in TEXTS.items():
        (tmp_path / f"{name}.txt").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert run("index", "cat.txt", "dog.txt", "--out", "x.index", capsys=capsys)[0] == 0
    arguments = ["update", "x.index", "--add", "sea.txt", "owl.txt", "--delete", "cat.txt", "dog.txt"]
    status, out, err = run(*arguments, "--json", capsys=capsys)
    row = json.loads(out)
    assert status == 0 and out.count("\n") == 1
    assert {k: row[k] for k in ("index", "added", "replaced", "unchanged", "deleted", "passages", "compacted")} == {
        "index": "x.index",
        "added": 2,
        "replaced": 0,
        "unchanged": 0,
        "deleted": 2,
        "passages": 2,
        "compacted": True,
    }
    assert row["corpus"]["documents"] == 2 and row["seconds"] > 0
    (tmp_path / "sea.txt").write_text("the sea was calm")
    status, out, _ = run("update", "--add", "sea.txt", "--add=owl.txt", "--compact", "x.index", capsys=capsys)
    assert status == 0
    assert out.startswith("1 replaced, 1 unchanged, compacted: 2 passages in x.index (")
    assert "embedding: 2 passages" in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to do: name what to add or to delete"),
        (["--delete", "nobody", "no one"], "no document has the id nobody, no one: nothing was changed"),
        (["--delete", ""], "no document has the id"),
        (["--add", "nowhere.txt"], "nowhere.txt: no such file or folder"),
        (["--delete", *TEXTS], "no passage would be left"),
        (["--add", "bad.jsonl"], "bad.jsonl:1: not JSON"),
        (["--banana"], "No such option"),
    ],
)
def test_bad_input_of_the_update_command_is_one_line(
    tmp_path: Path, arguments: list[str], message: str, capsys, monkeypatch
) -> None:
    index = make_index(tmp_path, retriever="bm25")
    (tmp_path / "bad.jsonl").write_text("{\n")
    monkeypatch.chdir(tmp_path)
    before = read_files(index)
    status, out, err = run("update", "docs.index", *arguments, capsys=capsys)
    assert (status, out) == (2, "")
    assert message in err
    if "option" not in message:
        assert err.startswith("ragqa: ") and err.count("\n") == 1
    assert read_files(index) == before


def test_ids_that_look_like_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = make_index(tmp_path, {"-5": "minus five", "--add": "an option", "x": "a letter"}, retriever="bm25")
    status, _, err = run("update", str(index), "--delete", "-5", "--delete=--add", capsys=capsys)
    assert status == 0, err
    assert list_documents(index) == ["x"]
