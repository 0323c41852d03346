"""Updates: an updated index answers like a newly built one."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import DOCUMENTS

from ragqa import artefacts
from ragqa.corpus.splitters import make_word_splitter as word_blocks
from ragqa.corpus.store import PassageStore
from ragqa.errors import Mismatch
from ragqa.indexing.build import build_index
from ragqa.indexing.update import update_index
from ragqa.pipeline import Pipeline
from ragqa.retrieval.live import open_retriever
from ragqa.retrieval.registry import RetrieverKind
from ragqa.retrieval.vectors.index_kinds import IndexKind
from tests.helpers.updates import (
    RETRIEVERS,
    RETRIEVERS_OF_HYBRID,
    TEXTS,
    Texts,
    WordEncoder,
    apply_update,
    get_counts,
    list_documents,
    list_neighbours,
    make_index,
    replace_encoders,
    search,
    search_all,
)


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> WordEncoder:
    return replace_encoders(monkeypatch)


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
    """A pipeline with the packaged models stays open during the update."""
    shutil.copytree(index, tmp_path / "copy.index")
    pipeline = Pipeline.load(tmp_path / "copy.index")
    question = "Who built Skarvik Lighthouse?"
    assert pipeline.ask(question).text == "Ada Holm"
    shutil.copytree(folder, tmp_path / "docs")
    lighthouse = tmp_path / "docs" / "lighthouse.md"
    lighthouse.write_text(DOCUMENTS["lighthouse.md"].replace("Ada Holm", "Carl Berg"))
    update_index(tmp_path / "copy.index", add=[lighthouse], delete=[str(folder / "lighthouse.md")])
    for open_pipeline in (pipeline, Pipeline.load(tmp_path / "copy.index")):
        answer = open_pipeline.ask(question)
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
    for retriever in RETRIEVERS_OF_HYBRID:
        one, other = (open_retriever(i, retriever) for i in (index, fresh))
        assert search(one, "number 7 of texts") == search(other, "number 7 of texts")
    assert not apply_update(index, delete=["d7"]).compacted, "what was compacted counts as built"


def test_compact_false_never_compacts(tmp_path: Path, encoder: WordEncoder) -> None:
    index = make_index(tmp_path)
    assert not apply_update(index, {"dog": "a dog slept"}, ["cat", "sea"], compact=False).compacted
    assert list_documents(index) == ["owl", "dog"]
    assert [row[0] for row in search(open_retriever(index, "dense"), "dog", k=5)] == ["dog", "owl"]


def random_text(rng: random.Random) -> str:
    return " ".join(f"w{int(rng.paretovariate(0.7)) % 60}" for _ in range(rng.randint(3, 35)))


def check_random_updates(folder: Path, seed: int, retriever: str) -> None:
    """Apply random updates and compactions; check the documents after each, and the last answers."""
    rng, has_vectors = random.Random(seed), RetrieverKind(retriever).needs_vectors
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
        if has_vectors:
            assert len(search(opened, "w1")) == len(expected)
    fresh = make_index(folder / "fresh", texts, **config)
    questions = [random_text(rng) for _ in range(5)]
    for question in questions:
        if has_vectors:
            one, other = (open_retriever(i, "dense") for i in (index, fresh))
            assert search(one, question) == search(other, question)
    apply_update(index, compact=True)
    one, other = (open_retriever(i) for i in (index, fresh))
    for question in questions:
        assert search(one, question) == search(other, question)


@pytest.mark.parametrize("seed", range(4))
def test_random_updates_equal_a_new_build(tmp_path: Path, encoder: WordEncoder, seed: int) -> None:
    check_random_updates(tmp_path, seed, RETRIEVERS[seed % len(RETRIEVERS)])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_many_random_updates_equal_a_new_build(tmp_path: Path, encoder: WordEncoder, seed: int) -> None:
    check_random_updates(tmp_path, seed, RETRIEVERS[seed % len(RETRIEVERS)])


@pytest.mark.parametrize("seed", range(3))
def test_adding_a_folder_again_equals_a_new_build(tmp_path: Path, encoder: WordEncoder, seed: int) -> None:
    """Files share record numbers and are emptied, doubled, changed and new. No text is embedded twice."""
    rng, docs = random.Random(seed), tmp_path / "docs"
    docs.mkdir()
    texts = ["", *(f"text {n} of a few" for n in range(12))]  # few words, so that equal texts are frequent
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
    """Exact search over a new build gives the true best 20, before and after the compaction."""
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
    """Their manifests have no search settings. Flat indexes work; other kinds must be rebuilt."""
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
    """Until a compaction, Tantivy also counts deleted documents that have a term."""
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
