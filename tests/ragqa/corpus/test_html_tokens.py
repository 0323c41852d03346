"""Tags and texts of HTML: well-formed pages as html.parser reads them, broken ones without surprises."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragqa.corpus.formats.html_tokens import Token, iter_tokens


@pytest.mark.parametrize(
    ("page", "tokens"),
    [
        ("a<B c>d</B >e", ["text a", "start b", "text d", "end b", "text e"]),
        ("<a b='>' c=\">\" d=>x", ["start a", "text x"]),
        ("<a b= '>'>x", ["start a", "text x"]),
        ("it's <a b=it's>x", ["text it's ", "start a", "text x"]),
        ("<br/><x:y-1/>", ["start br", "end br", "start x:y-1", "end x:y-1"]),
        ("a<!-- <b> -->c<!---->d<!-->e<!--->f<!-- --!>g", ["text a", "text c", "text d", "text e", "text f", "text g"]),
        ("<script>if (a<b) '</b>'</SCRIPT >x", ["start script", "end script", "text x"]),
        ("<style/>a<b>", ["start style", "end style", "text a", "start b"]),
        ("<script>never <b> closed", ["start script"]),
        ("1 < 2 <3 &lt;b&gt; &eacute;", ["text 1 < 2 <3 <b> é"]),
        # never closed: text
        ("a<!-- b <c> d", ["text a<!-- b ", "start c", "text  d"]),
        ("<a b='c>d</a>e", ["start a", "text d", "end a", "text e"]),
        ("a<b c", ["text a<b c"]),
        ("a</b", ["text a</b"]),
        ("<![CDATA[a>b", ["text b"]),
    ],
)
def test_tokens_of_html(page: str, tokens: list[str]) -> None:
    assert [f"{kind} {value}" for kind, value in iter_tokens(page)] == tokens


@pytest.mark.parametrize("reference", ["&#" + "9" * 5_000 + ";", "&#x" + "f" * 5_000, "&#00000000099999999;"])
def test_a_reference_to_a_character_beyond_all_is_replaced(reference: str) -> None:
    assert list(iter_tokens(f"a{reference}b")) in ([("text", "a\ufffdb")], [("text", "a\ufffd")])
    assert list(iter_tokens("&#0000000000065;&#x000000041;")) == [("text", "AA")]


class Reference(HTMLParser):
    """Python's parser, which is right on well-formed pages."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens: list[Token] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tokens.append(("start", tag))

    def handle_endtag(self, tag: str) -> None:
        self.tokens.append(("end", tag))

    def handle_data(self, data: str) -> None:
        self.tokens.append(("text", data))


PIECES = [
    *("text", " ", "\n", "&amp;", "&#233;", "é", "<p>", "</p>", "<a href='x>y'>", '<a b="c d" e=f>', "</a>", "<br/>"),
    *("<!-- c -->", "<h1 class=x>", "</h1>", "<IMG src = 'a'>", "<td\n>", "<!DOCTYPE html>", "<?xml x?>", "2 < 3"),
]


@given(st.lists(st.sampled_from(PIECES)))
def test_well_formed_pages_are_read_as_python_reads_them(pieces: list[str]) -> None:
    page = "".join(pieces)
    parser = Reference()
    parser.feed(page)
    parser.close()
    assert join_texts(token for token in iter_tokens(page) if token[0] != "attributes") == join_texts(parser.tokens)


def join_texts(tokens: object) -> list[Token]:
    joined: list[Token] = []
    for kind, value in tokens:
        if joined and kind == joined[-1][0] == "text":
            value = joined.pop()[1] + value
        joined.append((kind, value))
    return joined
