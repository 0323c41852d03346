"""What a manifest may name, and what a directory may hold."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragqa import artefacts
from ragqa.errors import DamagedArtefact
from tests.helpers.damage import sign
from tests.ragqa.artefacts.test_ownership import write_artefact


@pytest.fixture
def artefact(tmp_path: Path) -> Path:
    return write_artefact(tmp_path / "thing")


NAMES = ["../../../etc/passwd", "/etc/passwd", "/dev/zero", "a/../../b", "..", ".", "", "a//b", "a/./b", "\0", "\ud800"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_name_that_leads_outside_is_refused(artefact: Path, name: str) -> None:
    sign(artefact, lambda row: row["files"].update({name: {"size": 0, "sha256": "0" * 64}}))
    with pytest.raises(DamagedArtefact, match=r"manifest\.json is damaged: it names the file .*, which is not inside"):
        artefacts.read_manifest(artefact, "index")


ENTRIES = [None, {}, {"size": -1, "sha256": "0" * 64}, {"size": 1.0, "sha256": "0" * 64}, {"size": 4, "sha256": "x"}]


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_a_file_without_size_or_checksum_is_refused(artefact: Path, entry: Any) -> None:
    sign(artefact, lambda row: row["files"].update(passages=entry), rescan=False)
    with pytest.raises(DamagedArtefact, match=r"the file 'passages' has no (size|checksum)"):
        artefacts.read_manifest(artefact, "index")


FIELDS = {"kind": 5, "config": [], "parents": {"corpus": 5}, "created_by": None, "format": True}


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_of_a_wrong_type_is_refused(artefact: Path, field: str) -> None:
    sign(artefact, lambda row: row.update({field: FIELDS[field]}))
    with pytest.raises(DamagedArtefact, match=r"manifest\.json is damaged: "):
        artefacts.read_manifest(artefact, "index")


def make_pipe(file: Path) -> None:
    os.mkfifo(file)


def link_to_zero(file: Path) -> None:
    file.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [make_pipe, link_to_zero])
@pytest.mark.parametrize("is_named", [True, False])
def test_a_pipe_or_device_is_refused_before_it_is_read(
    artefact: Path, make: Callable[[Path], None], is_named: bool
) -> None:
    make(artefact / "more")
    if is_named:
        sign(artefact, lambda row: row["files"].update(more={"size": 0, "sha256": "0" * 64}))
    with pytest.raises(DamagedArtefact, match="more is neither a file nor a folder"):
        artefacts.read_manifest(artefact, "index")


def test_a_directory_in_place_of_a_file_is_refused(artefact: Path) -> None:
    (artefact / "passages").unlink()
    (artefact / "passages").mkdir()
    with pytest.raises(DamagedArtefact, match="passages is not a file"):
        artefacts.read_manifest(artefact, "index")


def test_links_that_lead_in_circles_end(artefact: Path) -> None:
    (artefact / "loop").symlink_to(artefact)
    assert artefacts.read_manifest(artefact, "index").kind == "index"


def test_linked_files_are_read_as_the_hub_stores_them(artefact: Path, tmp_path: Path) -> None:
    (tmp_path / "blob").write_text("rows")
    (artefact / "passages").unlink()
    (artefact / "passages").symlink_to(tmp_path / "blob")
    assert artefacts.read_manifest(artefact, "index").files.keys() == {"passages"}


def test_a_huge_manifest_is_not_read(artefact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artefacts.manifest, "MAX_MANIFEST_BYTES", 10)
    with pytest.raises(DamagedArtefact, match="larger than any manifest"):
        artefacts.peek_manifest(artefact)


def test_a_file_of_the_system_without_a_size_is_empty(artefact: Path) -> None:
    """A link to /proc/kmsg would never end, and only root may read it."""
    (artefact / "manifest.json").unlink()
    (artefact / "manifest.json").symlink_to("/proc/sys/kernel/pid_max")  # a number, so JSON
    with pytest.raises(DamagedArtefact, match=r"manifest\.json is damaged: JSONDecodeError"):
        artefacts.peek_manifest(artefact)
    assert artefacts.checksum(artefact / "manifest.json") == hashlib.sha256().hexdigest()


def test_only_errors_of_content_count_as_damage(tmp_path: Path) -> None:
    message = r"x is damaged: a value is wrong or a file is missing \(KeyError: 'k'\)"
    with pytest.raises(DamagedArtefact, match=message), artefacts.report_damage(tmp_path / "x"):
        raise KeyError("k")
    with pytest.raises(RuntimeError), artefacts.report_damage(tmp_path / "x"):
        raise RuntimeError("a bug")
