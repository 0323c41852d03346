"""Zip archives: their members are read like files; damage and bombs are named."""

import zipfile
from pathlib import Path

import pytest

from ragqa.corpus.formats.containers import zip_archives
from ragqa.errors import BadInput
from tests.helpers.documents import make_tar, make_zip, read, write


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_members_are_read_like_files(tmp_path: Path, compression: int) -> None:
    inner = make_zip({"e.txt": b"five"})
    members = {
        "folder/": b"",
        "folder/a.csv": b"Name,Age\nAda,36\n",
        "../../b.txt": b"two",
        ".git/config": b"hidden",
        "__MACOSX/b.txt": b"hidden",
        "c.tar": make_tar({"d.txt": b"four", "inner.zip": inner}),
        "picture.png": b"\x89PNG\0",
    }
    path = write(tmp_path / "a.zip", make_zip(members, compression))
    documents, report = read(path)
    assert [(d.path, d.text) for d in documents] == [
        (f"{path}/folder/a.csv", "Name: Ada; Age: 36\n"),
        (f"{path}/b.txt", "two"),
        (f"{path}/c.tar/d.txt", "four"),
        (f"{path}/c.tar/inner.zip/e.txt", "five"),
    ]
    assert report.left_out_paths == {"image": [f"{path}/picture.png"]}


def test_a_damaged_member_does_not_stop_an_archive(tmp_path: Path) -> None:
    content = bytearray(make_zip({"a.txt": b"one " * 100, "b.txt": b"two"}, zipfile.ZIP_STORED))
    content[content.index(b"one one") + 5] ^= 1
    path = write(tmp_path / "a.zip", content)
    documents, report = read(path, strict=False)
    assert [d.text for d in documents] == ["two"]
    assert report.notes == [f"{path}/a.txt: cannot be read: Bad CRC-32 for file 'a.txt'"]
    with pytest.raises(BadInput, match=r"a\.zip/a\.txt: cannot be read"):
        read(path)


def test_an_encrypted_member_is_left_out(tmp_path: Path) -> None:
    content = bytearray(make_zip({"a.txt": b"secret", "b.txt": b"open"}))
    for mark, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        content[content.index(mark) + place] |= 1
    path = write(tmp_path / "a.zip", content)
    documents, report = read(path)
    assert [d.text for d in documents] == ["open"]
    assert report.left_out_paths == {"encrypted file in an archive": [f"{path}/a.txt"]}


def test_a_bomb_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.zip", make_zip({f"{n}.txt": b"a" * 60_000_000 for n in range(3)}))
    with pytest.raises(BadInput, match=r"a\.zip: cannot be read: it expands to more than 200 times"):
        read(path)


def test_too_many_members_are_refused_before_they_take_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zip_archives, "_MAX_DIRECTORY_BYTES", 1_000)
    with pytest.raises(BadInput, match="it has too many members"):
        read(write(tmp_path / "a.zip", make_zip({f"{n}.txt": b"text" for n in range(50)})))


@pytest.mark.parametrize("content", [b"", b"no archive", make_zip({"a.txt": b"text"})[:-10]])
def test_a_file_that_is_no_archive_is_reported(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(BadInput, match=r"a\.zip: cannot be read: damaged, or no zip archive"):
        read(write(tmp_path / "a.zip", content))
