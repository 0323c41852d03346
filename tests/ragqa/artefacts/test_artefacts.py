"""Artefacts: written whole or not at all, and changed files are named."""

import json
import os
from pathlib import Path

import pytest

from ragqa import artefacts
from ragqa.artefacts import paths
from ragqa.errors import ArtefactError, BadInput, DamagedArtefact, Mismatch


@pytest.fixture
def artefact(tmp_path: Path) -> Path:
    target = tmp_path / "thing"
    with artefacts.replace_directory(target) as folder:
        (folder / "part").mkdir()
        (folder / "part" / "a.bin").write_bytes(b"0123456789")
        artefacts.write_manifest(folder, "index", {"kind": "flat"}, {"encoder": "abc"})
    return target


def test_a_written_manifest_is_read_back(artefact: Path) -> None:
    manifest = artefacts.read_manifest(artefact, "index")
    assert manifest.config == {"kind": "flat"}
    assert manifest.parents == {"encoder": "abc"}
    assert manifest.files["part/a.bin"]["size"] == 10
    # sha256 of "0123456789", computed with coreutils
    assert manifest.files["part/a.bin"]["sha256"].startswith("84d89877f0d4041efb6bf91a16f0248f")


@pytest.mark.parametrize("content", [b"012345678", b"012345678X"], ids=["truncated", "edited"])
def test_a_changed_file_is_named(artefact: Path, content: bytes) -> None:
    artefacts.read_manifest(artefact, "index")
    (artefact / "part" / "a.bin").write_bytes(content)
    with pytest.raises(DamagedArtefact, match=r"part/a\.bin is damaged: .*; make the index again"):
        artefacts.read_manifest(artefact, "index")


def test_an_edit_that_keeps_size_and_time_is_detected(artefact: Path) -> None:
    artefacts.read_manifest(artefact, "index")
    file = artefact / "part" / "a.bin"
    stat = file.stat()
    file.write_bytes(b"X123456789")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(DamagedArtefact):
        artefacts.read_manifest(artefact, "index")


def test_a_missing_file_is_named(artefact: Path) -> None:
    (artefact / "part" / "a.bin").unlink()
    with pytest.raises(DamagedArtefact, match=r"a\.bin is missing"):
        artefacts.read_manifest(artefact, "index")


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"kind": 3, "what": 1}', '{"fingerprint": 1}', "\udcff"])
def test_an_unreadable_manifest_counts_as_damaged(artefact: Path, text: str) -> None:
    (artefact / "manifest.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DamagedArtefact, match=r"manifest\.json"):
        artefacts.read_manifest(artefact, "index")


@pytest.mark.parametrize(
    "edit",
    [
        {"kind": "reader"},
        {"config": {}},
        {"config": {"kind": "hnsw"}},
        {"files": []},
        {"files": {}},
        {"files": {"part/a.bin": {}}},
        {"parents": {}},
    ],
    ids=str,
)
def test_every_edit_of_the_manifest_is_detected(artefact: Path, edit: dict) -> None:
    row = json.loads((artefact / "manifest.json").read_text())
    (artefact / "manifest.json").write_text(json.dumps(row | edit))
    with pytest.raises(DamagedArtefact, match=r"manifest\.json is damaged"):
        artefacts.read_manifest(artefact, "index")


def test_other_kinds_and_newer_formats_are_refused(artefact: Path) -> None:
    with pytest.raises(ArtefactError, match="is a ragqa index, not a ragqa reader"):
        artefacts.read_manifest(artefact, "reader")
    artefacts.write_manifest(artefact, "index", {}, {})
    row = json.loads((artefact / "manifest.json").read_text())
    (artefact / "manifest.json").write_text(json.dumps({**row, "format": artefacts.FORMAT + 1}))
    with pytest.raises(Mismatch, match="update ragqa"):
        artefacts.read_manifest(artefact, "index")


def test_a_directory_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="does not exist"):
        artefacts.peek_manifest(tmp_path / "nowhere")
    with pytest.raises(ArtefactError, match="is not a ragqa directory"):
        artefacts.peek_manifest(tmp_path)


def test_a_failed_write_leaves_the_old_artefact(artefact: Path) -> None:
    with pytest.raises(RuntimeError), artefacts.replace_directory(artefact) as folder:
        (folder / "b").write_text("half")
        raise RuntimeError
    assert artefacts.read_manifest(artefact, "index").files.keys() == {"part/a.bin"}
    assert [p.name for p in artefact.parent.iterdir()] == ["thing"]


def test_weights_get_the_mode_of_new_files(tmp_path: Path) -> None:
    """safetensors makes them readable by their owner only; other private files stay private."""
    (tmp_path / "new").touch()
    with artefacts.replace_directory(tmp_path / "made") as folder:
        (folder / "part").mkdir()
        for name in ("model.safetensors", "notes"):
            (folder / "part" / name).touch(mode=0o600)
    weights, notes = (tmp_path / "made" / "part" / name for name in ("model.safetensors", "notes"))
    assert weights.stat().st_mode == (tmp_path / "new").stat().st_mode
    assert notes.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("exchange", [True, False])
def test_an_artefact_is_replaced(artefact: Path, exchange: bool, monkeypatch) -> None:
    if not exchange:  # a file system that cannot swap two directories in one step
        monkeypatch.setattr(artefacts.atomic, "exchange_directories", lambda one, other: False)
    with artefacts.replace_directory(artefact) as folder:
        (folder / "b").write_text("new")
        artefacts.write_manifest(folder, "index", {}, {})
    assert artefacts.read_manifest(artefact, "index").files.keys() == {"b"}
    assert [p.name for p in artefact.parent.iterdir()] == ["thing"]


def test_two_directories_are_swapped_in_one_system_call(artefact: Path) -> None:
    other = artefact.with_name("other")
    other.mkdir()
    assert artefacts.atomic.exchange_directories(other, artefact)
    assert list(artefact.iterdir()) == []
    assert (other / "manifest.json").is_file()


def test_only_artefacts_of_the_same_kind_may_be_replaced(artefact: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "manifest.json").write_text('{"name": "somebody else\'s"}')
    for free in ("empty", "nowhere", "thing"):
        artefacts.check_replaceable(tmp_path / free, "index")
    for taken in ("file", "web"):
        with pytest.raises(BadInput, match="choose another place"):
            artefacts.check_replaceable(tmp_path / taken, "index")
    with pytest.raises(BadInput, match="is not a ragqa reader"):
        artefacts.check_replaceable(artefact, "reader")
    (artefact / "part" / "a.bin").write_bytes(b"")
    artefacts.check_replaceable(artefact, "index")  # damaged, but clearly a ragqa index, which can be rebuilt


def test_an_artefact_replaced_during_the_check_is_read_again(artefact: Path, monkeypatch) -> None:
    old = artefacts.peek_manifest(artefact)
    with artefacts.replace_directory(artefact) as folder:
        (folder / "b").write_text("new")
        artefacts.write_manifest(folder, "index", {}, {})
    first = [old]
    peek = artefacts.peek_manifest
    monkeypatch.setattr(artefacts.manifest, "peek_manifest", lambda path: first.pop() if first else peek(path))
    assert artefacts.read_manifest(artefact, "index").files.keys() == {"b"}


def test_a_full_disk_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot write .*No space left"), artefacts.replace_directory(tmp_path / "x"):
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_fingerprint_changes_with_files_config_and_parents(artefact: Path) -> None:
    one = artefacts.peek_manifest(artefact)
    others = [
        artefacts.Manifest(one.kind, {"kind": "hnsw"}, one.parents, one.files),
        artefacts.Manifest(one.kind, one.config, {"encoder": "abd"}, one.files),
        artefacts.Manifest(one.kind, one.config, one.parents, {}),
    ]
    assert len({m.fingerprint for m in [one, *others]}) == 4


def test_files_with_known_checksums_are_not_read(artefact: Path, monkeypatch) -> None:
    known = {"part/a.bin": {"size": 10, "sha256": "0" * 64}, "part/gone.bin": {"size": 1, "sha256": "1" * 64}}
    (artefact / "part" / "b.bin").write_bytes(b"new")
    read = []
    checksum = artefacts.checksum
    monkeypatch.setattr(artefacts.manifest, "checksum", lambda path: read.append(path.name) or checksum(path))
    files = artefacts.write_manifest(artefact, "index", {}, {}, known=known).files
    assert read == ["b.bin"]
    assert files["part/a.bin"] == known["part/a.bin"]
    assert files.keys() == {"part/a.bin", "part/b.bin"}


def test_files_marked_as_checked_are_not_read_again(artefact: Path, monkeypatch) -> None:
    read = []
    checksum = artefacts.checksum
    monkeypatch.setattr(artefacts.manifest, "checksum", lambda path: read.append(path.name) or checksum(path))
    artefacts.mark_checked(artefact)
    artefacts.read_manifest(artefact, "index")
    assert read == []
    (artefact / "part" / "a.bin").write_bytes(b"X123456789")
    with pytest.raises(DamagedArtefact, match=r"a\.bin is damaged"):
        artefacts.read_manifest(artefact, "index")


def test_a_damaged_artefact_cannot_be_marked_as_checked(artefact: Path) -> None:
    (artefact / "part" / "a.bin").write_bytes(b"short")
    with pytest.raises(DamagedArtefact, match="5 bytes instead of 10"):
        artefacts.mark_checked(artefact)
    (artefact / "part" / "a.bin").unlink()
    with pytest.raises(DamagedArtefact, match=r"a\.bin is missing"):
        artefacts.mark_checked(artefact)


def test_a_new_hard_link_causes_one_more_check(artefact: Path, monkeypatch) -> None:
    """A hard link changes the change time of a file, but not its content."""
    artefacts.read_manifest(artefact, "index")
    os.link(artefact / "part" / "a.bin", artefact.with_name("link"))
    read = []
    checksum = artefacts.checksum
    monkeypatch.setattr(artefacts.manifest, "checksum", lambda path: read.append(path.name) or checksum(path))
    for _ in range(2):
        artefacts.read_manifest(artefact, "index")
    assert read == ["a.bin"]


def test_an_interrupted_swap_is_restored(artefact: Path) -> None:
    """Without an atomic swap, a process may die between the two renames or while it deletes the old one."""
    left = artefact.with_name(".thing.123-0123abcd.replaced")
    artefact.rename(left)
    artefacts.sweep_orphans(artefact)
    assert artefacts.read_manifest(artefact, "index").files.keys() == {"part/a.bin"}
    (left / "part").mkdir(parents=True)
    artefact.with_name(".thing2.9-0123abcd.replaced").mkdir()
    artefacts.sweep_orphans(artefact)
    assert sorted(p.name for p in artefact.parent.iterdir()) == [".thing2.9-0123abcd.replaced", "thing"]
    artefacts.read_manifest(artefact, "index")


@pytest.mark.parametrize("value", ["", "cache", "./cache"])
def test_a_relative_cache_directory_is_ignored(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert paths.get_cache_dir() == Path.home() / ".cache" / "ragqa"
