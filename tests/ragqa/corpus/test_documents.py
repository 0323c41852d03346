"""Reading documents: every format by hand-made files, then what is left out, then hostile input."""

import bz2
import gzip
import io
import json
import lzma
import os
import random
import sys
import tarfile
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragqa.corpus.digests import DigestSet
from ragqa.corpus.sources import CorpusReport, Document, count_input_bytes, read_documents
from ragqa.errors import BadInput, BadLine, MissingExtra


def read(*paths: Path, skip_bad: bool = False) -> tuple[list[Document], CorpusReport]:
    report = CorpusReport()
    documents = list(read_documents(paths, skip_bad=skip_bad, report=report))
    assert report.documents == len(documents)
    assert report.bytes_read == count_input_bytes(paths)
    return documents, report


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read_one(path: Path, content: str | bytes) -> Document:
    documents, report = read(write(path, content))
    assert len(documents) == 1
    assert report == CorpusReport(documents=1, bytes_read=path.stat().st_size)
    return documents[0]


def to_json_lines(*records: object) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def make_article(identifier: str, title: str, body: str) -> str:
    return f'<doc id="{identifier}" url="http://w?curid={identifier}" title="{title}">\n{title}\n\n{body}\n</doc>\n'


def make_tar(members: dict[str, bytes], mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


# Plain text and Markdown


def test_a_text_file_is_a_document_named_by_its_stem(tmp_path: Path) -> None:
    path = tmp_path / "the-great_wave.txt"
    assert read_one(path, "A print.\n") == Document(str(path), "the great wave", "A print.\n", str(path), 0)


@pytest.mark.parametrize(
    ("content", "title", "body"),
    [
        ("# Great Wave\n\nA print.", "Great Wave", "\n\nA print."),
        ("\n\n#\tGreat Wave ##\r\nA print.", "Great Wave", "\r\nA print."),
        ("## Great Wave\nA print.", "w 1", "## Great Wave\nA print."),
        ("#Great Wave\nA print.", "w 1", "#Great Wave\nA print."),
        ("A print.\n# Great Wave", "w 1", "A print.\n# Great Wave"),
        ("# #\nA print.", "w 1", "\nA print."),
        ("# " + "long " * 100 + "\nA print.", "w 1", "# " + "long " * 100 + "\nA print."),
    ],
)
@pytest.mark.parametrize("suffix", [".md", ".markdown", ".txt", ".MD"])
def test_a_heading_at_the_beginning_is_the_title(
    tmp_path: Path, content: str, title: str, body: str, suffix: str
) -> None:
    document = read_one(tmp_path / f"w_1{suffix}", content)
    assert (document.title, document.text, document.text[document.body :]) == (title, content, body)


@pytest.mark.parametrize("mark", [b"\xff\xfe", b"\xfe\xff"])
def test_utf_16_with_a_byte_order_mark_is_decoded(tmp_path: Path, mark: bytes) -> None:
    encoding = "utf-16-le" if mark == b"\xff\xfe" else "utf-16-be"
    assert read_one(tmp_path / "a.txt", mark + "Zürich 𝄞".encode(encoding)).text == "Zürich 𝄞"
    records = to_json_lines({"id": "1", "text": "ein ਊ"}, {"id": "2", "text": "zwei"})
    write(tmp_path / "b.jsonl", mark + records.encode(encoding))
    assert [d.text for d in read(tmp_path / "b.jsonl")[0]] == ["ein ਊ", "zwei"]


def test_a_utf_8_byte_order_mark_is_removed(tmp_path: Path) -> None:
    assert read_one(tmp_path / "a.md", b"\xef\xbb\xbf# T\nbody").title == "T"
    assert read_one(tmp_path / "a.txt", b"\xef\xbb\xbfabc").text == "abc"
    assert read_one(tmp_path / "a.jsonl", b"\xef\xbb\xbf" + b'{"id": "1", "text": "abc"}').text == "abc"
    assert read_one(tmp_path / "wiki_00", b"\xef\xbb\xbf" + make_article("1", "T", "x").encode()).title == "T"


def test_undecodable_bytes_are_replaced_and_counted(tmp_path: Path) -> None:
    documents, report = read(write(tmp_path / "a.txt", b"caf\xe9 au lait"))
    assert documents[0].text == "caf\ufffd au lait"
    assert report.undecodable == 1
    assert report.notes == [f"{tmp_path}/a.txt: invalid bytes were replaced by U+FFFD"]
    content = b'{"id": "1", "text": "ok"}\n{"id": "2", "text": "caf\xe9"}\n'
    documents, report = read(write(tmp_path / "a.jsonl", content))
    assert [d.text for d in documents] == ["ok", "caf\ufffd"]
    assert report.undecodable == 1
    assert report.notes[0].startswith(f"{tmp_path}/a.jsonl:2: ")
    page = make_article("1", "T", "one\nCAFE\nCAFE\ntwo").encode().replace(b"CAFE", b"caf\xe9")
    assert read(write(tmp_path / "wiki_00", page))[1].undecodable == 1
    rows = b"id\ttext\ttitle\n1\tcaf\xe9\tT\n"
    assert read(write(tmp_path / "a.tsv", rows))[1].undecodable == 1


def test_control_characters_and_line_ends_are_kept(tmp_path: Path) -> None:
    text = "a\x01b\x0cc\x85d\u2028e\r\nf\rg" + "x" * 9000 + "\x00h"
    assert read_one(tmp_path / "a.txt", text).text == text
    record = {"id": "1", "title": "\x00", "text": text}
    document = read_one(tmp_path / "a.jsonl", to_json_lines(record))
    assert (document.title, document.text) == ("\x00", text)


# HTML and PDF

PAGE = """<!DOCTYPE html><html><head><title> Great
  Wave </title><style>p { color: red }</style><script>if (a < b) alert("x")</script></head>
<body><nav><a href="/">Home</a><ul><li>Menu</li></ul></nav>
<h1>The   wave</h1><p>By <b>Hokusai</b>,&nbsp;about 1831 &amp; later.<br>A print<p>unclosed
<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>
<pre>x = 1
  y</pre><!-- comment --><noscript>Enable it</noscript><svg><title>Icon</title></svg></body></html>"""


def test_html_gives_its_visible_text(tmp_path: Path) -> None:
    document = read_one(tmp_path / "p-1.html", PAGE)
    assert document.title == "Great Wave"
    assert document.text == (
        "The wave\n\nBy Hokusai,\xa0about 1831 & later.\nA print\n\nunclosed\n\na\tb\nc\n\nx = 1\n  y"
    )
    assert document.body == 0


def test_html_without_a_title_is_named_by_its_file(tmp_path: Path) -> None:
    document = read_one(tmp_path / "p-1.htm", "<p>One<p>Two &#xD800; <unknown>three</unknown>")
    assert (document.title, document.text) == ("p 1", "One\n\nTwo \ufffd three")
    assert read_one(tmp_path / "p-2.htm", "<title>T<body>Text").text == "Text"


def test_html_that_cannot_be_parsed_is_reported(tmp_path: Path) -> None:
    good = write(tmp_path / "good.html", "text")
    page = write(tmp_path / "bad.html", "<p>a<![foo[bar]]>b")
    documents, report = read(good, page, skip_bad=True)
    # newer versions of Python read it
    assert (len(documents), report.bad) in ((1, 1), (2, 0))
    if report.bad:
        with pytest.raises(BadInput, match=r"bad\.html: not HTML that can be read"):
            read(page)


def make_pdf(pages: list[str], title: str = "") -> bytes:
    """A minimal PDF, written out by hand."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>"]
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(pages)))
    objects.append(f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>")
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for number, page in enumerate(pages):
        content = f"BT /F1 12 Tf 72 700 Td ({page}) Tj ET"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * number} 0 R"
            " /Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")
    objects.append(f"<< /Title ({title}) >>")
    out, places = "%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{content}\nendobj\n"
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    trailer = f"<< /Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R >>"
    start = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n{trailer}\n"
    return (out + f"startxref\n{start}\n%%EOF\n").encode()


@pytest.fixture
def pypdf() -> object:
    return pytest.importorskip("pypdf", reason="needs the extra docs")


@pytest.mark.usefixtures("pypdf")
def test_pdf_gives_the_text_of_its_pages(tmp_path: Path) -> None:
    document = read_one(tmp_path / "a-b.pdf", make_pdf(["First page.", "Second page."], "On Waves"))
    assert (document.title, document.text) == ("On Waves", "First page.\n\nSecond page.")
    assert read_one(tmp_path / "a-b.pdf", make_pdf(["First page."])).title == "a b"
    assert read_one(tmp_path / "paper", make_pdf(["First page."])).text == "First page."


@pytest.mark.usefixtures("pypdf")
def test_pdf_without_text_is_empty_and_noted(tmp_path: Path) -> None:
    documents, report = read(write(tmp_path / "scan.pdf", make_pdf([""])))
    assert (documents, report.empty) == ([], 1)
    assert report.notes == [f"{tmp_path}/scan.pdf: no text in it (scanned pages?)"]


def make_encrypted_pdf(pypdf: object, password: str) -> bytes:
    writer = pypdf.PdfWriter(io.BytesIO(make_pdf(["Secret."])))
    writer.encrypt(user_password=password, owner_password="owner", algorithm="RC4-128")
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


def test_an_unreadable_pdf_is_reported_or_skipped(tmp_path: Path, pypdf: object) -> None:
    locked = write(tmp_path / "locked.pdf", make_encrypted_pdf(pypdf, "password"))
    cut = write(tmp_path / "cut.pdf", make_pdf(["First page."])[:300])
    empty = write(tmp_path / "empty.pdf", b"")
    good = write(tmp_path / "open.pdf", make_encrypted_pdf(pypdf, ""))
    for path in (locked, cut, empty):
        with pytest.raises(BadInput, match=rf"{path.name}: not a PDF that can be read: "):
            read(path)
    documents, report = read(locked, cut, empty, good, skip_bad=True)
    assert [d.text for d in documents] == ["Secret."]
    assert (report.bad, len(report.notes)) == (3, 3)


def test_the_error_without_pypdf_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    path = write(tmp_path / "a.pdf", make_pdf(["First page."]))
    with pytest.raises(MissingExtra, match=r"a\.pdf needs the extra 'docs'"):
        read(path)
    text = write(tmp_path / "b.txt", "text")
    documents, report = read(path, text, skip_bad=True)
    assert ([d.text for d in documents], report.bad) == (["text"], 1)
    assert "needs the extra 'docs'" in report.notes[0]


# Records


def test_each_json_line_is_a_document(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    content = to_json_lines(
        {"id": "x", "title": "Ü", "text": "one", "more": [1]}, {"id": 7, "title": None, "text": "two"}
    )
    documents, _ = read(write(path, content + "\n \r\n" + '{"id":"z","text":"three"}'))
    assert documents == [
        Document("x", "Ü", "one", str(path)),
        Document("7", "", "two", str(path)),
        Document("z", "", "three", str(path)),
    ]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('{"id": "2", "text"', "not JSON: Expecting ':' delimiter at column"),
        ("plain", "not JSON: Expecting value at column 1"),
        ("[1, 2]", "not a JSON object"),
        ("null", "not a JSON object"),
        ("[" * 100_000, "JSON nested too deeply"),
        ('{"text": "t"}', "no field 'id'"),
        ('{"id": "2"}', "no field 'text'"),
        ('{"id": "2", "text": null}', "the field 'text' is not a string but NoneType"),
        ('{"id": "2", "text": ["t"]}', "the field 'text' is not a string but list"),
        ('{"id": "2", "title": 3, "text": "t"}', "the field 'title' is not a string but int"),
        ('{"id": 1.5, "text": "t"}', "the field 'id' is not a string but float"),
        ('{"id": true, "text": "t"}', "the field 'id' is not a string but bool"),
        ('{"id": "", "text": "t"}', "the field 'id' is empty"),
        ('{"id": "1", "text": "other"}', "the id '1' belongs to another text already"),
        ('{"id": "1", "title": "other", "text": "good"}', "the id '1' belongs to another text already"),
    ],
)
def test_a_malformed_json_line_is_reported_or_skipped(tmp_path: Path, line: str, what: str) -> None:
    good = '{"id": "1", "text": "good"}'
    path = write(tmp_path / "a.jsonl", f'{good}\n{line}\n{{"id": "3", "text": "better"}}\n')
    with pytest.raises(BadLine) as error:
        read(path)
    assert str(error.value).startswith(f"{path}:2: {what}")
    assert len(str(error.value)) < 300 + len(str(path))
    documents, report = read(path, skip_bad=True)
    assert [d.id for d in documents] == ["1", "3"]
    assert report.bad == 1
    assert report.notes[0].startswith(f"{path}:2: {what}")


def test_documents_before_a_bad_line_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"id": "1", "text": "good"}\n{\n')
    documents = read_documents([path])
    assert next(documents).id == "1"
    with pytest.raises(BadLine, match=r"a\.jsonl:2"):
        next(documents)


def test_half_a_surrogate_pair_is_replaced(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", r'{"id": "\ud800", "title": "t\udfff", "text": "a\ud83db \ud83d\ude00"}')
    documents, report = read(path)
    assert documents == [Document("\ufffd", "t\ufffd", "a\ufffdb 😀", str(path))]
    assert report.undecodable == 1


def test_each_row_of_dpr_is_a_document(tmp_path: Path) -> None:
    path = tmp_path / "psgs.tsv"
    rows = (
        'id\ttext\ttitle\n1\t"Aaron ( or ; ""Ahärôn"") is"\tAaron\n2\tplain\t"""Hi"" there"\n\n3\t"two\nlines\t"\tT\n'
    )
    documents, _ = read(write(path, rows))
    assert documents == [
        Document("1", "Aaron", 'Aaron ( or ; "Ahärôn") is', str(path)),
        Document("2", '"Hi" there', "plain", str(path)),
        Document("3", "T", "two\nlines\t", str(path)),
    ]
    assert [d.id for d in read(write(path, rows.replace("\n", "\r\n")))[0]] == ["1", "2", "3"]
    long = "id\ttext\ttitle\n1\t" + "word " * 100_000 + "\tT\n"
    assert len(read(write(path, long))[0][0].text) == 500_000


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("2\ttext", "2 fields instead of"),
        ("2\ttext\ttitle\tmore", "4 fields instead of"),
        ("\ttext\ttitle", "a row without an id"),
        ('2\t"text" more\ttitle', "not tab-separated values"),
        ("1\tother\tT", "the id '1' belongs to another text already"),
    ],
)
def test_a_malformed_row_is_reported_or_skipped(tmp_path: Path, row: str, what: str) -> None:
    path = write(tmp_path / "a.tsv", f"id\ttext\ttitle\n1\tgood\tT\n{row}\n3\tbetter\tT\n")
    with pytest.raises(BadLine, match=rf"a\.tsv:3: {what}"):
        read(path)
    documents, report = read(path, skip_bad=True)
    assert [d.id for d in documents] == ["1", "3"]
    assert report.bad == 1


def test_a_stray_quote_does_not_swallow_the_file(tmp_path: Path) -> None:
    rows = [f'{n}\t"text {n}"\tT' for n in range(100)]
    rows[10] = '10\t"text 10\tT'
    path = write(tmp_path / "a.tsv", "id\ttext\ttitle\n" + "\n".join(rows) + "\n")
    documents, report = read(path, skip_bad=True)
    assert len(documents) >= 98
    assert report.bad == 1
    assert report.notes[0].startswith(f"{path}:12: ")


def test_a_table_with_another_header_is_rejected(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "1\ttext\ttitle\n2\ttext\ttitle\n")
    with pytest.raises(BadLine, match=r"a\.tsv:1: .*id<TAB>text<TAB>title"):
        read(path)
    documents, report = read(path, skip_bad=True)
    assert (documents, report.bad) == ([], 1)


def test_each_article_of_wikiextractor_is_a_document(tmp_path: Path) -> None:
    path = tmp_path / "AA" / "wiki_00"
    articles = make_article("12", "Anarchism", "It is <br> a philosophy.\nHistory.") + make_article(
        "39", "Albedo", "Reflection."
    )
    documents, _ = read(write(path, articles))
    assert documents == [
        Document("12", "Anarchism", "Anarchism\n\nIt is <br> a philosophy.\nHistory.\n", str(path), 10),
        Document("39", "Albedo", "Albedo\n\nReflection.\n", str(path), 7),
    ]
    documents, _ = read(write(path, articles.replace("\n", "\r\n")))
    assert [(d.title, d.text[d.body :]) for d in documents] == [
        ("Anarchism", "\r\nIt is <br> a philosophy.\r\nHistory.\r\n"),
        ("Albedo", "\r\nReflection.\r\n"),
    ]
    for name in ("wiki.txt", "wiki.extracted"):
        assert [d.id for d in read(write(tmp_path / name, articles))[0]] == ["12", "39"]


def test_html_entities_of_wikiextractor_are_decoded(tmp_path: Path) -> None:
    old = make_article("1", "&quot;R&amp;B&quot;", "Some write <b> &amp; mean it, at AT&T.")
    document = read_one(tmp_path / "old", old)
    assert document.title == '"R&B"'
    assert document.text[document.body :] == "\nSome write <b> &amp; mean it, at AT&T.\n"
    new = make_article("1", 'A "quoted" title', "AT&amp;T &lt;b&gt; &amp;lt;")
    document = read_one(tmp_path / "new", new)
    assert document.title == 'A "quoted" title'
    assert document.text[document.body :] == "\nAT&T <b> &lt;\n"


def test_an_article_that_does_not_repeat_its_title_is_all_body(tmp_path: Path) -> None:
    document = read_one(tmp_path / "wiki_00", '<doc id="1" title="T">\nText.\n</doc>\n')
    assert (document.title, document.text, document.body) == ("T", "Text.\n", 0)


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        ('<doc id="2" url="u" title="T">\nT\n\nlost\n', "<doc …> without </doc>"),
        ('<doc id="2" url="u">\nT\n</doc>\n', "malformed <doc …> line"),
        ('<doc id="" title="T">\nT\n</doc>\n', "malformed <doc …> line"),
        ("stray text\n", "text outside of <doc …> and </doc>"),
        ("</doc>\n", "text outside of <doc …> and </doc>"),
    ],
)
def test_malformed_articles_are_reported_or_skipped(tmp_path: Path, bad: str, what: str) -> None:
    good, better = make_article("1", "A", "good"), make_article("3", "C", "better")
    path = write(tmp_path / "wiki_00", f"{good}\n{bad}{better}")
    with pytest.raises(BadLine, match=rf"wiki_00:7: {what}"):
        read(path)
    documents, report = read(path, skip_bad=True)
    assert [d.id for d in documents] == ["1", "3"]
    assert report.bad == 1
    path = write(tmp_path / "wiki_01", f"{good}{bad}")
    assert [d.id for d in read(path, skip_bad=True)[0]] == ["1"]


# Compression and archives

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
    assert report.binary == 1
    assert report.notes == [f"{path}/picture.png: binary"]
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
    documents, report = read(path, skip_bad=True)
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
    assert read(path, skip_bad=True)[1].bad == 1


# Folders, and what is left out


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
    write(tmp_path / "f", to_json_lines({"id": "1", "text": "a record"}))
    (tmp_path / "g.txt").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "h.txt")
    documents, report = read(tmp_path)
    assert [d.text for d in documents] == ["plain text", "a record"]
    assert report.binary == 6
    assert report.notes == [
        f"{tmp_path}/a.png: of no known type",
        f"{tmp_path}/b.txt: binary",
        f"{tmp_path}/c: binary",
        f"{tmp_path}/d.jsonl: binary",
        f"{tmp_path}/g.txt: not a file",
        f"{tmp_path}/h.txt: not a file",
    ]


def test_a_folder_without_texts_has_no_documents(tmp_path: Path) -> None:
    assert read(tmp_path) == ([], CorpusReport())
    write(tmp_path / "a.png", b"\x89PNG\r\n\x1a\n\0")
    documents, report = read(tmp_path)
    assert (documents, report.binary, report.bytes_read) == ([], 1, 9)


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


def test_a_record_with_the_same_text_is_a_duplicate_whatever_its_id(tmp_path: Path) -> None:
    record = {"id": "1", "title": "T", "text": "text"}
    path = write(
        tmp_path / "a.jsonl", to_json_lines(record, record, {**record, "id": "2"}, {**record, "id": "3", "title": "U"})
    )
    documents, report = read(path)
    assert [d.id for d in documents] == ["1", "3"]
    assert report.duplicates == 2
    # title and text are told apart
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
    documents, report = read(tmp_path, skip_bad=True)
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
    documents, report = read(tmp_path, skip_bad=True)
    assert ([d.text for d in documents], report.bad) == (["other"], 1)


def test_file_names_that_are_not_utf_8_become_valid_text(tmp_path: Path) -> None:
    os.makedirs(os.fsencode(tmp_path) + b"/caf\xe9")
    with open(os.fsencode(tmp_path) + b"/caf\xe9/a.txt", "w") as file:
        file.write("text")
    documents, _ = read(tmp_path)
    assert documents[0].path == f"{tmp_path}/caf\ufffd/a.txt"


def test_only_the_first_problems_are_described(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", "{\n" * 50)
    _, report = read(path, skip_bad=True)
    assert (report.bad, len(report.notes)) == (50, 20)
    assert report.notes[19].startswith(f"{path}:20: ")


# Much


@settings(deadline=None)
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
    assert read_one(tmp_path / "b.md", "# " + text).body == 0
    assert read_one(tmp_path / "c.html", text).text == text.strip()
    assert read_one(tmp_path / "d.jsonl", to_json_lines({"id": "1", "text": text})).text == text


def test_real_articles_are_read(shared_data: Path) -> None:
    def first(count: int) -> Iterator[Document]:
        documents = read_documents([shared_data / "wiki" / "AA.tar.xz"])
        return (next(documents) for _ in range(count))

    documents = list(first(50))
    assert (documents[0].id, documents[0].title) == ("12", "Anarchism")
    assert documents[0].path.endswith("AA.tar.xz/AA/wiki_00")
    for document in documents:
        assert document.text[: document.body] == f"{document.title}\n"
        assert replace(document, id="", path="") not in [
            replace(d, id="", path="") for d in documents if d is not document
        ]
