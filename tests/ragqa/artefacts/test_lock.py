"""Locks are files of ragqa; links and other people's files in their place are not touched."""

import os
from pathlib import Path

import pytest

from ragqa.artefacts.lock import hold_lock
from ragqa.errors import BadInput


def test_a_link_in_place_of_a_lock_is_refused_and_its_target_kept(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / ".a.lock").symlink_to(tmp_path / "precious")
    refused = pytest.raises(BadInput, match=r"\.a\.lock is not a lock file, but a link")
    with refused, hold_lock(tmp_path / ".a.lock", wait=False):
        pass
    assert (tmp_path / "precious").read_text() == "mine"
    assert (tmp_path / ".a.lock").is_symlink()


def test_a_link_to_nothing_creates_no_file(tmp_path: Path) -> None:
    (tmp_path / ".a.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="a link"), hold_lock(tmp_path / ".a.lock", wait=False):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_pipe_in_place_of_a_lock_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".a.lock")
    refused = pytest.raises(BadInput, match=r"\.a\.lock is not a lock file, but a pipe")
    with refused, hold_lock(tmp_path / ".a.lock", wait=True):
        pass


def test_a_file_with_content_is_locked_and_kept(tmp_path: Path) -> None:
    (tmp_path / ".a.lock").write_text("mine")
    refused = pytest.raises(BadInput, match="another process is at work")
    with hold_lock(tmp_path / ".a.lock", wait=False), refused, hold_lock(tmp_path / ".a.lock", wait=False):
        pass
    assert (tmp_path / ".a.lock").read_text() == "mine"


def test_a_lock_leaves_nothing_behind(tmp_path: Path) -> None:
    for _ in range(2):
        with hold_lock(tmp_path / ".a.lock", wait=False):
            assert (tmp_path / ".a.lock").stat().st_size == 0
    assert list(tmp_path.iterdir()) == []
