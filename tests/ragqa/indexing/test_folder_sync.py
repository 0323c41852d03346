"""A synced index answers like one that is newly built of the folder as it is now."""

import os
import shutil
import time
from pathlib import Path

import pytest
from conftest import kill_at_every_step

from ragqa import artefacts
from ragqa.artefacts.orphans import get_update_path
from ragqa.corpus.sources import CorpusReport
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.indexing import update as update_module
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.indexing.sync import build_or_sync_index, sync_index
from ragqa.indexing.update import UpdateReport, update_index
from tests.helpers.documents import make_tar, to_json_lines
from tests.helpers.updates import get_counts, list_documents, read_files

CONFIG = IndexConfig(retriever="bm25")
HOUR = 3600


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    (folder / "work").mkdir(parents=True)
    for name in ("a", "b", "work/c"):
        write_old(folder / f"{name}.txt", f"the text of {name}")
    return folder


@pytest.fixture
def index(notes: Path, tmp_path: Path) -> Path:
    build_index([notes], tmp_path / "notes.index", CONFIG)
    return tmp_path / "notes.index"


def write_old(file: Path, content: str | bytes, age: int = HOUR) -> Path:
    """Write a file that was last changed ``age`` seconds ago, so that its time says whether it changed."""
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    os.utime(file, (time.time() - age,) * 2)
    return file


def list_names(index: Path) -> list[str]:
    return sorted(Path(name).name for name in set(list_documents(index)))


def list_texts(index: Path) -> list[tuple[str, str]]:
    store = PassageStore.open(index / "passages")
    return sorted((passage.document, passage.text) for batch in store.iter_batches() for passage in batch)


def check_like_new(index: Path, *folders: Path) -> None:
    """Check that an index holds the passages of a new index of the folders."""
    fresh = index.with_name("fresh.index")
    build_index(folders, fresh, CONFIG)
    assert list_texts(index) == list_texts(fresh)
    shutil.rmtree(fresh)


def test_new_changed_and_deleted_files_change_the_index(index: Path, notes: Path) -> None:
    (notes / "a.txt").unlink()
    write_old(notes / "b.txt", "another text of b", age=60)
    write_old(notes / "work" / "d.txt", "a text of d")
    assert get_counts(report := sync_index(index)) == (1, 1, 0, 1)
    assert report.corpus.documents == 2  # c was not read
    assert list_names(index) == ["b.txt", "c.txt", "d.txt"]
    check_like_new(index, notes)
    assert get_counts(sync_index(index)) == (0, 0, 0, 0)


def test_a_sync_without_changes_reads_and_writes_nothing(index: Path, notes: Path, monkeypatch) -> None:
    monkeypatch.setattr(update_module, "read_with_progress", lambda *_, **__: pytest.fail("a file was read"))
    before = artefacts.peek_manifest(index).fingerprint
    assert get_counts(sync_index(index, [notes])) == (0, 0, 0, 0)
    assert artefacts.peek_manifest(index).fingerprint == before


def test_a_file_that_was_only_touched_is_read_once(index: Path, notes: Path) -> None:
    write_old(notes / "a.txt", "the text of a", age=60)
    assert get_counts(sync_index(index)) == (0, 0, 1, 0)
    assert get_counts(sync_index(index)) == (0, 0, 0, 0)


def test_a_file_that_changes_while_it_is_read_is_read_again(index: Path, notes: Path, monkeypatch) -> None:
    read = update_module.read_with_progress

    def read_and_change(*arguments, **options):
        yield from read(*arguments, **options)
        write_old(notes / "a.txt", "the newest text", age=30)

    write_old(notes / "a.txt", "the newer text", age=60)
    monkeypatch.setattr(update_module, "read_with_progress", read_and_change)
    sync_index(index)
    monkeypatch.undo()
    assert get_counts(sync_index(index)) == (0, 1, 0, 0)
    check_like_new(index, notes)


def test_a_duplicate_comes_in_once_the_first_copy_is_gone(index: Path, notes: Path) -> None:
    record = to_json_lines({"id": "x", "title": "copied", "text": "a text that two files have"})
    write_old(notes / "first.jsonl", record)
    write_old(notes / "second.jsonl", record)
    assert get_counts(sync_index(index)) == (1, 0, 0, 0)
    write_old(notes / "third.jsonl", record)
    report = sync_index(index)
    assert get_counts(report) == (0, 0, 0, 0) and report.corpus.duplicates >= 1
    (notes / "first.jsonl").unlink()
    assert get_counts(sync_index(index)) == (1, 0, 0, 1)
    check_like_new(index, notes)
    write_old(notes / "second.jsonl", record.replace("two files", "no other file"), age=60)
    assert get_counts(sync_index(index)) == (1, 1, 0, 0)
    check_like_new(index, notes)


def test_files_left_out_are_not_read_again_after_a_deletion(index: Path, notes: Path) -> None:
    """The rows of a deleted document stay until the index is compacted. A later sync must not take them for news."""
    write_old(notes / "work" / "a.txt", "the text of a")
    write_old(notes / "empty.md", "")
    for number in range(8):  # so that one deletion does not compact the index
        write_old(notes / f"{number}.txt", f"the text of {number}")
    sync_index(index, compact=True)
    (notes / "b.txt").unlink()
    report = sync_index(index)
    assert (get_counts(report), report.compacted, report.corpus.bytes_read > 0) == ((0, 0, 0, 1), False, True)
    assert sync_index(index).corpus == CorpusReport()


def test_vanished_records_renamed_files_and_archives(index: Path, notes: Path) -> None:
    records = [{"id": f"r{n}", "title": f"r{n}", "text": f"record number {n}"} for n in range(5)]
    write_old(notes / "records.jsonl", to_json_lines(*records))
    write_old(notes / "pages.tar", make_tar({f"p{n}.txt": b"page %d" % n for n in range(4)}))
    assert get_counts(sync_index(index)) == (9, 0, 0, 0)
    write_old(notes / "records.jsonl", to_json_lines(*records[:2]), age=60)
    write_old(notes / "pages.tar", make_tar({"p0.txt": b"page 0", "p1.txt": b"another page"}), age=60)
    (notes / "a.txt").rename(notes / "renamed.txt")
    assert get_counts(sync_index(index)) == (1, 1, 3, 6)
    check_like_new(index, notes)
    (notes / "pages.tar").unlink()
    assert get_counts(sync_index(index)) == (0, 0, 0, 2)
    check_like_new(index, notes)


def test_documents_from_elsewhere_stay_and_other_folders_are_remembered(
    index: Path, notes: Path, tmp_path: Path
) -> None:
    update_index(index, add=[write_old(tmp_path / "elsewhere.txt", "from elsewhere")])
    (tmp_path / "more").mkdir()
    write_old(tmp_path / "more" / "m.txt", "more text")
    shutil.rmtree(notes / "work")
    assert get_counts(sync_index(index, [tmp_path / "more"])) == (1, 0, 0, 0)
    assert get_counts(sync_index(index)) == (0, 0, 0, 1)
    (tmp_path / "more" / "m.txt").rename(tmp_path / "more" / "n.txt")
    assert get_counts(sync_index(index)) == (1, 0, 0, 1)
    assert list_names(index) == ["a.txt", "b.txt", "elsewhere.txt", "n.txt"]


def test_a_part_of_the_folder_can_be_synced_alone(index: Path, notes: Path) -> None:
    (notes / "a.txt").unlink()
    (notes / "work" / "c.txt").unlink()
    assert get_counts(sync_index(index, [notes / "work"])) == (0, 0, 0, 1)
    assert artefacts.peek_manifest(index).config["sources"] == [str(notes)]
    assert get_counts(sync_index(index)) == (0, 0, 0, 1)


def test_an_added_file_of_the_folder_leaves_the_index_when_it_is_deleted(index: Path, notes: Path) -> None:
    added = write_old(notes / "added.txt", "added by hand")
    update_index(index, add=[added])
    added.unlink()
    assert get_counts(sync_index(index)) == (0, 0, 0, 1)


def test_an_empty_or_missing_folder_changes_nothing(index: Path, notes: Path) -> None:
    before = read_files(index)
    shutil.rmtree(notes)
    with pytest.raises(BadInput, match="no such file or folder"):
        sync_index(index)
    notes.mkdir()
    with pytest.raises(BadInput, match="no passage would be left, so nothing was changed"):
        sync_index(index)
    assert read_files(index) == before


def test_a_single_file_that_is_gone_leaves_the_index(tmp_path: Path) -> None:
    files = [write_old(tmp_path / f"{name}.txt", f"the text of {name}") for name in "ab"]
    build_index(files, tmp_path / "two.index", CONFIG)
    files[0].unlink()
    assert get_counts(sync_index(tmp_path / "two.index")) == (0, 0, 0, 1)


def test_a_damaged_file_is_no_longer_cited(index: Path, notes: Path) -> None:
    write_old(notes / "records.jsonl", to_json_lines({"id": "r", "text": "a good record"}))
    sync_index(index)
    write_old(notes / "records.jsonl", '{"id": "r", "text": broken\n', age=60)
    report = sync_index(index)
    assert get_counts(report) == (0, 0, 0, 1) and "records.jsonl" in report.corpus.notes[0]


def test_indexing_again_syncs_unless_settings_or_folders_differ(index: Path, notes: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    write_old(notes / "d.txt", "a text of d")

    def run(*paths: Path, retriever: str = "bm25", **config: int) -> CorpusReport | UpdateReport:
        return build_or_sync_index(paths, index, IndexConfig(retriever=retriever, **config), on_choice=lines.append)

    report = run(notes)
    assert isinstance(report, UpdateReport) and get_counts(report) == (1, 0, 0, 0)
    assert not lines
    assert isinstance(run(notes, block_size=50), CorpusReport)
    assert isinstance(run(notes / "work", block_size=50), CorpusReport)
    (index / "bm25" / "meta.json").write_text("damaged")
    assert isinstance(run(notes / "work", block_size=50), CorpusReport)
    reasons = [line.removeprefix(f"{index} is built again: ") for line in lines]
    assert reasons == ["other settings than before (block-size)", "other files and folders than before"]
    assert list_names(index) == ["c.txt"]


@pytest.mark.thorough
def test_a_sync_killed_at_any_step_loses_nothing(index: Path, notes: Path, tmp_path: Path, monkeypatch) -> None:
    (notes / "a.txt").unlink()
    write_old(notes / "b.txt", "another text of b", age=60)
    write_old(notes / "d.txt", "a text of d")
    backup = tmp_path / "backup"
    shutil.copytree(index, backup)
    old = list_texts(index)
    sync_index(index)
    new = list_texts(index)
    shutil.rmtree(index)
    shutil.copytree(backup, index)

    def check(moment: int, swapped: bool) -> bool:
        texts = list_texts(index)
        assert texts in (old, new), moment
        return texts == new

    with monkeypatch.context() as patch:
        restore = lambda: shutil.copytree(backup, index)  # noqa: E731
        assert kill_at_every_step(patch, lambda: sync_index(index), check, restore, [index]) > 10
    assert list_texts(index) == new
    assert not get_update_path(index).exists()


def test_a_sync_of_many_unchanged_files_is_fast(tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(1000):
        write_old(folder / f"{number}.txt", f"text number {number}")
    build_index([folder], tmp_path / "many.index", CONFIG)
    start = time.process_time()
    assert get_counts(sync_index(tmp_path / "many.index")) == (0, 0, 0, 0)
    assert time.process_time() - start < 1
