"""Documents and options of updates: what is meant, and what is refused."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import run

from ragqa import artefacts
from ragqa.artefacts.lock import hold_lock
from ragqa.errors import ArtefactError, BadInput, BadLine, DamagedArtefact, Mismatch
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.indexing.summary import format_update
from ragqa.indexing.update import update_index
from ragqa.pipeline import Pipeline
from ragqa.retrieval.live import open_retriever
from tests.helpers.updates import (
    RETRIEVERS_OF_HYBRID,
    TEXTS,
    WordEncoder,
    apply_update,
    get_counts,
    list_documents,
    list_neighbours,
    make_index,
    read_files,
    replace_encoders,
    search,
    write_records,
)


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> WordEncoder:
    return replace_encoders(monkeypatch)


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
    assert get_counts(update_index("../../x.index", add=["./../b.txt"], delete=["./c.txt"])) == (0, 1, 0, 1)
    with pytest.raises(
        BadInput, match=rf"no document has the id \./b\.txt \(as a path: {notes}/deep/b\.txt\): nothing"
    ):
        update_index("../../x.index", delete=["./b.txt"])
    (notes / "deep" / "d.txt").unlink()  # deleted files can still be named
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


def test_a_document_that_is_both_added_and_deleted_is_an_error(tmp_path: Path, encoder: WordEncoder) -> None:
    index = make_index(tmp_path)
    before = read_files(index)
    for texts, file in ((TEXTS, "docs"), ({"cat": "a new cat"}, "docs"), ({"cat": ""}, "docs"), ({"cat": "a"}, "b")):
        with pytest.raises(BadInput, match=r"^cat would be both added and deleted: leave .* nothing was changed$"):
            apply_update(index, texts, ["dog", "cat"] if len(texts) == 1 else ["cat"], file=file)
    assert read_files(index) == before and list_neighbours(index) == ["docs.index"]


def test_the_index_itself_cannot_be_added(tmp_path: Path, encoder: WordEncoder) -> None:
    index = make_index(tmp_path)
    before = read_files(index)
    for path in (index, index / "passages" / "00000.arrow"):
        with pytest.raises(BadInput, match=r"docs\.index\S* .*ragqa index: name the documents instead"):
            update_index(index, add=[path])
    assert read_files(index) == before and list_neighbours(index) == ["docs.index"]


def test_documents_that_became_empty_are_deleted(tmp_path: Path, encoder: WordEncoder) -> None:
    """A build also leaves out empty documents."""
    docs = tmp_path / "docs"
    for folder in ("a", "b"):
        (docs / folder).mkdir(parents=True)
        for name, text in TEXTS.items():
            (docs / folder / f"{name}.txt").write_text(f"in {folder} {text}")
    index = tmp_path / "x.index"
    build_index([docs], index)
    (docs / "a" / "cat.txt").write_text("  \n")
    (docs / "a" / "owl.txt").write_text((docs / "b" / "owl.txt").read_text())  # a build would leave the empty file out
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
    for path, why in (("empty", "no documents"), ("empty.txt", "1 empty"), ("picture.png", "1 image")):
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
        update_index(index, add=[file], strict=True)
    assert read_files(index) == before
    report = update_index(index, add=[file])
    assert get_counts(report) == (1, 0, 0, 0) and report.corpus.bad == 1
    shown = format_update(report, index)
    assert (
        shown.startswith("1 added") and "left out or repaired: 1 malformed record" in shown and "twice.jsonl:2" in shown
    )
    assert get_counts(update_index(index, add=[file, file])) == (0, 0, 1, 0)


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
    for retriever in RETRIEVERS_OF_HYBRID:
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
    with pytest.raises(Mismatch, match="made with encoder words, but the encoder is now other words"):
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
        ([], "nothing to do: name documents to add or to delete, or sync folders (--sync)"),
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
        *progress, line = err.splitlines()
        assert line.startswith("ragqa: ") and all(each.startswith("reading: ") for each in progress)
    assert read_files(index) == before


def test_ids_that_look_like_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = make_index(tmp_path, {"-5": "minus five", "--add": "an option", "x": "a letter"}, retriever="bm25")
    status, _, err = run("update", str(index), "--delete", "-5", "--delete=--add", capsys=capsys)
    assert status == 0, err
    assert list_documents(index) == ["x"]
