"""The time of the readers grows with the length of a file, whatever is repeated in it."""

import time
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from ragqa.corpus.sources import read_documents
from tests.helpers.documents import write

HTML = [
    *("<!--", "</", "<?", "<![CDATA[", "<!", "<![", "<!doctype ", "<", ">", "<p ", "</a ", "<a\n", "<x/", "<!-->"),
    *("<a ", "<a b", "<a b=", "<a b='", '<a b="', "<a ='>'", "<a b='>", "<script>", "<script></scrip", "<style>"),
    *(
        "&",
        "&#",
        "&amp",
        "&#x",
        "<title>",
        "<title>a<b>",
        "<pre>",
        "<div><div>",
        "</p>",
        " ",
        "\n ",
        "<td>",
        "--!>",
        "<h1>",
        "<h2>a",
        "<table>",
    ),
    *(
        "<table><tr><th>a<th>b<tr><td>",
        "<tr><td rowspan=9 colspan=9>a",
        "<meta name=a content=b>",
        "<tr><th rowspan=99>a",
    ),
]
WIKITEXT = [
    *("<!--", "{{", "}}", "{{{", "[[", "[[a|", "[[a|[[b|", "[", "[//", "[http://a ", "{|", "|}", "{|\n", "\n|-\n|"),
    *("{{ ", "{{ab      ", "{{template: ", "{{" + " " * 1000, "__A_", "<ref>", "<ref ", "<nowiki>", "<table ", "''"),
    *("({{a}}", "((", "&"),
]
XML = [
    *("<page>", "<page></page>", "<page><revision>", "<a>", "<!-- -->", "<![CDATA[x]]>", "<?a b?>", "<a b='c'/>"),
    *("<!--", "<page><title>a:b</title><id>1</id></page>"),
    "<siteinfo><namespaces><namespace key='1'>a</namespace></namespaces></siteinfo>",
]
MARKDOWN = ["#", "# ", "\n#", " ", "\n", "# #", "#\t", "\r"]
MARKUP = {
    "rst": ["=", "a\n=\n", " \n", "=\n", "~a", "==\na\n==\n"],
    "adoc": ["= ", "==", "= a ", "----\n", "\n= a\n"],
    "org": ["* ", "* a :b", "* a :b: ", "#+begin_a\n", "#+title: ", "* TODO "],
    "tex": [
        "\\section{",
        "\\section[",
        "\\title{",
        "\\title[",
        "{a}",
        "\\section{{a}",
        "%",
        "\n%",
        "\\begin{document}",
    ],
}
JSON_LINES = ["[", '{"a":', '"', "{}", "\\", "\n", "-", "1e", '{"id": "1", "text": "', "\\u", "0"]
TABS = ["\t", '"', '""', '"\n', '"a"b\t', "\r"]
JSON = ["[", '{"a":', '[{"a":[', "1,", '{"a":1}', "\n{}", '"', "[1,[2,"]
ARTICLES = ['<doc id="', '<doc id="1" title="', '<doc id="1" title="a">\n', "</doc>\n", "&lt;", ' title="']
PAGE = "<mediawiki><page><title>T</title><ns>0</ns><id>1</id><revision><text>"
CASES = [
    *(("a.html", head, unit, "") for unit in HTML for head in ("", "<table><tr><th>a<th>b<tr>")),
    *(("a.xml", PAGE, escape(unit), "</text></revision></page></mediawiki>") for unit in WIKITEXT),
    *(("a.xml", "<mediawiki>", unit, "") for unit in XML),
    *(("a.md", "", unit, "") for unit in MARKDOWN),
    *((f"a.{suffix}", "", unit, "") for suffix, units in MARKUP.items() for unit in units),
    *(("a.jsonl", "", unit, "") for unit in JSON_LINES),
    *(("a.tsv", head, unit, "") for unit in TABS for head in ("", "id\ttext\ttitle\n")),
    *(("a.csv", head, unit, "") for unit in [*TABS, "\n", ",", '"x\n', '"a""\n', "1;"] for head in ("", 'a,b\n"')),
    *(("a.json", head, unit, "") for unit in JSON for head in ("", "[")),
    *(("wiki_00", head, unit, "") for unit in ARTICLES for head in ('<doc id="1" title="', "")),
]
"""Name of a file, and what comes before, again and again, and after."""
each_case = pytest.mark.parametrize(("name", "head", "unit", "tail"), CASES, ids=lambda value: repr(value)[:30])


def measure_time(path: Path, head: str, unit: str, tail: str, size: int) -> float:
    """Return the seconds of CPU time that a file of ``size`` bytes takes, at least those that noise can take."""
    write(path, head + unit * (size // len(unit)) + tail)
    start = time.thread_time()
    for _ in read_documents([path]):
        pass
    return max(time.thread_time() - start, 0.05)


@each_case
def test_a_repeated_construct_takes_linear_time(tmp_path: Path, name: str, head: str, unit: str, tail: str) -> None:
    pytest.importorskip("mwparserfromhell")
    # Ten times 10 KB take ten times as long; quadratic readers took a hundred times, and seconds.
    short, long = (measure_time(tmp_path / name, head, unit, tail, size) for size in (10_000, 100_000))
    if long >= 30 * short:  # other work on the machine makes one measurement slow, but not two more
        long = min(measure_time(tmp_path / name, head, unit, tail, 100_000) for _ in range(2))
    assert long < 1 or long < 30 * short


@pytest.mark.slow
@each_case
def test_two_megabytes_take_less_than_three_times_one(
    tmp_path: Path, name: str, head: str, unit: str, tail: str
) -> None:
    one, two = (measure_time(tmp_path / name, head, unit, tail, size) for size in (1_000_000, 2_000_000))
    assert two < 3 * one
