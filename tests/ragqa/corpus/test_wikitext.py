"""Wikitext to text: examples by hand, damaged and hostile wikitext, and random wikitext against the parser alone."""

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ragqa.corpus.formats.mediawiki.names import INVISIBLE_PREFIXES
from ragqa.corpus.formats.mediawiki.text import extract_plain_text

pytest.importorskip("mwparserfromhell", reason="needs the extra wiki")

WAVE = """{{Short description|Print by Hokusai}}
{{Infobox artwork
| title  = The Great Wave<!-- {{ unclosed -->
| artist = [[Hokusai|Katsushika {{nowrap|Hokusai}}]]
| size   = {{convert|25.7|x|37.9|cm|in|abbr={{{abbr|on}}}}}
}}
[[File:Wave.jpg|thumb|upright=1.2|A ''print'' of the [[wave]], see [[Mount Fuji|Fuji]] and [http://x.org a site]]]
'''''The Great Wave'' off Kanagawa''' ({{langx|ja|神奈川沖浪裏}}; {{IPA|ja|x}}) is a [[woodblock print]] by
[[Hokusai]]<ref name="a">{{cite book|title=Prints {{!}} more|url=http://x.org}} <nowiki></nowiki></ref>,<ref name=a/>
made in &quot;1831&quot;&nbsp;&mdash; in the [[Edo period|''Edo'' period]].<!-- when? -->

== Copies ==
{| class="wikitable"
! Where !! How many
|-
| [[Paris]] || {| class="inner"
|-
| a
|}
{|
| nested table
|}
| 3 {{ref label|a}}
|}
There are about 100 [[:Category:Prints|prints]] today{{citation needed|date=May 2020}}.

* the [[British Museum]]
** ''two'' of them
# one in [[Paris|Paris, [[France]]]]
; Sizes : 25 cm
: indented {{clear}}

=== Empty ===
{{main|Nothing}}

== Not here ==
<gallery>
File:A.jpg|[[a]]
</gallery>
<math>\\frac{a}{{b}}</math>

== See also ==
* [http://example.org Home page]
{{Authority control}}
{{DEFAULTSORT:Great Wave}}
[[Category:Prints]]
[[de:Die große Welle]]
__NOTOC__
"""


def test_a_whole_article_gives_its_visible_text() -> None:
    assert extract_plain_text(WAVE).split("\n") == [
        "The Great Wave off Kanagawa is a woodblock print by",
        "Hokusai,",
        'made in "1831" — in the Edo period.',
        "Copies.",
        "There are about 100 prints today.",
        "the British Museum",
        "two of them",
        "one in Paris, France",
        "Sizes",
        "25 cm",
        "indented",
        "See also.",
        "Home page",
    ]


CASES = {
    # links
    "[[bus]]es and [[Foo (bar)|foo]]": "buses and foo",
    "a [[Foo|'''b''' {{c}}d]] e": "a b d e",
    "[[:File:X.jpg]] [[:Category:X|the category]]": "File:X.jpg the category",
    "a[[Image:X.jpg|[[b]] c]] [[ file : x.jpg]][[FILE:X]]d": "a d",
    "a [[category: X|key]]b[[fr:Vague]] [[zh-min-nan:X|Y]]": "a b",
    "[[wikt:wave|wave]] and [[:fr:Vague]]": "wave and fr:Vague",
    "[[#Part|below]], [[Wave#Part]]": "below, Wave#Part",
    "[http://x.org the site], [http://x.org], http://x.org/a?b=c": "the site, , http://x.org/a?b=c",
    "[//x.org/a ''the'' [[site]]]": "the site",
    "array[1] and [sic]": "array[1] and [sic]",
    # templates
    "a {{b|{{c|{{d}}}}|e={{f}}}} g": "a g",
    "a {{b|{c}}} g": "a } g",
    "{{{{{a|b}}}|c}}d": "d",
    "{{#if:{{{x|}}}|{{{x}}}|y}}z": "z",
    "one{{spaced ndash}}two": "one two",
    "Born ({{birth date|1950|1|2}}) in Rome": "Born in Rome",
    "Born ({{lang|fr|x}}; 1950) in {{a}} , {{b}}.": "Born (1950) in,.",
    "f() and ( ) stay": "f() and ( ) stay",
    # elements
    'a<ref>b</ref>.<ref name="c" /><REF name=d>{{e|</REF> f': "a. f",
    "a<ref>[[b</ref> c<!-- d\n-->e": "a ce",
    "<nowiki>[[a]] {{b}} ''c'' &lt; <d> __NOTOC__</nowiki>": "[[a]] {{b}} ''c'' < <d> __NOTOC__",
    "'<nowiki/>'a<nowiki />": "''a",
    "{{a|<nowiki>}}</nowiki>|b}}c": "c",
    "<pre>\n* a [[b]]\n</pre>c": "* a [[b]]\nc",
    "if {|x| < 1} and {x|y}": "if {|x| < 1} and {x|y}",
    "x<sub>1</sub><sup>2</sup> <small>y</small> <span style='a'>z</span>": "x12 y z",
    "<div class='a'>one</div>two<br>three<br />four<p>five</p>": "one\ntwo\nthree\nfour\nfive",
    "<code>a < b</code> and 1 < 2 > 1": "a < b and 1 < 2 > 1",
    "a<syntaxhighlight lang='c'>if (a[[1]]) {{ }}</syntaxhighlight>b": "a b",
    "<noinclude>a</noinclude><includeonly>b</includeonly>c": "a c",
    "a <math>x</math>, <chem>H2O</chem> b <score>c</score>": "a, b",
    "<table><tr><td>a</td><td><table>b</table></td></tr></table>c": "c",
    "<blockquote>a\n\nb</blockquote>": "a\nb",
    # tables
    "a\n{|\n| b\n|}\nc": "a\nc",
    ":{| class='x'\n|+ cap\n! h\n|-\n|{{c}}\n|\n{|\n|d\n|}\n|}\nc": "c",
    "a\n  {|\n|b|}}c\n|}": "a",
    # quotes
    "'''a''' ''b'' '''''c''' d''": "a b c d",
    "L'''amour'' et '''l''''eau'''": "Lamour et l'eau",
    "L'''amour''": "L'amour",
    "de '''b''' aa'''d''' l'''c'' aa": "de b aad l'c aa",
    "de '''b''' aa'''d'' aa": "de b' aad aa",
    "'''a '''b''' ''c": "'a b c",
    "''''a''''": "'a'",
    "''''''a'''''": "'a",
    "'''a\nb'' c": "a\nb c",
    "a '''b''c": "a 'bc",
    "O'Brien's 'x'": "O'Brien's 'x'",
    # entities
    "&amp;lt; &eacute;&#233;&#xE9;&apos; AT&T &foo; 5&nbsp;km": "&lt; ééé' AT&T &foo; 5 km",
    "&#91;&#91;a&#93;&#93; &#0; &#xD800;": "[[a]] \ufffd \ufffd",
    # headings
    "==A==\nb\n== C? ==\n=== ''D'' [[e|E]] ===\nf\n=G=\n": "A.\nb\nC?\nD E.\nf",
    "== A ==\n=== B ===\n== C ==\nd": "C.\nd",
    "== A <br> B<!-- x --> == \nc": "A B.\nc",
    "a == b ==": "a == b ==",
    # lists and rules
    "*a\n*#b\n:::c\n;d:e\n----\nf": "a\nb\nc\nd\ne\nf",
    "# {{flag|x}}\n* – \n* &nbsp;": "",
    # lines
    "a  b\t c \n\n\n d": "a b c\nd",
    "__TOC__a __FORCE_TOC__ b__init__ ____": "a b__init__ ____",
    # other scripts
    "'''東京'''は[[日本|日本国]]の首都。（{{lang|ja|x}}）": "東京は日本国の首都。",
    "'''Москва́''' — [[столица]] [[Россия|России]]<ref>а</ref>.": "Москва́ — столица России.",
    "[[שלום|שָׁלוֹם]] &rlm;עולם": "שָׁלוֹם \u200fעולם",
    "": "",
}


@pytest.mark.parametrize(("wikitext", "text"), CASES.items())
def test_markup_gives_its_visible_text(wikitext: str, text: str) -> None:
    assert extract_plain_text(wikitext) == text


def test_invisible_link_prefixes_depend_on_the_wiki() -> None:
    text = "[[Datei:a.jpg|b]][[Image:c.jpg]] d"
    assert extract_plain_text(text) == "b d"
    assert extract_plain_text(text, INVISIBLE_PREFIXES | {"datei"}) == "d"


@pytest.mark.parametrize(
    "unclosed",
    [
        "a {{b",
        "a [[b",
        "a [[b|[[c]]",
        "a <ref>b",
        "a </ref>",
        "a <!-- b",
        "a '''b",
        "a {|\n| b\n",
        "a\n{|\n| b\n|-\n| [[c]]\n\nd",
        "a <div>b\n\n<ref name=",
        "a }} ]] |} --> {{{",
        "== a\n[http://b",
        "<table>a",
        "a\n|}",
        "<td>a</td><tr>",
        "<nowiki>a",
        "a [[File:b|thumb|{{c|[[d]]",
    ],
)
def test_unclosed_markup_leaves_text(unclosed: str) -> None:
    assert "a" in extract_plain_text(unclosed)
    assert "a" in extract_plain_text(unclosed, remove_first=False)
    assert (
        extract_plain_text(f"{unclosed}\n\n== H ==\nThe next paragraph.").endswith("The next paragraph.")
        or "<!--" in unclosed
    )


def test_an_unclosed_table_is_removed() -> None:
    assert extract_plain_text("a\n{|\n! b\n| c\n|-\n| [[d]]\n\ne") == "a\n! b\ne"


def test_a_long_page_is_parsed_in_parts() -> None:
    paragraph = "Text with ''marks'' and a [[link|'''bold''' link]].\n"
    text = "".join(f"{paragraph * 3}\n== Part {n} ==\n" for n in range(300))
    assert len(text) > 40_000
    assert extract_plain_text(text) == extract_plain_text(text, remove_first=False)
    assert extract_plain_text(text).count("bold link") == 900
    assert extract_plain_text("x" * 40_000) == "x" * 40_000


HOSTILE = [
    "{{a|",
    "{{{",
    "[[",
    "[[File:a|",
    "{|\n",
    "<ref>",
    "<u ",
    "<br ",
    "<table>",
    "'''",
    "<!",
    "(",
    "({{a}} ",
    "&a",
    "\n",
]


@pytest.mark.parametrize("unit", HOSTILE)
def test_running_time_stays_bounded_on_hostile_wikitext(unit: str) -> None:
    extract_plain_text(unit * (30_000 // len(unit)))


# An indented table is none for the parser, and markup in <nowiki> within a template is a template for it.
NOT_FOR_THE_PARSER = (":{| class='x'\n|+ cap\n! h\n|-\n|{{c}}\n|\n{|\n|d\n|}\n|}\nc",)


# Any well-formed wikitext

WORDS = ("wave", "Zürich", "東京", "שלום", "1831", "O'Brien", "a", "(b)", "c;", ": d", "e.", "–", "x=y", "\u00a0")


class WikitextWriter:
    """Generator of well-formed wikitext of every kind, nested arbitrarily."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def page(self) -> str:
        blocks = (self._inline, self._inline, self._table, self._items, self._heading, self._gallery)
        return "\n\n".join(self._random.choice(blocks)() for _ in range(self._random.randrange(6)))

    def _name(self) -> str:
        return self._random.choice(("wave", "Zürich", "東京", "Mount Fuji", "A 1"))

    def _inline(self, depth: int = 0, without: str = "?") -> str:
        """Return a paragraph, or the content of an element; ``without`` an element that cannot contain itself."""
        kinds = (self._word, self._word, self._link, self._small, *(() if depth > 3 else (self._nested,)))
        pieces = (self._random.choice(kinds)(depth + 1, without) for _ in range(self._random.randrange(1, 5)))
        return " ".join(piece for piece in pieces if without not in piece)

    def _word(self, depth: int, without: str) -> str:
        return self._random.choice(WORDS)

    def _link(self, depth: int, without: str) -> str:
        name = self._name()
        return self._random.choice(
            (
                f"[[{name}]]s",
                f"[[{name} (b)|{self._name()}]]",
                f"[[{name}|''{self._name()}'' {{{{b}}}}]]",
                f"[[:Category:{name}]]",
                f"[[Category:{name}]]",
                f"[[de:{name}]]",
                f"[http://x.org/a {name}]",
            )
        )

    def _small(self, depth: int, without: str) -> str:
        name = self._name()
        return self._random.choice(
            (
                f"<!-- {{{{ [[{name} -->",
                f"<math>{name}_{{1}}</math>",
                f"<nowiki>* ''{name}&lt;</nowiki>",
                '<ref name="b" />',
                "<br />",
                "&nbsp;&eacute;&#233;&amp;",
                "{{a}}",
                "{{{1|}}}",
            )
        )

    def _nested(self, depth: int, without: str) -> str:
        def inner(without: str = without) -> str:
            return self._inline(depth, without)

        return self._random.choice(
            (
                lambda: f"{{{{{self._name()}|{inner()}|x={inner()}}}}}",
                lambda: f"{{{{{{x|{inner()}}}}}}}",
                lambda: f"[[File:{self._name()}.jpg|thumb|{inner()}]]",
                lambda: f'<ref name="a">{inner("<ref")}</ref>',
                lambda: f"<includeonly>{inner('<includeonly')}</includeonly>",
                lambda: f"<small class='a'>{inner()}</small>",
                lambda: f"<div>{inner()}</div>",
                lambda: f"''{inner()}'' '''{inner()}'''",
            )
        )()

    def _table(self, depth: int = 0) -> str:
        cells = [f"| {self._inline()}" for _ in range(self._random.randrange(1, 4))]
        nested = [self._table(depth + 1)] if depth < 2 and self._random.random() < 0.4 else []
        return "\n".join(['{| class="a"', "! head !! head", "|-", *cells, *nested, "|}"])

    def _items(self) -> str:
        marks = ("*", "#", "**", ":", "*:")
        return "\n".join(f"{self._random.choice(marks)} {self._inline()}" for _ in range(3))

    def _heading(self) -> str:
        marks = "=" * self._random.randrange(2, 5)
        return f"{marks} {self._name()} {self._random.choice(WORDS)} {marks}"

    def _gallery(self) -> str:
        return f"<gallery>\nFile:{self._name()}.jpg|{self._inline()}\n</gallery>"


pages = st.randoms(use_true_random=False).map(lambda random: WikitextWriter(random).page())


@settings(max_examples=100)
@given(pages)
def test_well_formed_wikitext_leaves_no_markup(wikitext: str) -> None:
    text = extract_plain_text(wikitext)
    for markup in ("{{", "}}", "[[", "]]", "{|", "|}", "<ref", "<!--", "&nbsp;", "File:"):
        assert markup not in text
    assert all(line and line == " ".join(line.split()) for line in text.split("\n") if text)


@settings(max_examples=100)
@given(pages)
@example("<small class='a'>: d</small>\n<b>* e</b>\n<i>== f ==</i>")
def test_removing_markup_first_changes_nothing_but_the_time(wikitext: str) -> None:
    assert extract_plain_text(wikitext) == extract_plain_text(wikitext, remove_first=False)


@pytest.mark.parametrize("wikitext", [WAVE, *CASES])
def test_removing_markup_first_changes_no_example(wikitext: str) -> None:
    if wikitext not in NOT_FOR_THE_PARSER:
        assert extract_plain_text(wikitext) == extract_plain_text(wikitext, remove_first=False)


@settings(max_examples=200)
@given(
    st.lists(
        st.sampled_from(
            [
                "{{",
                "}}",
                "[[",
                "]]",
                "{|",
                "|}",
                "\n",
                "|",
                "<ref>",
                "</ref>",
                "''",
                "=",
                "*",
                "a",
                "<",
                "&",
                ":",
                "File:",
            ]
        ),
        max_size=40,
    ).map("".join)
)
def test_any_text_is_parsed(wikitext: str) -> None:
    extract_plain_text(wikitext)
