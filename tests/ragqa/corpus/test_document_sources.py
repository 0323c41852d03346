"""Compressed files, archives and folders of documents; files that are left out; large inputs."""

import bz2
import gzip
import io
import lzma
import os
import random
import tarfile
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragqa.corpus.digests import DigestSet
from ragqa.corpus.sources import CorpusReport, Document, count_input_bytes, read_documents
from ragqa.errors import BadInput
from tests.helpers.documents import make_article, make_tar, make_zip, read, read_one, to_json_lines, write

EXPAND = {
    ".xz": lambda data: lzma.compress(data, preset=0),
    ".gz": lambda data: gzip.compress(data, 1),
    ".bz2": bz2.compress,
}


@pytest.mark.parametrize("suffix", EXPAND)
def test_compressed_files_are_read(tmp_path: Path, suffix: str) -> None:
    compress = EXPAND[suffix]
    record = to_json_lines({"id": "1", "text": "t"}).encode()
    assert read_one(tmp_path / f"a.jsonl{suffix}", compress(record)).text == "t"
    assert read_one(tmp_path / f"the-wave.md{suffix}", compress(b"text")).title == "the wave"
    assert read_one(tmp_path / f"wiki_00{suffix}", compress(make_article("1", "T", "x").encode())).title == "T"
    assert read_one(tmp_path / f"p.tsv{suffix}", compress(b"id\ttext\ttitle\n1\ta\tb\n")).id == "1"


@pytest.mark.parametrize("suffix", ["", *EXPAND])
def test_members_of_archives_are_read(tmp_path: Path, suffix: str) -> None:
    members = {
        "AA/wiki_01": make_article("1", "T", "one").encode(),
        "./AA/wiki_00": (make_article("2", "U", "two") + make_article("3", "V", "three")).encode(),
        "._AA": b"hidden",
        "AA/.git/config": b"hidden",
        "b.jsonl.xz": lzma.compress(to_json_lines({"id": "4", "text": "four"}).encode()),
        "picture.png": b"\x89PNG\r\n\x1a\n\0\0",
        "c.txt": b"five",
    }
    path = write(tmp_path / f"a.tar{suffix}", EXPAND.get(suffix, bytes)(make_tar(members)))
    documents, report = read(path)
    assert [(d.id, d.path) for d in documents] == [
        ("1", f"{path}/AA/wiki_01"),
        ("2", f"{path}/AA/wiki_00"),
        ("3", f"{path}/AA/wiki_00"),
        ("4", f"{path}/b.jsonl.xz"),
        (f"{path}/c.txt", f"{path}/c.txt"),
    ]
    assert report.left_out_paths == {"image": [f"{path}/picture.png"]}
    assert sorted(os.listdir(tmp_path)) == [path.name]


def test_members_that_are_not_files_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for kind in (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
            info = tarfile.TarInfo(f"member{kind.decode()}.txt")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        info = tarfile.TarInfo("../../outside.txt")
        info.size = 4
        archive.addfile(info, io.BytesIO(b"text"))
    documents, _ = read(path)
    assert [d.text for d in documents] == ["text"]
    assert os.listdir(tmp_path) == ["a.tar"]


@cache
def make_article_archive(suffix: str, count: int = 40) -> bytes:
    rng = random.Random(0)
    bodies = ["".join(rng.choices("abcdefgh ", k=30_000)) for _ in range(count)]
    members = {f"AA/wiki_{n:02}": make_article(str(n), f"T{n}", body).encode() for n, body in enumerate(bodies)}
    return EXPAND.get(suffix, bytes)(make_tar(members))


@pytest.mark.parametrize("suffix", ["", *EXPAND])
@pytest.mark.parametrize("share", [0.3, 0.95])
def test_a_truncated_archive_is_reported(tmp_path: Path, suffix: str, share: float) -> None:
    content = make_article_archive(suffix)
    path = write(tmp_path / f"a.tar{suffix}", content[: int(share * len(content)) // 512 * 512 + 300])
    with pytest.raises(BadInput, match=rf"{path}: cannot be read: "):
        read(path)
    documents, report = read(path, strict=False)
    assert report.bad == 1
    # bzip2 gives nothing of a block of 900 kB that is not whole
    assert 0 < len(documents) < 40 or suffix == ".bz2"


def test_an_archive_without_its_last_bytes_is_reported(tmp_path: Path) -> None:
    content = make_article_archive(".xz", 3)
    with pytest.raises(BadInput, match=r"a\.tar\.xz: cannot be read: "):
        read(write(tmp_path / "a.tar.xz", content[:-20]))


def test_an_archive_cut_within_a_header_is_reported(tmp_path: Path) -> None:
    content = make_article_archive("", 5)
    cut = content[: content.index(b"AA/wiki_03") + 100]
    with pytest.raises(BadInput, match=r"a\.tar: cannot be read: cut short"):
        read(write(tmp_path / "a.tar", cut))


def test_a_damaged_header_is_not_taken_for_the_end_of_an_archive(tmp_path: Path) -> None:
    content = bytearray(make_article_archive("", 5))
    content[content.index(b"AA/wiki_03")] ^= 0xFF
    with pytest.raises(BadInput, match=r"a\.tar: cannot be read: damaged"):
        read(write(tmp_path / "a.tar", bytes(content)))


@pytest.mark.parametrize("name", ["a.tar", "a.tar.xz", "a.jsonl.gz", "a.txt.bz2", "a.xz"])
def test_a_file_that_does_not_fit_its_suffix_is_reported(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, "no such thing " * 100)
    with pytest.raises(BadInput, match=rf"{path}: cannot be read: "):
        read(path)
    assert read(path, strict=False)[1].bad == 1


def test_a_folder_is_walked_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["b.txt", "a.md", "Z.txt", "sub/c.txt", "sub/deep/d.txt", "abc/e.txt", ".hidden.txt", ".git/f.txt"]
    for name in names:
        write(tmp_path / "docs" / name, f"text of {name}")
    monkeypatch.chdir(tmp_path)
    expected = ["docs/Z.txt", "docs/a.md", "docs/b.txt", "docs/abc/e.txt", "docs/sub/c.txt", "docs/sub/deep/d.txt"]
    documents, _ = read(Path("docs"))
    assert [d.path for d in documents] == expected
    assert [d.id for d in documents] == expected
    assert all(Path(d.path).read_text() == d.text for d in documents)
    documents, _ = read(Path("docs/sub"), Path("docs/.hidden.txt"), Path("docs/.git"))
    assert [d.path for d in documents] == [
        "docs/sub/c.txt",
        "docs/sub/deep/d.txt",
        "docs/.hidden.txt",
        "docs/.git/f.txt",
    ]


def test_binary_and_unknown_files_are_counted_and_left_out(tmp_path: Path) -> None:
    write(tmp_path / "a.png", "looks like text")
    write(tmp_path / "b.txt", b"\0")
    write(tmp_path / "c", b"text" * 1000 + b"\0")
    write(tmp_path / "d.jsonl", b'{"id": "1", "text": "\0"}')
    write(tmp_path / "e", "plain text")
    write(tmp_path / "i.xyz", random.Random(0).randbytes(3_000).replace(b"\0", b"x"))
    write(tmp_path / "f", to_json_lines({"id": "1", "text": "a record"}))
    (tmp_path / "g.txt").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "h.txt")
    (tmp_path / "circle").symlink_to(tmp_path)
    documents, report = read(tmp_path)
    assert [d.text for d in documents] == ["plain text", "a record"]
    assert report.notes == []
    assert report.left_out_paths == {
        "image": [f"{tmp_path}/a.png"],
        "binary file": [f"{tmp_path}/{name}" for name in ("b.txt", "c", "d.jsonl", "i.xyz")],
        "broken link": [f"{tmp_path}/g.txt"],
        "special file": [f"{tmp_path}/h.txt"],
        "link to a folder": [f"{tmp_path}/circle"],
    }
    names = ", ".join(report.left_out_paths["binary file"])
    assert report.describe_problems()[0].startswith(f"left out: 1 image, 4 binary files ({names})")
    assert "CSV" in report.describe_problems()[1]


def test_the_summary_names_files_as_users_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(7):
        write(tmp_path / "docs" / f"{number}.zst", b"x")
    write(tmp_path / "docs" / "bad.zip", b"x")
    monkeypatch.chdir(tmp_path)
    lines = read(tmp_path / "docs", strict=False)[1].describe_problems()
    names = ", ".join(f"docs/{number}.zst" for number in range(5))
    assert lines[0] == f"left out: 7 archives ({names}, …), 1 unreadable file (docs/bad.zip)"
    assert lines[-1] == "  docs/bad.zip: cannot be read: damaged, or no zip archive"


def test_a_folder_without_texts_has_no_documents(tmp_path: Path) -> None:
    assert read(tmp_path) == ([], CorpusReport())
    write(tmp_path / "a.png", b"\x89PNG\r\n\x1a\n\0")
    documents, report = read(tmp_path)
    assert (documents, report.left_out, report.bytes_read) == ([], {"image": 1}, 9)


def test_empty_and_repeated_documents_are_counted_and_left_out(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "")
    write(tmp_path / "b.txt", " \r\n\x85\u2003")
    write(tmp_path / "c.md", "# Only a title\n")
    write(tmp_path / "d.txt", "the same")
    write(tmp_path / "sub" / "d.txt", "the same")
    write(tmp_path / "sub" / "e.txt", "the same")
    documents, report = read(tmp_path, tmp_path / "d.txt")
    assert [d.title for d in documents] == ["d", "e"]
    assert (report.empty, report.duplicates, report.notes) == (3, 2, [])
    assert report.left_out_paths["duplicate file"] == [str(tmp_path / "sub" / "d.txt"), str(tmp_path / "d.txt")]
    lines = report.describe_problems()
    assert len(lines) == 1 and f"2 duplicate files ({tmp_path}/sub/d.txt, {tmp_path}/d.txt)" in lines[0]


@pytest.mark.parametrize(
    ("suffix", "kind"), [(".zip", "zip archive"), (".gz", "gzip file"), (".xz", "xz file"), (".bz2", "bzip2 file")]
)
def test_a_file_that_is_not_compressed_as_its_name_says_is_left_out(tmp_path: Path, suffix: str, kind: str) -> None:
    path = write(tmp_path / f"a.txt{suffix}", "no compressed text" * 9)
    assert read(path, strict=False)[1].notes == [f"{path}: cannot be read: damaged, or no {kind}"]


def test_a_file_name_that_is_not_utf_8_does_not_make_its_text_invalid(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.txt")).write_text("a lamp")
    documents, report = read(tmp_path)
    assert [(document.title, document.path) for document in documents] == [("bad\ufffd", f"{tmp_path}/bad\ufffd.txt")]
    assert (report.undecodable, report.notes) == (0, [])


def test_empty_files_are_named_and_empty_records_are_counted(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "\n")
    write(tmp_path / "b.csv", "")
    write(tmp_path / "c.jsonl", '{"text": "a lamp"}\n{"text": " "}\n[]\n{\n{}\n')
    report = read(tmp_path, strict=False)[1]
    assert (report.empty, report.bad) == (3, 3)
    assert report.describe_problems()[:2] == [
        f"left out: 2 empty files ({tmp_path}/a.txt, {tmp_path}/b.csv)",
        "documents and records left out or repaired: 1 empty document, 3 malformed records",
    ]


def test_a_record_with_the_same_text_is_a_duplicate_whatever_its_id(tmp_path: Path) -> None:
    record = {"id": "1", "title": "T", "text": "text"}
    path = write(
        tmp_path / "a.jsonl", to_json_lines(record, record, {**record, "id": "2"}, {**record, "id": "3", "title": "U"})
    )
    documents, report = read(path)
    assert [d.id for d in documents] == ["1", "3"]
    assert report.duplicates == 2
    # title and text are compared separately
    path = write(
        tmp_path / "b.jsonl",
        to_json_lines({"id": "4", "title": "ab", "text": "c"}, {"id": "5", "title": "a", "text": "bc"}),
    )
    assert len(read(path)[0]) == 2


def test_missing_paths_are_reported_before_reading(tmp_path: Path) -> None:
    for function in (read_documents, count_input_bytes):
        with pytest.raises(BadInput, match="nowhere: no such file or folder"):
            function([tmp_path, tmp_path / "nowhere"])
    with pytest.raises(BadInput, match="cannot be read: File name too long"):
        read_documents([tmp_path / ("x" * 1000)])
    with pytest.raises(BadInput, match="null: neither a file nor a folder"):
        read_documents([Path(os.devnull)])


def test_a_file_without_permission_is_reported_or_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, other = write(tmp_path / "a.txt", "secret"), write(tmp_path / "b.txt", "other")
    original = Path.open

    def guarded(path: Path, *args: object, **options: object) -> object:
        if path == secret:
            raise PermissionError(13, "Permission denied", str(path))
        return original(path, *args, **options)

    monkeypatch.setattr(Path, "open", guarded)
    with pytest.raises(BadInput, match=r"a\.txt: cannot be read: Permission denied"):
        read(tmp_path)
    documents, report = read(tmp_path, strict=False)
    assert [d.path for d in documents] == [str(other)]
    assert report.bad == 1


def test_a_folder_without_permission_is_reported_or_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.txt", "other")
    write(tmp_path / "locked" / "b.txt", "secret")
    original = os.scandir

    def guarded(path: str) -> object:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return original(path)

    monkeypatch.setattr(os, "scandir", guarded)
    with pytest.raises(BadInput, match="locked: cannot be read: Permission denied"):
        read(tmp_path)
    documents, report = read(tmp_path, strict=False)
    assert ([d.text for d in documents], sum(report.left_out.values())) == (["other"], 1)


def test_file_names_that_are_not_utf_8_become_valid_text(tmp_path: Path) -> None:
    os.makedirs(os.fsencode(tmp_path) + b"/caf\xe9")
    with open(os.fsencode(tmp_path) + b"/caf\xe9/a.txt", "w") as file:
        file.write("text")
    documents, _ = read(tmp_path)
    assert documents[0].path == f"{tmp_path}/caf\ufffd/a.txt"


def test_only_the_first_problems_are_described(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", "{\n" * 50)
    _, report = read(path, strict=False)
    assert (report.bad, len(report.notes)) == (50, 20)
    assert report.notes[19].startswith(f"{path}:20: ")


@given(numbers=st.lists(st.integers(0, 30) | st.integers(0, 2**128 - 1)))
def test_a_digest_set_behaves_like_a_set(numbers: list[int]) -> None:
    # the lowest bit tells nothing: a slot needs a number that is not zero
    digests, oracle = DigestSet(), set()
    for number in numbers:
        digest = (2 * number % 2**128 + 1).to_bytes(16, "little")
        assert (digest in digests) == (digest in oracle)
        digests.add(digest)
        oracle.add(digest)
        assert digest in digests
        assert len(digests) == len(oracle)


def test_many_digests_take_little_memory() -> None:
    rng = random.Random(0)
    oracle = {rng.randbytes(16) for _ in range(12_000)}
    tracemalloc.start()
    try:
        digests = DigestSet()
        for digest in oracle:
            digests.add(digest)
        assert tracemalloc.get_traced_memory()[0] < 48 * len(oracle)
    finally:
        tracemalloc.stop()
    assert len(digests) == len(oracle)
    assert all(digest in digests for digest in oracle)
    assert not any(rng.randbytes(16) in digests for _ in range(1_000))


def test_bytes_read_grow_up_to_the_size_of_the_input(tmp_path: Path) -> None:
    text = "word " * 20_000
    for name in "ab":
        write(
            tmp_path / f"{name}.jsonl",
            "".join(to_json_lines({"id": f"{name}{n}", "text": f"{name}{n} {text}"}) for n in range(20)),
        )
    write(tmp_path / "c.png", b"x" * 1000)
    report = CorpusReport()
    seen = [report.bytes_read for _ in read_documents([tmp_path], report=report)]
    assert seen == sorted(seen)
    assert len(set(seen)) > 10
    assert 0 < seen[0] < seen[-1] <= report.bytes_read == count_input_bytes([tmp_path])


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.tar"])
def test_a_large_file_is_not_read_into_memory(tmp_path: Path, name: str) -> None:
    noise = "".join(random.Random(0).choices("abcdefgh ", k=100_000))
    records = "".join(to_json_lines({"id": str(n), "text": f"{n} {noise}"}) for n in range(60)).encode()
    content = {
        "a.jsonl": bytes,
        "a.jsonl.gz": lambda data: gzip.compress(data, 1),
        "a.tar": lambda data: make_tar({"a.jsonl": data}),
    }[name](records)
    path = write(tmp_path / name, content)
    del records, content
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_documents([path])) == 60
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()


def test_a_line_of_five_million_characters_is_read(tmp_path: Path) -> None:
    text = "word " * 1_000_000
    assert read_one(tmp_path / "a.txt", text).text == text
    assert read_one(tmp_path / "b.md", "# " + text).list_sections()[0].start == 0
    assert read_one(tmp_path / "c.html", text).text == text.strip()
    assert read_one(tmp_path / "d.jsonl", to_json_lines({"id": "1", "text": text})).text == text


@pytest.mark.parametrize(
    "name", ["a.csv", "a.json", "a.eml", "a.rst", "a.tex", "a.org", "a.ipynb", "a.yaml", "mbox.mbox"]
)
def test_a_line_of_five_million_characters_is_read_in_every_format(tmp_path: Path, name: str) -> None:
    text = "word " * 1_000_000
    content = {
        "a.json": f'["{text}"]',
        "a.ipynb": f'{{"cells": [{{"cell_type": "code", "source": "{text}"}}]}}',
        "a.eml": f"Subject: x\n\n{text}",
        "mbox.mbox": f"From a@b.c Thu Apr 11 15:20:00 2024\nSubject: x\n\n{text}",
    }.get(name, text)
    assert len(read_one(tmp_path / name, content).text) >= len(text.strip())


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.mbox", "a.tar", "a.zip"])
def test_a_file_that_is_cut_while_it_is_read_does_no_harm(tmp_path: Path, name: str) -> None:
    rows = "".join(to_json_lines({"id": str(n), "text": f"text {n} " * 50}) for n in range(20_000))
    mails = "".join(f"From a@b.c Thu Apr 11 15:20:00 2024\nSubject: {n}\n\n{'text ' * 50}\n\n" for n in range(20_000))
    members = {f"{n}.txt": random.Random(n).randbytes(30_000).hex().encode() for n in range(100)}
    content = {"a.mbox": mails.encode(), "a.tar": make_tar(members), "a.zip": make_zip(members)}.get(
        name, rows.encode()
    )
    path, report = write(tmp_path / name, content), CorpusReport()
    documents = read_documents([path], report=report)
    assert next(documents).text
    os.truncate(path, 100)
    assert sum(1 for _ in documents) < 19_999 and len(report.notes) <= 20


def test_real_articles_are_read(shared_data: Path) -> None:
    def first(count: int) -> Iterator[Document]:
        documents = read_documents([shared_data / "wiki" / "AA.tar.xz"])
        return (next(documents) for _ in range(count))

    documents = list(first(50))
    assert (documents[0].id, documents[0].title) == ("12", "Anarchism")
    assert documents[0].path.endswith("AA.tar.xz/AA/wiki_00")
    for document in documents:
        assert document.text[: document.list_sections()[0].start] == f"{document.title}\n"
        assert replace(document, id="", path="") not in [
            replace(d, id="", path="") for d in documents if d is not document
        ]
