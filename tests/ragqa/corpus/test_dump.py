"""Wikipedia's XML dumps: whole and damaged dumps, memory, and answers from an index of a dump."""

import bz2
import gzip
import io
import lzma
import random
import sys
import tarfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import pytest
from conftest import run

from ragqa.corpus.sources import CorpusReport, Document
from ragqa.errors import BadLine, MissingExtra
from ragqa.pipeline import Pipeline
from tests.helpers.documents import read, read_one, write

pytest.importorskip("mwparserfromhell", reason="needs the extra wiki")

NAMESPACES = {-1: "Spezial", 0: "", 1: "Diskussion", 6: "Datei", 10: "Vorlage", 14: "Kategorie"}


def make_page(
    identifier: int, title: str, text: str, *, namespace: int | None = 0, redirect: str = "", model: str = "wikitext"
) -> str:
    """Return a page as MediaWiki exports it."""
    lines = [f"  <page>\n    <title>{escape(title)}</title>"]
    lines += [f"    <ns>{namespace}</ns>"] if namespace is not None else []
    lines += [f"    <id>{identifier}</id>"]
    lines += [f"    <redirect title={quoteattr(redirect)} />"] if redirect else []
    lines += [make_revision(text, identifier + 1000, model), "  </page>\n"]
    return "\n".join(lines)


def make_revision(text: str, identifier: int, model: str = "wikitext") -> str:
    return f"""    <revision>
      <id>{identifier}</id>
      <timestamp>2024-05-01T12:00:00Z</timestamp>
      <contributor>
        <username>Somebody</username>
        <id>77</id>
      </contributor>
      <comment>/* Text */ a title</comment>
      <model>{model}</model>
      <format>text/x-wiki</format>
      <text bytes="{len(text.encode())}" sha1="abc" xml:space="preserve">{escape(text)}</text>
      <sha1>abc</sha1>
    </revision>"""


def make_dump(*pages: str, namespaces: dict[int, str] = NAMESPACES) -> str:
    names = "\n".join(
        f'      <namespace key="{key}" case="first-letter">{name}</namespace>'
        if name
        else f'      <namespace key="{key}" case="first-letter" />'
        for key, name in namespaces.items()
    )
    return f"""<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" \
xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" version="0.11" xml:lang="de">
  <siteinfo>
    <sitename>Wikipedia</sitename>
    <dbname>dewiki</dbname>
    <generator>MediaWiki 1.43.0</generator>
    <case>first-letter</case>
    <namespaces>
{names}
    </namespaces>
  </siteinfo>
{"".join(pages)}</mediawiki>
"""


# Dumps

ARTICLES = (
    make_page(12, "Grüße & <Küsse>", "'''Grüße''' &amp; &lt;Küsse&gt; [[Datei:A.jpg|thumb|a]]<ref>b</ref>."),
    make_page(13, "Umleitung", "#WEITERLEITUNG [[Grüße]]", redirect="Grüße"),
    make_page(14, "Diskussion:Grüße", "Talk.", namespace=1),
    make_page(15, "Gruß", "'''Gruß''' steht für:\n* [[a]]\n{{Begriffsklärung}}"),
    make_page(16, "Vorlage:Infobox", "<includeonly>{{{x}}}</includeonly>", namespace=10),
    make_page(17, "Modul", "return {}", model="Scribunto"),
    make_page(18, "東京", "'''東京'''は[[日本]]の首都。\n[[Kategorie:Ort]]"),
    make_page(19, "Leer", "{{Infobox|a=b}}"),
)


def list_expected(path: Path) -> list[Document]:
    return [
        Document("12", "Grüße & <Küsse>", "Grüße & <Küsse>.", str(path)),
        Document("18", "東京", "東京は日本の首都。", str(path)),
    ]


@pytest.mark.parametrize(
    ("name", "compressed"),
    [
        ("dewiki-20240501-pages-articles.xml", bytes),
        ("dewiki-20240501-pages-articles.xml.bz2", bz2.compress),
        ("dewiki-20240501-pages-articles.xml.gz", gzip.compress),
        ("dewiki-20240501-pages-articles.xml.xz", lzma.compress),
        ("dewiki-20240501-pages-articles1.xml-p1p41242.bz2", bz2.compress),
        ("dewiki", bytes),
    ],
)
def test_a_dump_gives_its_articles(tmp_path: Path, name: str, compressed: type[bytes]) -> None:
    path = write(tmp_path / name, compressed(make_dump(*ARTICLES).encode()))
    documents, report = read(path)
    assert documents == list_expected(path)
    counts = CorpusReport(
        documents=2, redirects=1, disambiguations=1, other_pages=3, empty=1, bytes_read=path.stat().st_size
    )
    assert report == counts


def test_a_multistream_dump_is_read_to_its_end(tmp_path: Path) -> None:
    head, _, rest = make_dump(*ARTICLES).partition("  <page>")
    streams = [head, *("  <page>" + part for part in rest.split("  <page>"))]
    path = write(tmp_path / "a-multistream.xml.bz2", b"".join(bz2.compress(part.encode()) for part in streams))
    assert read(path)[0] == list_expected(path)


def test_a_dump_may_begin_with_byte_order_mark_and_declaration(tmp_path: Path) -> None:
    declared = '<?xml version="1.0" encoding="utf-8"?>\n' + make_dump(*ARTICLES)
    for content in (declared, "\ufeff" + declared):
        path = write(tmp_path / "a.xml", content)
        assert read(path)[0] == list_expected(path)


def test_dumps_are_found_in_folders_and_archives(tmp_path: Path) -> None:
    content = make_dump(*ARTICLES).encode()
    write(tmp_path / "a.xml", content)
    write(tmp_path / "b.txt", "Text.")
    with tarfile.open(tmp_path / "c.tar", "w") as archive:
        info = tarfile.TarInfo("d.xml.bz2")
        data = bz2.compress(make_dump(make_page(1, "T", "x")).encode())
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    assert [d.title for d in read(tmp_path)[0]] == ["Grüße & <Küsse>", "東京", "b", "T"]


def test_namespaces_and_redirects_of_old_dumps_are_recognised(tmp_path: Path) -> None:
    pages = (
        make_page(1, "Talk:A", "talk", namespace=None),
        make_page(2, "Mission: Impossible", "A film.", namespace=None),
        make_page(3, "B", " #redirect [[A]]", namespace=None),
        make_page(4, "User talk:A", "talk", namespace=None),
    )
    path = write(tmp_path / "a.xml", make_dump(*pages, namespaces={0: "", 1: "Talk", 2: "User", 3: "User talk"}))
    documents, report = read(path)
    assert [d.id for d in documents] == ["2"]
    assert (report.other_pages, report.redirects) == (2, 1)


def test_the_last_revision_of_a_page_is_read(tmp_path: Path) -> None:
    history = make_page(5, "A", "first").replace(
        "  </page>", make_revision("second", 9) + "\n" + make_revision("third", 10) + "\n  </page>"
    )
    documents, _ = read(write(tmp_path / "a.xml", make_dump(history)))
    assert [(d.id, d.text) for d in documents] == [("5", "third")]


def test_the_same_page_twice_is_a_duplicate_and_another_text_a_bad_record(tmp_path: Path) -> None:
    twice = make_page(5, "A", "one") + make_page(5, "A", "one") + make_page(5, "A", "two")
    path = write(tmp_path / "a.xml", make_dump(twice))
    with pytest.raises(BadLine, match=r"a\.xml:\d+: the id '5' belongs to another text already"):
        read(path)
    report = read(path, strict=False)[1]
    assert (report.documents, report.duplicates, report.bad) == (1, 1, 1)


# Damaged dumps


def find_line(path: Path, text: str) -> int:
    return path.read_text().partition(text)[0].count("\n") + 1


@pytest.mark.parametrize(
    ("broken", "what"),
    [
        ("<title>東京</titel>", "the XML is broken, in the page '' (id ): mismatched tag"),
        ("<title>東\x01</title>", "the XML is broken, in the page '' (id ): not well-formed (invalid token)"),
        ("<title>&auml;</title>", "the XML is broken, in the page '' (id ): undefined entity"),
    ],
)
def test_broken_xml_is_reported_with_its_line(tmp_path: Path, broken: str, what: str) -> None:
    path = write(tmp_path / "a.xml", make_dump(*ARTICLES).replace("<title>東京</title>", broken))
    with pytest.raises(BadLine) as error:
        read(path)
    assert str(error.value).startswith(f"{path}:{find_line(path, broken)}: {what}")
    assert "\n" not in str(error.value)
    documents, report = read(path, strict=False)
    assert ([d.id for d in documents], report.bad) == (["12"], 1)


def test_the_place_where_a_dump_ends_too_early_is_reported(tmp_path: Path) -> None:
    content = make_dump(*ARTICLES)
    path = write(tmp_path / "a.xml", content[: content.index("の首都")])
    with pytest.raises(BadLine, match=r"a\.xml:\d+: the XML ends too early, in the page '東京' \(id 18\): "):
        read(path)
    path = write(tmp_path / "a.xml", content.removesuffix("</mediawiki>\n"))
    with pytest.raises(BadLine, match=r"the XML ends too early, after the page 'Leer' \(id 19\): no element found"):
        read(path)
    assert [d.id for d in read(path, strict=False)[0]] == ["12", "18"]
    path = write(tmp_path / "a.xml", content[: content.index("<namespaces>")])
    with pytest.raises(BadLine, match=r"the XML ends too early, before the first page: "):
        read(path)


@pytest.mark.parametrize("suffix", ["bz2", "gz", "xz"])
def test_the_place_where_a_compressed_dump_ends_is_reported(tmp_path: Path, suffix: str) -> None:
    noise = random.Random(0).randbytes(300_000).hex()
    content = make_dump(make_page(1, "A", "text"), make_page(2, "B", noise)).encode()
    # 1: bzip2 returns no byte of a block before it has read the whole block
    compress = {"bz2": lambda data: bz2.compress(data, 1), "gz": gzip.compress, "xz": lzma.compress}[suffix]
    path = write(tmp_path / f"a.xml.{suffix}", compress(content)[:-100_000])
    with pytest.raises(
        BadLine, match=rf"a\.xml\.{suffix}:\d+: cannot be read further, \w+ the page '[AB]' \(id [12]\): "
    ):
        read(path)
    documents, report = read(path, strict=False)
    assert ([d.id for d in documents], report.bad) == (["1"], 1)


def test_exploding_entities_are_rejected(tmp_path: Path) -> None:
    bomb = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    content = make_dump(make_page(1, "A", "TEXT")).replace("TEXT", "&e11;")
    start = f'<!DOCTYPE mediawiki [<!ENTITY e0 "{"x" * 100}">{bomb}]>'
    path = write(tmp_path / "a.xml", '<?xml version="1.0"?>' + content.replace("<mediawiki", "<mediawiki", 1))
    assert "undefined entity" in read(path, strict=False)[1].notes[0]
    path = tmp_path / "b.xml"
    assert read_one(path, start + content).text == start + content  # as text, which is not parsed


def test_a_page_that_cannot_be_parsed_is_one_bad_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mwparserfromhell

    parse = mwparserfromhell.parse

    def fail(text: str, **options: bool) -> object:
        if "stumble" in text:
            raise mwparserfromhell.parser.ParserError("C tokenizer returned non-empty token stack")
        return parse(text, **options)

    monkeypatch.setattr(mwparserfromhell, "parse", fail)
    path = write(
        tmp_path / "a.xml",
        make_dump(make_page(1, "A", "one"), make_page(2, "B 'b'", "stumble"), make_page(3, "C", "three")),
    )
    what = f"{path}:{find_line(path, '<title>B') - 1}: the wikitext of the page \"B 'b'\" (id 2) cannot be parsed: "
    with pytest.raises(BadLine) as error:
        read(path)
    assert str(error.value).startswith(what)
    documents, report = read(path, strict=False)
    assert ([d.id for d in documents], report.bad) == (["1", "3"], 1)
    assert report.notes[0].startswith(what)


def test_a_page_without_an_id_is_a_bad_record(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.xml",
        make_dump(make_page(1, "A", "one").replace("    <id>1</id>\n", ""), make_page(2, "B", "two")),
    )
    with pytest.raises(BadLine, match=r"a page without an id"):
        read(path)
    assert [d.id for d in read(path, strict=False)[0]] == ["2"]


@pytest.mark.parametrize(
    "content", ['<?xml version="1.0"?>\n<rss><item/></rss>', "<mediawikis/>", "text", "<!-- <mediawiki> -->"]
)
def test_other_xml_is_text(tmp_path: Path, content: str) -> None:
    assert read_one(tmp_path / "feed.xml", content).text == content


def test_the_error_without_mwparserfromhell_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mwparserfromhell", None)
    path = write(tmp_path / "a.xml", make_dump(*ARTICLES))
    with pytest.raises(MissingExtra, match=r"a\.xml needs the extra 'wiki'"):
        read(path)
    documents, report = read(path, strict=False)
    assert (documents, report.bad) == ([], 1)
    assert "needs the extra 'wiki'" in report.notes[0]


# Memory


class Pages(io.RawIOBase):
    """Stream of a dump with many long pages, made while it is read."""

    def __init__(self, count: int) -> None:
        self._parts = self._generated(count)
        self._rest = b""

    def _generated(self, count: int) -> Iterator[bytes]:
        head, _, tail = make_dump("PAGES").partition("PAGES")
        yield head.encode()
        body = "A [[link|text]]{{a|b}}<ref>c</ref> of the page. " * 1000
        for number in range(count):
            yield make_page(number + 1, f"Page {number}", f"{number} {body}", namespace=(number % 4) * 10).encode()
        yield tail.encode()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._rest = part
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def measure_peak_memory(count: int) -> int:
    """Return the peak memory in bytes of reading a dump of ``count`` pages of 50 kB."""
    from ragqa.corpus.formats.base import InputFile, ProblemHandler
    from ragqa.corpus.formats.registry import read_input

    report = CorpusReport()
    source = InputFile("a.xml", "a.xml", io.BufferedReader(Pages(count)), ProblemHandler(report, False))
    tracemalloc.start()
    try:
        documents = sum(1 for _ in read_input(source))
        assert (documents, report.other_pages) == (count // 4, count - count // 4)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_dump() -> None:
    measure_peak_memory(4)  # what is imported and cached
    few, many = measure_peak_memory(20), measure_peak_memory(120)
    assert few < 4_000_000
    assert many < 1.2 * few


# From the dump to an answer


def test_an_index_of_a_dump_answers_questions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    articles = (
        make_page(
            1,
            "Skarvik Lighthouse",
            "'''Skarvik Lighthouse''' was built in [[1871]] by the engineer [[Ada Holm]]<ref>a</ref>.",
        ),
        make_page(
            2,
            "Comet Varga",
            "{{Infobox comet}}\n'''Comet Varga''' was discovered by [[Ilona Varga|I. Varga]] in [[Szeged]].",
        ),
        make_page(3, "Lighthouse", "#REDIRECT [[Skarvik Lighthouse]]", redirect="Skarvik Lighthouse"),
    )
    path = write(tmp_path / "xx.xml.bz2", bz2.compress(make_dump(*articles).encode()))
    index = tmp_path / "wiki.index"
    status, out, err = run("index", str(path), "--out", str(index), "--retriever", "bm25", capsys=capsys)
    assert (status, out.splitlines()[1]) == (0, "documents and records left out or repaired: 1 redirect"), err
    answer = Pipeline.load(index).ask("Who built Skarvik Lighthouse?")
    assert answer.text is not None and "Ada Holm" in answer.text
    hit = answer.sources[0].hit.passage
    assert (hit.document, hit.title, hit.path) == ("1", "Skarvik Lighthouse", str(path))
    assert hit.text == "Skarvik Lighthouse was built in 1871 by the engineer Ada Holm."
