"""Artefacts: whole or not there, and a changed file is named."""

import json
import os
from pathlib import Path

import pytest

from ragqa import artefact
from ragqa.errors import ArtefactError, BadInput, DamagedArtefact, Mismatch


@pytest.fixture
def made(tmp_path: Path) -> Path:
    target = tmp_path / "thing"
    with artefact.writing(target) as folder:
        (folder / "part").mkdir()
        (folder / "part" / "a.bin").write_bytes(b"0123456789")
        artefact.seal(folder, "index", {"kind": "flat"}, {"encoder": "abc"})
    return target


def test_a_sealed_folder_is_read_back(made: Path) -> None:
    manifest = artefact.read(made, "index")
    assert manifest.config == {"kind": "flat"}
    assert manifest.parents == {"encoder": "abc"}
    assert manifest.files["part/a.bin"]["size"] == 10
    # sha256 of "0123456789", from coreutils
    assert manifest.files["part/a.bin"]["sha256"].startswith("84d89877f0d4041efb6bf91a16f0248f")


@pytest.mark.parametrize("content", [b"012345678", b"012345678X"], ids=["truncated", "edited"])
def test_a_changed_file_is_named(made: Path, content: bytes) -> None:
    artefact.read(made, "index")
    (made / "part" / "a.bin").write_bytes(content)
    with pytest.raises(DamagedArtefact, match=r"part/a\.bin is damaged"):
        artefact.read(made, "index")


def test_an_edit_that_keeps_size_and_time_is_seen_without_the_stamp(made: Path) -> None:
    file = made / "part" / "a.bin"
    stat = file.stat()
    file.write_bytes(b"X123456789")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(DamagedArtefact):
        artefact.read(made, "index")


def test_a_missing_file_is_named(made: Path) -> None:
    (made / "part" / "a.bin").unlink()
    with pytest.raises(DamagedArtefact, match=r"a\.bin is missing"):
        artefact.read(made, "index")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": 3, "what": 1}'])
def test_a_spoiled_manifest_is_damage(made: Path, text: str) -> None:
    (made / "manifest.json").write_text(text)
    with pytest.raises(DamagedArtefact, match=r"manifest\.json"):
        artefact.read(made, "index")


def test_other_kinds_and_newer_formats_are_refused(made: Path) -> None:
    with pytest.raises(ArtefactError, match="is a ragqa index, not a ragqa reader"):
        artefact.read(made, "reader")
    row = json.loads((made / "manifest.json").read_text())
    (made / "manifest.json").write_text(json.dumps({**row, "format": artefact.FORMAT + 1}))
    with pytest.raises(Mismatch, match="update ragqa"):
        artefact.read(made, "index")


def test_not_an_artefact(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="does not exist"):
        artefact.peek(tmp_path / "nowhere")
    with pytest.raises(ArtefactError, match="is not a ragqa directory"):
        artefact.peek(tmp_path)


def test_a_failed_write_leaves_the_old_one(made: Path) -> None:
    with pytest.raises(RuntimeError), artefact.writing(made) as folder:
        (folder / "b").write_text("half")
        raise RuntimeError
    assert artefact.read(made, "index").files.keys() == {"part/a.bin"}
    assert [p.name for p in made.parent.iterdir()] == ["thing"]


def test_a_kill_between_the_two_renames_is_mended(made: Path) -> None:
    made.rename(artefact.replaced(made))
    assert artefact.read(made, "index").kind == "index"


def test_a_full_disk_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot write .*No space left"), artefact.writing(tmp_path / "x"):
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_fingerprint_changes_with_files_config_and_parents(made: Path) -> None:
    one = artefact.peek(made)
    others = [
        artefact.Manifest(one.kind, {"kind": "hnsw"}, one.parents, one.files),
        artefact.Manifest(one.kind, one.config, {"encoder": "abd"}, one.files),
        artefact.Manifest(one.kind, one.config, one.parents, {}),
    ]
    assert len({m.fingerprint for m in [one, *others]}) == 4
