"""A watched folder and its index stay in step."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ragqa.indexing.build import IndexConfig, build_index
from ragqa.indexing.watch import watch_folders
from ragqa.retrieval.live import open_retriever
from tests.helpers.updates import search

SECONDS = 20
"""Time limit of a wait, which is long because the machine can be busy."""


class Watch:
    """A watch in a thread, with what it reports."""

    def __init__(self, index: Path) -> None:
        self.reports: list[tuple[int, int, int]] = []
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=[index])
        self._thread.start()

    def _run(self, index: Path) -> None:
        watch_folders(
            index,
            on_report=lambda report: self.reports.append((report.added, report.replaced, report.deleted)),
            on_error=self.errors.append,
            stop=self._stop,
        )

    def end(self) -> None:
        self._stop.set()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "cat.txt").write_text("a cat sat on the red mat")
    (folder / "dog.txt").write_text("a dog barked at the postman")
    build_index([folder], tmp_path / "notes.index", IndexConfig(retriever="bm25"))
    return folder


@pytest.fixture
def watch(notes: Path) -> Iterator[Watch]:
    started = Watch(notes.with_name("notes.index"))
    yield started
    started.end()


def test_open_retrievers_find_changes_of_a_watched_folder(notes: Path, watch: Watch) -> None:
    retriever = open_retriever(notes.with_name("notes.index"))
    (notes / "owl.txt").write_text("the owl flew over the old barn")
    wait_for(lambda: bool(search(retriever, "owl barn")))
    (notes / "dog.txt").unlink()
    wait_for(lambda: not search(retriever, "dog postman"))
    (notes / "owl.txt").write_text("the owl slept")
    wait_for(lambda: not search(retriever, "barn"))
    wait_for(lambda: len(watch.reports) == 3)  # a report comes after its change can be searched
    assert watch.reports == [(1, 0, 0), (0, 0, 1), (0, 1, 0)] and not watch.errors


def test_a_folder_that_is_deleted_and_made_again(notes: Path, watch: Watch) -> None:
    retriever = open_retriever(notes.with_name("notes.index"))
    shutil.rmtree(notes)
    wait_for(lambda: bool(watch.errors))
    assert search(retriever, "cat")
    notes.mkdir()
    (notes / "sea.txt").write_text("rain fell on the grey sea")
    wait_for(lambda: bool(search(retriever, "grey sea")))
    assert not search(retriever, "cat")
    (notes / "sea.txt").write_text("rain fell on the blue sea")
    wait_for(lambda: bool(search(retriever, "blue")))


def test_a_folder_that_is_replaced_at_once(notes: Path, watch: Watch) -> None:
    """On ext4, the new folder has the inode of the old one."""
    retriever = open_retriever(notes.with_name("notes.index"))
    for word in ("grey", "blue"):
        shutil.rmtree(notes)
        notes.mkdir()
        (notes / "sea.txt").write_text(f"rain fell on the {word} sea")
        wait_for(lambda word=word: bool(search(retriever, word)))  # type: ignore[misc]


def test_temporary_files_of_editors_are_ignored(notes: Path, watch: Watch) -> None:
    retriever = open_retriever(notes.with_name("notes.index"))
    for name in (".hidden.txt", "cat.txt~", "dog.txt.swp"):
        (notes / name).write_text("a temporary elephant")
    (notes / "owl.txt").write_text("the owl flew")
    wait_for(lambda: bool(search(retriever, "owl")))
    wait_for(lambda: bool(watch.reports))
    assert not search(retriever, "elephant") and watch.reports == [(1, 0, 0)]
