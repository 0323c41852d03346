"""Reading documents of every format."""

from pathlib import Path

import pytest

from ragqa.corpus.formats.base import Section
from ragqa.corpus.sources import Document, read_documents
from ragqa.errors import BadLine
from tests.helpers.documents import make_article, read, read_one, to_json_lines, write


def test_a_text_file_is_a_document_named_by_its_stem(tmp_path: Path) -> None:
    path = tmp_path / "the-great_wave.txt"
    assert read_one(path, "A print.\n") == Document(
        str(path), "the great wave", "A print.\n", str(path), (Section(0, 9),), "line"
    )


@pytest.mark.parametrize(
    ("content", "title", "body"),
    [
        ("# Great Wave\n\nA print.", "Great Wave", "A print."),
        ("\n\n#\tGreat Wave ##\r\nA print.", "Great Wave", "A print."),
        ("#Great Wave\nA print.", "w 1", "#Great Wave\nA print."),
        ("# #\nA print.", "w 1", "A print."),
        ("# " + "long " * 100 + "\nA print.", "w 1", "# " + "long " * 100 + "\nA print."),
    ],
)
@pytest.mark.parametrize("suffix", [".md", ".markdown", ".txt", ".MD"])
def test_a_heading_at_the_beginning_is_the_title(
    tmp_path: Path, content: str, title: str, body: str, suffix: str
) -> None:
    document = read_one(tmp_path / f"w_1{suffix}", content)
    (section,) = document.list_sections()
    text = document.text[section.start : section.end].strip()
    assert (document.title, document.text, text) == (title, content, body.strip())


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
    documents, report = read(write(tmp_path / "a.txt", "größer als Zürich ".encode() + b"\xff"))
    assert documents[0].text == "größer als Zürich \ufffd"
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
    assert document.list_sections()[0].headings == ("The wave",)


def test_html_without_a_title_is_named_by_its_file(tmp_path: Path) -> None:
    document = read_one(tmp_path / "p-1.htm", "<p>One<p>Two &#xD800; <unknown>three</unknown>")
    assert (document.title, document.text) == ("p 1", "One\n\nTwo \ufffd three")
    assert read_one(tmp_path / "p-2.htm", "<title>T<body>Text").text == "Text"


def test_unknown_declarations_of_html_are_skipped(tmp_path: Path) -> None:
    assert read_one(tmp_path / "a.html", "<p>a<![foo[bar]]>b<![CDATA[c>d]]>e<!x>f<?g h>i</ j>k</>l").text == "abefikl"


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
        ('{"id": "2"}', "no field 'text'"),
        ('{"id": "2", "text": null}', "the field 'text' is not a string but NoneType"),
        ('{"id": "2", "text": ["t"]}', "the field 'text' is not a string but list"),
        ('{"id": "2", "title": 3, "text": "t"}', "the field 'title' is not a string but int"),
        ('{"id": 1.5, "text": "t"}', "the field 'id' is not a string but float"),
        ('{"id": true, "text": "t"}', "the field 'id' is not a string but bool"),
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
    documents, report = read(path, strict=False)
    assert [d.id for d in documents] == ["1", "3"]
    assert report.bad == 1
    assert report.notes[0].startswith(f"{path}:2: {what}")


def test_a_json_line_without_an_id_gets_one(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "a"}\n\n{"id": null, "text": "b"}\n{"id": "", "text": "c"}\n')
    assert [d.id for d in read(path)[0]] == [f"{path}:1", f"{path}:3", f"{path}:4"]


def test_documents_before_a_bad_line_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"id": "1", "text": "good"}\n{\n')
    documents = read_documents([path], strict=True)
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
    documents, report = read(path, strict=False)
    assert [d.id for d in documents] == ["1", "3"]
    assert report.bad == 1


def test_a_stray_quote_does_not_swallow_the_file(tmp_path: Path) -> None:
    rows = [f'{n}\t"text {n}"\tT' for n in range(100)]
    rows[10] = '10\t"text 10\tT'
    path = write(tmp_path / "a.tsv", "id\ttext\ttitle\n" + "\n".join(rows) + "\n")
    documents, report = read(path, strict=False)
    assert len(documents) >= 98
    assert report.bad == 1
    assert report.notes[0].startswith(f"{path}:12: ")


def test_a_table_with_another_header_is_a_table_like_others(tmp_path: Path) -> None:
    document = read_one(tmp_path / "a.tsv", "number\ttext\ttitle\n2\ta\tb\n")
    assert document.text == "number: 2; text: a; title: b\n"


def test_each_article_of_wikiextractor_is_a_document(tmp_path: Path) -> None:
    path = tmp_path / "AA" / "wiki_00"
    articles = make_article("12", "Anarchism", "It is <br> a philosophy.\nHistory.") + make_article(
        "39", "Albedo", "Reflection."
    )
    documents, _ = read(write(path, articles))
    assert documents == [
        Document("12", "Anarchism", "Anarchism\n\nIt is <br> a philosophy.\nHistory.\n", str(path), (Section(10, 45),)),
        Document("39", "Albedo", "Albedo\n\nReflection.\n", str(path), (Section(7, 20),)),
    ]
    documents, _ = read(write(path, articles.replace("\n", "\r\n")))
    assert [(d.title, d.text[d.list_sections()[0].start :]) for d in documents] == [
        ("Anarchism", "\r\nIt is <br> a philosophy.\r\nHistory.\r\n"),
        ("Albedo", "\r\nReflection.\r\n"),
    ]
    for name in ("wiki.txt", "wiki.extracted"):
        assert [d.id for d in read(write(tmp_path / name, articles))[0]] == ["12", "39"]


def test_html_entities_of_wikiextractor_are_decoded(tmp_path: Path) -> None:
    old = make_article("1", "&quot;R&amp;B&quot;", "Some write <b> &amp; mean it, at AT&T.")
    document = read_one(tmp_path / "old", old)
    assert document.title == '"R&B"'
    assert document.text[document.list_sections()[0].start :] == "\nSome write <b> &amp; mean it, at AT&T.\n"
    new = make_article("1", 'A "quoted" title', "AT&amp;T &lt;b&gt; &amp;lt;")
    document = read_one(tmp_path / "new", new)
    assert document.title == 'A "quoted" title'
    assert document.text[document.list_sections()[0].start :] == "\nAT&T <b> &lt;\n"


def test_an_article_that_does_not_repeat_its_title_is_all_body(tmp_path: Path) -> None:
    document = read_one(tmp_path / "wiki_00", '<doc id="1" title="T">\nText.\n</doc>\n')
    assert (document.title, document.text, document.list_sections()[0].start) == ("T", "Text.\n", 0)


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
    documents, report = read(path, strict=False)
    assert [d.id for d in documents] == ["1", "3"]
    assert report.bad == 1
    path = write(tmp_path / "wiki_01", f"{good}{bad}")
    assert [d.id for d in read(path, strict=False)[0]] == ["1"]


@pytest.mark.parametrize("field", ["title: Q&A & more", 'title: "Q&A & more"\nlabels: a&b'])
def test_front_matter_may_hold_ampersands_but_no_aliases(tmp_path: Path, field: str) -> None:
    document = read_one(tmp_path / "a.md", f"---\n{field}\ndate: 2024-03-01\n---\nThe text.\n")
    assert (document.title, document.date) == ("Q&A & more", "2024-03-01")
    bomb = "---\na: &x [1, 2]\nb: [*x, *x]\ntitle: Bomb\n---\nThe text.\n"
    assert read_one(tmp_path / "b.md", bomb).title != "Bomb"
