"""The walk through folders: depth, and files that only look like those of a saved data set."""

import os
import subprocess
from pathlib import Path

import pytest

from ragqa import artefacts
from ragqa.errors import BadInput
from tests.helpers.documents import read, write


def test_folders_of_any_depth_are_read(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    for depth in range(1_100):  # Linux takes paths of 4,095 bytes, so that the end is out of reach
        if depth == 980:
            with open(os.open("a.txt", os.O_CREAT | os.O_WRONLY, dir_fd=folder), "w") as file:
                file.write("deep")
        os.mkdir("ddd", dir_fd=folder)
        inner = os.open("ddd", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    write(tmp_path / "e.txt", "flat")
    documents, report = read(tmp_path, strict=False)
    assert [d.text for d in documents] == ["flat", "deep"]
    assert (report.bad, "File name too long" in report.notes[0]) == (1, True)
    with pytest.raises(BadInput, match=r"/ddd: cannot be read: File name too long"):
        read(tmp_path)
    subprocess.run(["rm", "-r", tmp_path], check=True)  # pytest's own removal calls itself for each level


def test_an_artefact_and_its_files_are_not_documents(tmp_path: Path) -> None:
    index = tmp_path / "x.index"
    with artefacts.replace_directory(index) as folder:
        write(folder / "passages" / "00000.arrow", "rows")
        artefacts.write_manifest(folder, "index", {}, {})
    (tmp_path / "link").symlink_to(index / "passages")
    for path in (index, index / "passages", index / "passages" / "00000.arrow", index / "manifest.json"):
        with pytest.raises(BadInput, match=rf"^{path} is, or is part of, a ragqa index: name the documents"):
            read(path)
    with pytest.raises(BadInput, match="link is, or is part of, a ragqa index"):
        read(tmp_path / "link")
    notes = write(index / "notes.txt", "of the user")
    other = write(tmp_path / "web" / "passages" / "a.txt", "of another program")
    write(tmp_path / "web" / "manifest.json", '{"name": "my app"}')
    assert [d.text for d in read(notes, other, other.parent)[0]] == ["of the user", "of another program"]


def test_a_file_of_the_system_without_a_size_is_empty(tmp_path: Path) -> None:
    for name in ("a.txt", "state.json"):  # /proc/kmsg would never end, and only root may read it
        (tmp_path / name).symlink_to("/proc/version")
    write(tmp_path / "b.txt", "text")
    documents, report = read(tmp_path)
    assert ([d.text for d in documents], report.empty) == (["text"], 2)


@pytest.mark.parametrize("kind", ["pipe", "nested"])
def test_a_hostile_state_file_is_ignored(tmp_path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(tmp_path / "state.json")
    else:
        write(tmp_path / "state.json", "[" * 200_000)
    write(tmp_path / "a.txt", "text")
    assert read(tmp_path, strict=False)[0][0].text == "text"
