"""Failed and killed updates lose nothing and leave no partial file."""

import errno
import io
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ragqa import artefacts
from ragqa.artefacts.orphans import get_update_path
from ragqa.corpus.store import PassageWriter
from ragqa.errors import BadInput, DamagedArtefact
from ragqa.indexing import update
from ragqa.indexing.update import update_index
from ragqa.retrieval.live import open_retriever
from tests.conftest import kill_at_every_step
from tests.helpers.damage import sign
from tests.helpers.updates import (
    ALL_TERMS,
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
    update_repeatedly,
    write_records,
)


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> WordEncoder:
    return replace_encoders(monkeypatch)


class SimulatedKill(BaseException):
    """Stand-in for SIGKILL that leaves the test process alive."""


@pytest.fixture
def arm_failure(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, BaseException | None], int]]:
    """Return a function that makes the n-th change of the disk fail; 0 disarms it and returns the remaining count."""
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
    tmp_path: Path, encoder: WordEncoder, arm_failure: Callable[..., int], how: str, exchange: bool, monkeypatch
) -> None:
    """Each step of an update fails once. The old index still answers, and the next update works."""
    if not exchange:  # a file system that cannot swap two directories in one step
        monkeypatch.setattr(artefacts.atomic, "exchange_directories", lambda one, other: False)
    index = make_index(tmp_path)
    update_repeatedly(index, 0)
    opened, failed = open_retriever(index), 0
    for moment in range(1, 200):
        before, error = artefacts.peek_manifest(index).fingerprint, None
        arm = partial(arm_failure, moment, SimulatedKill() if how == "kill" else None)
        try:
            update_repeatedly(index, moment, arm)
        except BadInput as caught:
            error, failed = str(caught), failed + 1
        except SimulatedKill:
            failed += 1
        reached = arm_failure(0) == 0
        now = artefacts.read_manifest(index, "index").fingerprint
        if error:
            assert error.startswith("cannot write ") and "\n" not in error
            assert now == before, moment
        names = list_documents(index)
        assert names[:4] == list(TEXTS) and len(names) == 5, moment
        for searched in (opened, open_retriever(index)):
            assert sorted(row[0] for row in search(searched, ALL_TERMS)) == sorted(names), moment
        if not reached:
            break
    assert 20 < failed < moment < 199
    update_repeatedly(index, 1000)
    assert list_documents(index) == [*TEXTS, "v1000"]
    assert list_neighbours(index) == ["docs.index"]


@pytest.mark.parametrize("exchange", [True, False])
def test_a_deletion_that_was_killed_at_any_step_can_be_repeated(
    tmp_path: Path, encoder: WordEncoder, exchange: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moments include those after the swap, when the document is already deleted."""
    if not exchange:
        monkeypatch.setattr(artefacts.atomic, "exchange_directories", lambda one, other: False)
    index = make_index(tmp_path / "index", retriever="bm25")
    backup = tmp_path / "backup"
    shutil.copytree(index, backup)

    def restore() -> None:
        shutil.copytree(backup, index)

    def check(moment: int, swapped: bool) -> bool:
        names = list_documents(index) if index.is_dir() else None  # between two renames it is absent
        assert names in (None, list(TEXTS), ["dog", "sea", "owl"]), moment
        return names == ["dog", "sea", "owl"]

    def delete() -> None:
        has_ended = "cat" not in list_documents(index) and not get_update_path(index).exists() if index.is_dir() else 0
        with pytest.raises(BadInput, match="no document has the id cat") if has_ended else nullcontext():
            update_index(index, delete=["cat"])

    with monkeypatch.context() as patch:
        assert kill_at_every_step(patch, delete, check, restore, [tmp_path / "index"]) > 10
    with pytest.raises(BadInput, match="no document has the id cat"):
        update_index(index, delete=["cat"])  # the last command was not killed


def test_remains_of_a_killed_update_are_removed(tmp_path: Path, encoder: WordEncoder, monkeypatch) -> None:
    index = make_index(tmp_path)
    shutil.copytree(index, tmp_path / ".docs.index.updating" / "made")
    (tmp_path / ".docs.index.updating" / "made" / "passages" / "00001.arrow").write_text("half of it")
    (tmp_path / ".docs.index.lock").touch()
    index.rename(tmp_path / ".docs.index.4711-0123abcd.replaced")
    assert get_counts(apply_update(index, {"fox": "a fox ran"}, ["cat"])) == (1, 0, 0, 1)
    assert list_documents(index) == ["dog", "sea", "owl", "fox"]
    assert list_neighbours(index) == ["docs.index"]


def test_a_directory_of_the_user_in_the_place_of_the_update_stays(tmp_path: Path, encoder: WordEncoder) -> None:
    index = make_index(tmp_path)
    notes = tmp_path / ".docs.index.updating" / "notes.txt"
    notes.parent.mkdir()
    notes.write_text("mine")
    with pytest.raises(BadInput, match=r"\.docs\.index\.updating is not ragqa's"):
        update_index(index, delete=["cat"])
    assert notes.read_text() == "mine" and "cat" in list_documents(index)


def test_a_damaged_record_of_deleted_documents_is_ignored(tmp_path: Path, encoder: WordEncoder) -> None:
    index = make_index(tmp_path)
    for content in ("[" * 100_000, "[]", ""):
        (tmp_path / ".docs.index.updating").mkdir()
        (tmp_path / ".docs.index.updating" / "deleted.json").write_text(content)
        with pytest.raises(BadInput, match="no document has the id fox"):
            apply_update(index, delete=["fox"])


@pytest.mark.parametrize("shape", [(1, 7), (3, 64), (64,)], ids=str)
def test_vectors_that_do_not_fit_the_passages_are_named(
    tmp_path: Path, encoder: WordEncoder, shape: tuple[int, ...]
) -> None:
    index = make_index(tmp_path)
    apply_update(index, {"fox": "a fox"}, compact=False)
    np.save(index / "dense" / "added-000001.npy", np.zeros(shape, np.float16))
    sign(index)
    with pytest.raises(DamagedArtefact, match=r"different widths|vectors of the shape|instead of rows"):
        apply_update(index, {"hen": "a hen"})
    assert list_neighbours(index) == ["docs.index"]


def test_a_limit_on_file_sizes_leaves_the_old_index(tmp_path: Path, encoder: WordEncoder) -> None:
    """The limit applies to all writers, also to Tantivy and Arrow, as on a full disk."""
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
from tests.helpers.updates import update_repeatedly
index, number = Path(sys.argv[1]), 1
while True:
    update_repeatedly(index, number)
    print(number, flush=True)
    number += 1
"""


def check_kills(tmp_path: Path, seeds: Sequence[int]) -> None:
    """Send SIGKILL at random moments of repeated updates; the index must be the whole old one or the whole new one."""
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
        assert {row[0] for row in search(open_retriever(index), ALL_TERMS)} == {*TEXTS, version}
    update_repeatedly(index, 7)
    assert sorted(list_documents(index)) == sorted([*TEXTS, "v7"])
    assert list_neighbours(index) == ["docs.index"]


def test_random_kills_lose_nothing(tmp_path: Path) -> None:
    check_kills(tmp_path, range(2))


@pytest.mark.slow
def test_many_random_kills_lose_nothing(tmp_path: Path) -> None:
    check_kills(tmp_path, range(10, 30))


def test_updates_never_write_into_shared_files(tmp_path: Path, encoder: WordEncoder) -> None:
    """An update must not change a copy of the index that shares its files by hard links."""
    index = make_index(tmp_path)
    apply_update(index, {"fox": "a fox ran", "cat": "a cat slept"}, compact=False)
    linked_copy = tmp_path / "kept.index"
    shutil.copytree(index, linked_copy, copy_function=os.link)
    before = read_files(linked_copy)
    apply_update(index, {"hen": "a hen sat", "fox": "a fox slept"}, ["dog"], compact=False)
    assert read_files(linked_copy) == before
    apply_update(index, {"hen": "a hen ran"}, compact=True)
    apply_update(linked_copy, {"ape": "an ape ran"}, file="ape")
    assert {
        name: data for name, data in read_files(linked_copy).items() if name in before
    } != before  # at least the manifest
    assert sorted(list_documents(index)) == ["cat", "fox", "hen", "owl", "sea"]
    assert sorted(list_documents(linked_copy)) == ["ape", "cat", "dog", "fox", "owl", "sea"]
    for one in (index, linked_copy):
        assert {row[0] for row in search(open_retriever(one), f"{ALL_TERMS} fox hen ape")} == set(list_documents(one))


def test_files_are_copied_where_links_are_impossible(tmp_path: Path, encoder: WordEncoder, monkeypatch) -> None:
    index = make_index(tmp_path)

    def refuse_links(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse_links)
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
    """An open index keeps all its files open, and a process has a limit of open files."""
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
