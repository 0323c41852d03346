"""Files that expand: bombs are named and end early, honest files of any size are read."""

import bz2
import gzip
import io
import lzma
import os
import random
import tarfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragqa.corpus.formats import base, limits, wikiextractor
from ragqa.corpus.formats.mediawiki import dump
from ragqa.corpus.formats.tables import arrow, parquet_pages
from ragqa.corpus.sources import read_documents
from ragqa.errors import BadInput
from tests.helpers.documents import make_article, make_tar, read, to_json_lines, write
from tests.helpers.tables import write_parquet

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
BOMB = "expands to more than 200 times its size, as only a hostile file does"


@pytest.fixture
def small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the free bytes few, so that a bomb of the tests is small."""
    monkeypatch.setattr(limits, "FREE_BYTES", 4 << 20)
    monkeypatch.setattr(parquet_pages, "FREE_BYTES", 4 << 20)


def make_bomb(suffix: str, size: int) -> bytes:
    return COMPRESS[suffix](b"a " * 500_000) * (size // 1_000_000)


def make_records(count: int) -> bytes:
    rng = random.Random(0)
    return to_json_lines(*({"id": str(n), "text": rng.randbytes(1_000).hex()} for n in range(count))).encode()


def fails_with(path: Path, problem: str) -> None:
    """Check that a file is a one-line error, and that the rest of its folder is read without it."""
    with pytest.raises(BadInput, match=problem) as error:
        read(path)
    assert str(error.value).startswith(str(path)) and "\n" not in str(error.value)
    write(path.parent / "zzz.txt", "the rest")
    documents, report = read(path.parent, strict=False)
    assert (documents[-1].text, report.bad) == ("the rest", 1)


# Ratio


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.html", "wiki_00", "p.tsv"])
@pytest.mark.usefixtures("small_window")
def test_a_compressed_bomb_is_named(tmp_path: Path, suffix: str, name: str) -> None:
    head = {"wiki_00": b'<doc id="1" title="T">\n', "p.tsv": b"id\ttext\ttitle\n1\t"}.get(name, b"")
    packed = COMPRESS[suffix](head) if head else b""
    fails_with(write(tmp_path / f"{name}{suffix}", packed + make_bomb(suffix, 40_000_000)), BOMB)


@pytest.mark.usefixtures("small_window")
def test_a_bomb_behind_honest_text_is_named(tmp_path: Path) -> None:
    records = make_records(6_000)
    path = write(tmp_path / "a.jsonl.gz", gzip.compress(records, 1) + make_bomb(".gz", 40_000_000))
    with pytest.raises(BadInput, match=BOMB):
        read(path)
    assert len(read(path, strict=False)[0]) == 6_000  # what came before it


@pytest.mark.usefixtures("small_window")
def test_an_honest_file_may_expand_to_any_size(tmp_path: Path) -> None:
    records = make_records(10_000)
    path = write(tmp_path / "a.jsonl.gz", gzip.compress(records, 1))
    assert len(records) > 4 * limits.FREE_BYTES
    assert len(read(path)[0]) == 10_000


@pytest.mark.usefixtures("small_window")
def test_a_small_file_may_repeat_itself(tmp_path: Path) -> None:
    text = "the same line\n" * 200_000
    documents, _ = read(write(tmp_path / "log.txt.bz2", bz2.compress(text.encode())))
    assert documents[0].text == text  # ratio 5,000, but within the window


@pytest.mark.usefixtures("small_window")
def test_members_of_an_archive_share_its_window(tmp_path: Path) -> None:
    members = {f"{n}.txt.bz2": bz2.compress(f"{n} ".encode() + b"a " * 500_000) for n in range(9)}
    path = write(tmp_path / "a.tar", make_tar(members))
    fails_with(path, BOMB)


def test_archives_within_archives_have_a_limit(tmp_path: Path) -> None:
    content = make_tar({"a.txt": b"text"})
    for _ in range(3):
        content = make_tar({"a.tar": content})
    assert read(write(tmp_path / "a.tar", content))[0][0].text == "text"
    fails_with(write(tmp_path / "a.tar", make_tar({"a.tar": content})), "is in more than 4 archives")


# Archives


def add_member(archive: tarfile.TarFile, name: str, size: int, content: bytes, kind: bytes = tarfile.REGTYPE) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    archive.fileobj.write(info.tobuf(tarfile.GNU_FORMAT) + content.ljust(-(-len(content) // 512) * 512, b"\0"))


def make_raw_tar(*members: tuple[Any, ...]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member in members:
            add_member(archive, *member)
    return buffer.getvalue()


def make_pax(*records: bytes) -> tuple[str, int, bytes, bytes]:
    data = b"".join(records)
    return "pax", len(data), data, tarfile.XHDTYPE


TEXT = ("a.txt", 4, b"text")


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        (("b.txt", 1 << 60, b""), "cut short|unexpected end"),
        (("pax", 1 << 20, bytes(1 << 20), tarfile.XHDTYPE), "a header is longer than 65536 bytes"),
        (("name", 1 << 20, bytes(1 << 20), tarfile.GNUTYPE_LONGNAME), "a header is longer than 65536 bytes"),
        (make_pax(b"2 " * 30_000, b"="), "malformed extended header"),
        (make_pax(b"60000 a=" + b"1" * 59_991 + b"\n"), "a number of 200 digits"),
        (make_pax(b"9" * 5_000 + b" a=b\n"), "malformed extended header"),
        (make_pax(b"20 size=-1000000000\n"), "seeking backwards"),
    ],
)
def test_a_hostile_header_of_an_archive_is_named_at_once(tmp_path: Path, header: tuple[Any, ...], problem: str) -> None:
    path = write(tmp_path / "a.tar", make_raw_tar(TEXT, header, ("c.txt", 4, b"more")))
    start = time.thread_time()
    with pytest.raises(BadInput, match=rf"a\.tar: cannot be read: .*({problem})"):
        read(path)
    assert time.thread_time() - start < 2
    documents, report = read(path, strict=False)
    assert (documents[0].text, report.bad) == ("text", 1)


def test_thousands_of_headers_in_a_row_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", make_raw_tar(TEXT, *[("n", 4, b"name", tarfile.GNUTYPE_LONGNAME)] * 3_000))
    with pytest.raises(BadInput, match=r"a\.tar: cannot be read: damaged: malformed header"):
        read(path)


def test_sparse_members_are_left_out_by_name(tmp_path: Path) -> None:
    records = [b"22 GNU.sparse.major=1\n", b"22 GNU.sparse.minor=0\n", b"26 GNU.sparse.name=new.txt\n"]
    header = make_pax(*(b"%d%s" % (len(record), record[2:]) for record in records))
    data = make_raw_tar(("old.txt", 0, b"", tarfile.GNUTYPE_SPARSE), header, ("new.txt", 600, b"9" * 600), TEXT)
    documents, report = read(write(tmp_path / "a.tar", data))
    assert [d.text for d in documents] == ["text"]
    paths = [f"{tmp_path}/a.tar/{name}" for name in ("old.txt", "new.txt")]
    assert report.left_out_paths == {"sparse file in an archive": paths}


def test_members_with_names_that_are_not_utf_8_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(make_tar({"caf_.txt": b"text", "caf_.png": b"picture"}).replace(b"caf_", b"caf\xe9"))
    content = bytearray(path.read_bytes())
    for start in (0, 1024):  # the checksums of the headers
        content[start + 148 : start + 156] = b" " * 8
        content[start + 148 : start + 156] = b"%06o\0 " % sum(content[start : start + 512])
    path.write_bytes(content)
    documents, report = read(path)
    assert [(d.path, d.text) for d in documents] == [(f"{path}/caf\ufffd.txt", "text")]
    assert report.left_out_paths == {"image": [f"{path}/caf\ufffd.png"]}


def test_no_member_is_cited_outside_its_archive(tmp_path: Path) -> None:
    members = {"../../x.md": b"one", "/etc/y.md": b"two", "a/../../../z.md": b"three", "a/../.b.md": b"hidden"}
    documents, _ = read(write(tmp_path / "a.tar", make_tar(members)))
    assert [(d.path, d.id) for d in documents] == [
        (f"{tmp_path}/a.tar/{name}",) * 2 for name in ("x.md", "etc/y.md", "z.md")
    ]


# Tables


def write_compressed(path: Path, text: str, compression: str) -> Path:
    table = pa.table({"text": [text]})
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(str(path), table.schema, options=options) as writer:
        writer.write_table(table)
    return path


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.usefixtures("small_window")
def test_a_compressed_batch_of_arrow_is_limited_before_it_expands(tmp_path: Path, compression: str) -> None:
    text = random.Random(0).randbytes(4_000_000).hex()  # more than the window
    assert read(write_compressed(tmp_path / "a.arrow", text, compression))[0][0].text == text
    bomb = write_compressed(tmp_path / "a.arrow", "a" * 60_000_000, compression)
    pool, before = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        fails_with(bomb, BOMB)
        assert pool.max_memory() < 1_000_000
    finally:
        pa.set_memory_pool(before)


@pytest.mark.usefixtures("small_window")
def test_a_page_of_parquet_is_limited_before_it_expands(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"text": ["a" * 60_000_000]}, compression="zstd", use_dictionary=False)
    fails_with(path, "a page expands to more than 200 times its size")


def test_pages_of_parquet_are_found_whatever_the_writer_does(tmp_path: Path) -> None:
    rng = random.Random(0)
    texts = [rng.choice("ab") * rng.randrange(50, 150) for _ in range(5_000)]
    for number, options in enumerate(
        [
            {"use_dictionary": False, "compression": "none", "data_page_size": 5_000},
            {"data_page_version": "2.0", "compression": "zstd", "row_group_size": 700},
            {"write_page_checksum": True, "write_statistics": True, "data_page_size": 1_000, "compression": "gzip"},
            {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}},
        ]
    ):
        path = write_parquet(tmp_path / f"{number}.parquet", {"n": list(range(5_000)), "text": texts}, **options)
        metadata = pq.read_metadata(path)
        with path.open("rb") as stream:
            sizes = [
                parquet_pages.find_largest_page(stream, metadata.row_group(group), ["text"])
                for group in range(metadata.num_row_groups)
            ]
        totals = [metadata.row_group(group).column(1).total_uncompressed_size for group in range(len(sizes))]
        assert all(0 < size <= total for size, total in zip(sizes, totals, strict=True))
        assert sum(1 for _ in read_documents([path])) == len(set(texts))


@pytest.mark.usefixtures("small_window")
def test_millions_of_rows_without_content_are_limited(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"text": pa.nulls(1_000_000, pa.string())})
    assert path.stat().st_size < 10_000
    report = read(path, strict=False)[1]
    assert report.bad < 200_000
    with pytest.raises(BadInput, match="a row without a text"):
        read(path)


def test_batches_are_short_if_a_page_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "_BATCH_BYTES", 4_000_000)
    path = write_parquet(tmp_path / "a.parquet", {"text": ["x" * 1_000_000] * 40, "id": list(range(40))})
    seen = []
    original = arrow._read_batch
    monkeypatch.setattr(
        arrow, "_read_batch", lambda batch, *rest: seen.append(batch.num_rows) or original(batch, *rest)
    )
    assert (len(read(path)[0]), max(seen)) == (1, 3)


# Size of what is held in memory


def test_a_text_a_line_and_an_article_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MAX_TEXT_BYTES", 3_000_000)
    for module in (base, wikiextractor):
        monkeypatch.setattr(module, "MAX_RECORD_BYTES", 2_000_000)
    fails_with(write(tmp_path / "1" / "a.txt", "x" * 3_000_001), "its text is longer than 3 MB: split it")
    fails_with(write(tmp_path / "2" / "a.jsonl", "\n" + " " * 2_000_001), "line 2 is longer than 2 MB: split it")
    fails_with(write(tmp_path / "3" / "a.jsonl", ("x" * 2_000_001).encode("utf-16")), "a line is longer than 2 MB")
    article = make_article("1", "T", "line\n" * 500_000)
    fails_with(write(tmp_path / "4" / "wiki_00", article), "the article in line 1 is longer than 2 MB")


def test_lines_of_utf_16_are_joined_over_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_CHUNK", 10)
    records = to_json_lines(*({"id": str(n), "text": "x" * n or "y"} for n in range(40)))
    assert len(read(write(tmp_path / "a.jsonl", records.encode("utf-16")))[0]) == 40


def test_a_page_and_a_tag_of_a_dump_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mwparserfromhell")
    monkeypatch.setattr(dump, "_MAX_PAGE_CHARACTERS", 100_000)
    pages = [
        f"<page><title>T{n}</title><id>{n}</id><revision><text>{n} {'word ' * n}</text></revision></page>"
        for n in (1, 50_000, 2)
    ]
    path = write(tmp_path / "a.xml", f"<mediawiki>{''.join(pages)}</mediawiki>")
    documents, report = read(path, strict=False)
    assert [d.id for d in documents] == ["1", "2"]
    assert report.notes == [f"{path}:1: the page 'T50000' (id 50000) is longer than 100,000 characters"]
    path = write(tmp_path / "b.xml", f"<mediawiki>{pages[0]}<!--{'x' * 3_000_000}")
    with pytest.raises(BadInput, match="a tag or comment is longer than 1 MB"):
        read(path)
    assert [d.id for d in read(path, strict=False)[0]] == ["1"]


@pytest.mark.parametrize("size", [0, 1 << 40], ids=["only zeros", "a large member"])
def test_a_sparse_archive_is_named_at_once(tmp_path: Path, size: int) -> None:
    archive = write(tmp_path / "a.tar", make_raw_tar(("a.bin", size, b"")) if size else b"")
    os.truncate(archive, 1_024 + (1 << 40))
    fails_with(archive, "it is sparse: only" if size else "more than 100 MB of zeros follow its last member")


def test_running_out_of_memory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(base, "decode", fail)
    fails = write(tmp_path / "a.txt", "text")
    with pytest.raises(BadInput, match=r"a\.txt: cannot be read: it needs more memory than there is"):
        read(fails)
    assert zlib.crc32(fails.read_bytes())  # the file is as it was


def test_long_titles_are_cut_and_long_ids_rejected(tmp_path: Path) -> None:
    records = [{"id": "1", "title": "t" * 5_000, "text": "one"}, {"id": "2" * 10_001, "text": "two"}]
    path = write(tmp_path / "a.jsonl", to_json_lines(*records))
    documents, report = read(path, strict=False)
    assert [len(d.title) for d in documents] == [1_000]
    assert report.notes == [f"{path}:2: an id of more than 10,000 characters"]
