"""Whoever writes next removes what killed processes left, and nothing that a living process owns."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ragqa import artefacts
from ragqa.artefacts.orphans import create_temporary, own_directory
from tests.ragqa.artefacts.test_ownership import write_artefact

HOLD = """
import sys
from pathlib import Path
from ragqa import artefacts
with artefacts.replace_directory(Path(sys.argv[1])) as folder:
    (folder / "half").write_text("half")
    print(folder.name, flush=True)
    sys.stdin.read()
"""


def start_writer(target: Path) -> tuple[subprocess.Popen[str], Path]:
    """Start a process that has begun to replace ``target``; return it with its temporary directory."""
    root = str(Path(__file__).parents[3])
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(target)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert process.stdout is not None
    return process, target.with_name(process.stdout.readline().strip())


def stop_writer(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_a_living_writer_keeps_its_directory_and_a_killed_one_loses_it(tmp_path: Path) -> None:
    target = tmp_path / "thing"
    process, temporary = start_writer(target)
    try:
        write_artefact(target)
        assert (temporary / "half").read_text() == "half"
    finally:
        stop_writer(process)
    assert temporary.is_dir()
    write_artefact(target)
    assert [path.name for path in tmp_path.iterdir()] == ["thing"]


def test_remains_of_killed_processes_are_removed(tmp_path: Path) -> None:
    target = write_artefact(tmp_path / "thing")
    for name in (".thing.7-0123abcd.writing", ".thing.7-0123abcd.replaced", ".thing.updating"):
        (tmp_path / name / "made").mkdir(parents=True)
    artefacts.sweep_orphans(target)
    assert [path.name for path in tmp_path.iterdir()] == ["thing"]


def test_neighbours_with_similar_names_stay(tmp_path: Path) -> None:
    names = [".thing2.7-0123abcd.writing", ".thing.building", ".thing.evaluating", ".thing.7-0123abcd.writing.d"]
    for name in names:
        (tmp_path / name).mkdir()
    (tmp_path / ".thing.8-0123abcd.writing").write_text("a file")
    (tmp_path / ".thing.9-0123abcd.writing").symlink_to(tmp_path / ".thing.building")
    artefacts.sweep_orphans(tmp_path / "thing")
    assert {path.name for path in tmp_path.iterdir()} == {
        *names,
        ".thing.8-0123abcd.writing",
        ".thing.9-0123abcd.writing",
    }


def test_directories_of_the_user_with_such_names_stay(tmp_path: Path) -> None:
    target = write_artefact(tmp_path / "thing")
    notes = [tmp_path / name / "notes.txt" for name in (".thing.77.writing", ".thing.7.replaced", ".thing.updating")]
    for note in notes:
        note.parent.mkdir()
        note.write_text("mine")
    write_artefact(target, passages="new rows")
    assert [note.read_text() for note in notes] == ["mine"] * 3


def test_a_replaced_directory_returns_if_its_successor_is_missing(tmp_path: Path) -> None:
    target = write_artefact(tmp_path / "thing")
    target.rename(tmp_path / ".thing.7-0123abcd.replaced")
    artefacts.sweep_orphans(target)
    assert [path.name for path in tmp_path.iterdir()] == ["thing"]
    artefacts.read_manifest(target, "index")


def test_a_replaced_artefact_is_not_deleted_with_a_users_file_in_it(tmp_path: Path) -> None:
    target = write_artefact(tmp_path / "thing")
    left = write_artefact(tmp_path / ".thing.7-0123abcd.replaced")
    (left / "late.txt").write_text("mine")
    artefacts.sweep_orphans(target)
    assert (left / "late.txt").read_text() == "mine"


def test_two_writers_in_one_process_do_not_share_a_directory(tmp_path: Path) -> None:
    with create_temporary(tmp_path / "thing") as first, create_temporary(tmp_path / "thing") as second:
        artefacts.sweep_orphans(tmp_path / "thing")
        assert first != second and first.is_dir() and second.is_dir()


def test_a_directory_that_cannot_be_locked_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Network file systems may have no locks on directories; nobody can tell there who is alive."""

    def refuse(*_: object) -> None:
        raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr(artefacts.orphans.fcntl, "flock", refuse)
    with own_directory(tmp_path / ".thing.7-0123abcd.writing") as folder:
        artefacts.sweep_orphans(tmp_path / "thing")
        assert folder.is_dir()
