"""Wikitext to plain text, through mwparserfromhell (extra ``wiki``): a paragraph, list item or heading a line."""

import re
from collections.abc import Callable, Iterator
from html import unescape
from typing import Any

from ragqa.corpus.formats.mediawiki.names import UNSEEN, prefix_of
from ragqa.corpus.formats.mediawiki.prepare import BLOCKS, BREAK, DROPPED, GONE, NOTHING, VERBATIM, prepared, verbatim

_HEADING = "\x04"
"""Begins the line of a heading, before the digit of its level."""
_RESERVED = re.compile(f"[{GONE}{BREAK}{NOTHING}{_HEADING}]")
# The parser's time can grow with the square of what stands behind a bracket that is never closed.
_CHUNK = 16_000

_PLAIN_LINK = re.compile(r"\[\[([^][{}|<>\n]++)(?:\|([^][{}|<>\n]*+))?\]\]")
_QUOTES = re.compile("('{2,})")
_SWITCH = re.compile(r"__[A-Z]+(?:_[A-Z]+)*__")
_TABLE_LINE = re.compile(r"^\{?\|.*$", re.MULTILINE)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_SHOWN_CHARACTER = re.compile(r"\w")
# What a sentence looks odd with where a template or a reference was: "()", "(; born 1950)", "1950 ."
_GAPS = re.compile(rf" ?{GONE}[ {GONE}]*+")
_EMPTY_PARENTHESES = re.compile(rf" ?[(（](?=[^{GONE}()（）]*{GONE})[\s{GONE};,:–-]*+[)）]")
_OPENING_PARENTHESIS = re.compile(rf"([(（]) ?{GONE}(?:[;,] ?)?")
_BEFORE_STOP = re.compile(rf" ?{GONE}(?=[.,;:!?)）\n])")
_BETWEEN_WORDS = re.compile(rf"(?<=\w){GONE}(?=\w)")


def plain_text(wikitext: str, unseen: frozenset[str] = UNSEEN, *, prepare: bool = True) -> str:
    """The text of a page as a reader sees it, without templates, tables, references, pictures and formulas.

    Headings stay, as lines with a full stop, where text follows them, and paragraphs are single lines: so does
    WikiExtractor write articles, and a passage of either corpus can be held beside one of the other.

    Args:
        wikitext: of a page.
        unseen: what precedes the colon in links that show nothing where they stand, as ``prefix_of`` gives it.
        prepare: take out first what needs no parser; the tests hold the result against the parser's own.

    Raises whatever the parser stumbles over.
    """
    from mwparserfromhell import parse

    wikitext = _RESERVED.sub("", wikitext)
    chunks = _chunks(_prepared(wikitext, unseen)) if prepare else [wikitext]
    # Bold and italics are not for the parser: MediaWiki counts quotes by line, as _without_quotes does.
    shown = [_shown(parse(chunk, skip_style_tags=True), unseen) for chunk in chunks]
    return "\n".join(_lines("".join(shown)))


def _prepared(wikitext: str, unseen: frozenset[str]) -> str:
    """What is left for the parser: headings, links with markup in them, definitions, what nobody thought of."""
    return _PLAIN_LINK.sub(lambda link: _link_text(link[1], link[2] or "", unseen), prepared(wikitext))


def _chunks(text: str) -> Iterator[str]:
    """Parts of up to ``_CHUNK`` characters, cut between paragraphs or lines where there are any."""
    at = 0
    while len(text) - at > _CHUNK:
        end = at + _CHUNK
        places = (text.rfind(gap, at + 1, end) for gap in ("\n\n", "\n"))
        cut = next((place for place in places if place > 0), end)
        yield text[at:cut]
        at = cut
    yield text[at:]


def _shown(code: Any, unseen: frozenset[str]) -> str:
    """What the nodes of a parsed text show, entities not decoded yet."""
    return "".join([_NODES[type(node).__name__](node, unseen) for node in code.nodes])


def _link(node: Any, unseen: frozenset[str]) -> str:
    return _link_text(_shown(node.title, unseen), _shown(node.text, unseen) if node.text else "", unseen)


def _link_text(title: str, text: str, unseen: frozenset[str]) -> str:
    """What a link to the page ``title`` shows, which may have a text of its own."""
    prefix, colon, _ = title.partition(":")
    if colon and prefix_of(prefix) in unseen:
        return ""
    return text or title.strip().removeprefix(":")


def _external_link(node: Any, unseen: frozenset[str]) -> str:
    if node.title is not None:
        return _shown(node.title, unseen)
    return "" if node.brackets else str(node.url)


def _heading(node: Any, unseen: frozenset[str]) -> str:
    title = " ".join(_shown(node.title, unseen).replace(BREAK, " ").split())
    return f"\n{_HEADING}{node.level}{title}\n"


def _tag(node: Any, unseen: frozenset[str]) -> str:
    name = str(node.tag).strip().lower()
    if name in DROPPED or name == "table":
        return GONE
    if node.wiki_markup:  # of a list or a rule
        return BREAK
    if name in VERBATIM:
        return verbatim(name, str(node.contents or ""))
    line_end = BREAK if name in BLOCKS else ""
    return line_end + (_shown(node.contents, unseen) if node.contents else "") + line_end


_NODES: dict[str, Callable[[Any, frozenset[str]], str]] = {
    "Argument": lambda node, unseen: GONE,
    "Comment": lambda node, unseen: "",
    "ExternalLink": _external_link,
    "Heading": _heading,
    "HTMLEntity": lambda node, unseen: str(node),
    "Tag": _tag,
    "Template": lambda node, unseen: GONE,
    "Text": lambda node, unseen: node.value,
    "Wikilink": _link,
}


def _lines(text: str) -> Iterator[str]:
    """The lines of a text in which only line ends, headings, quotes, entities and GONE are left of the markup."""
    headings: list[tuple[str, str]] = []
    for line in _decoded(text).split("\n"):
        line = " ".join(line.split())
        if line.startswith(_HEADING):
            headings = [heading for heading in headings if heading[0] < line[1:2]]
            headings.append((line[1:2], line[2:].strip()))
        elif _SHOWN_CHARACTER.search(line):
            yield from (_as_sentence(title) for _, title in headings if title)
            headings = []
            yield line


def _as_sentence(title: str) -> str:
    return title if title.endswith((".", "!", "?", "…")) else f"{title}."


def _decoded(text: str) -> str:
    text = "\n".join([_without_quotes(line) for line in text.replace(BREAK, "\n").split("\n")])
    text = _TABLE_LINE.sub("", _SWITCH.sub("", text))  # lines of a table that was never closed
    return _ENTITY.sub(lambda entity: unescape(entity[0]), _closed_up(text).replace(NOTHING, ""))


def _closed_up(text: str) -> str:
    # one GONE for many: these patterns would read a row of them again from each
    text = _GAPS.sub(lambda gap: f" {GONE}" if " " in gap[0] else GONE, text)
    text = _EMPTY_PARENTHESES.sub("", text)
    text = _OPENING_PARENTHESIS.sub(r"\1", text)
    text = _BEFORE_STOP.sub("", text)
    return _BETWEEN_WORDS.sub(" ", text).replace(GONE, "")


def _without_quotes(line: str) -> str:
    """A line without the quotes that make text bold or italic; others stay (MediaWiki, Parser::doQuotes).

    Two, three and five are marks, of four one is text, of more all but five. Where neither bold nor italic text
    would end, one run of three is an apostrophe and a mark of two, as in ``l'''amour''``.
    """
    if "''" not in line:
        return line
    pieces = _QUOTES.split(line)  # text and quotes in turn
    lengths = [len(piece) for piece in pieces[1::2]]
    kept = [length - 5 if length > 5 else int(length == 4) for length in lengths]
    threes = [number for number, length in enumerate(lengths) if length in (3, 4)]
    bold, italic = sum(n > 2 for n in lengths), sum(n == 2 or n > 4 for n in lengths)
    if threes and bold % 2 and italic % 2:
        kept[min(threes, key=lambda number: _rank(pieces[2 * number]))] += 1
    quotes = [*("'" * count for count in kept), ""]
    return "".join(text + quote for text, quote in zip(pieces[::2], quotes, strict=True))


def _rank(before: str) -> int:
    """How little quotes after this text look like an apostrophe: least after a single letter, most after a space."""
    return 2 if before.endswith(" ") else 0 if before[-2:-1] == " " else 1
