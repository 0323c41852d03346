"""New files are on the disk before they replace old ones, and old ones are deleted last."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragqa import artefacts
from ragqa.errors import BadInput
from tests.ragqa.artefacts.test_ownership import write_artefact


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record syncs, swaps and deletions in their order, by the name of the file."""
    recorded: list[str] = []

    def record(name: str, call: Callable[..., Any], path_of: Callable[..., str]) -> Callable[..., Any]:
        def recording(*arguments: Any, **options: Any) -> Any:
            recorded.append(f"{name} {path_of(*arguments)}")
            return call(*arguments, **options)

        return recording

    def name_of(descriptor: int) -> str:
        return Path(os.readlink(f"/proc/self/fd/{descriptor}")).name.replace(str(os.getpid()), "PID")

    monkeypatch.setattr(os, "fsync", record("sync", os.fsync, name_of))
    exchange = record("swap", artefacts.atomic.exchange_directories, lambda first, second: second.name)
    monkeypatch.setattr(artefacts.atomic, "exchange_directories", exchange)
    monkeypatch.setattr(shutil, "rmtree", record("delete", shutil.rmtree, lambda folder, **_: "old"))
    monkeypatch.setattr(Path, "rename", record("rename", Path.rename, lambda _, target: target.name))
    return recorded


@pytest.mark.parametrize("is_new", [True, False])
def test_a_directory_is_on_the_disk_before_it_takes_its_place(tmp_path: Path, events: list[str], is_new: bool) -> None:
    parent = tmp_path / "parent"
    if not is_new:
        write_artefact(parent / "thing")
    events.clear()
    write_artefact(parent / "thing", passages="new", terms="new")
    step = "rename thing" if is_new else "swap thing"
    before, after = events[: events.index(step)], events[events.index(step) + 1 :]
    assert {"sync passages", "sync terms", "sync manifest.json"} <= set(before)
    assert before[-1].startswith("sync .thing.")  # the new directory with its names
    assert after == ["sync parent"] + ["delete old"] * (not is_new)


def test_files_shared_with_an_earlier_version_are_not_synced_again(tmp_path: Path, events: list[str]) -> None:
    old = write_artefact(tmp_path / "old", passages="rows")
    events.clear()
    with artefacts.replace_directory(tmp_path / "new") as folder:
        artefacts.link_file(old / "passages", folder / "passages")
        artefacts.write_manifest(folder, "index", {}, {})
    assert "sync passages" not in events and "sync manifest.json" in events


def test_a_single_file_is_on_the_disk_before_it_takes_its_place(tmp_path: Path, events: list[str]) -> None:
    artefacts.write_text_whole(tmp_path / "a.json", "{}")
    assert events == ["sync .a.json.writing", f"sync {tmp_path.name}"]


def test_a_disk_that_fails_to_sync_leaves_the_old_artefact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = write_artefact(tmp_path / "thing")

    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(BadInput, match=r"cannot write .*thing: Input/output error; nothing was changed"):
        write_artefact(target, passages="new")
    monkeypatch.undo()
    assert (target / "passages").read_text() == "rows"
    assert [path.name for path in tmp_path.iterdir()] == ["thing"]
