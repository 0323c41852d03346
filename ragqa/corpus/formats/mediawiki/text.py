"""Extract the plain text of wikitext with mwparserfromhell (extra ``wiki``)."""

import re
from collections.abc import Callable, Iterator
from html import unescape
from typing import Any

from ragqa.corpus.formats.mediawiki.names import INVISIBLE_PREFIXES, normalize_prefix
from ragqa.corpus.formats.mediawiki.prepare import (
    BLOCK_TAGS,
    BREAK,
    DROPPED_TAGS,
    GAP,
    SEPARATOR,
    VERBATIM_TAGS,
    escape_verbatim,
    remove_markup,
)

_HEADING = "\x04"
"""Mark at the start of a heading's line; the heading's level (a digit) follows."""
_RESERVED = re.compile(f"[{GAP}{BREAK}{SEPARATOR}{_HEADING}]")
# In the worst case, the parser's time grows with the square of the length of the text after an unclosed bracket.
_CHUNK = 16_000
"""Maximum number of characters that are parsed at a time."""
_SHORT_CHUNK = 1_000
"""Maximum number of characters to parse at a time if more than ``_MANY_OPEN`` brackets are unclosed."""
_MANY_OPEN = 100
"""Number of unclosed brackets above which chunks are short; most pages have few or none."""

_PLAIN_LINK = re.compile(r"\[\[([^][{}|<>\n]++)(?:\|([^][{}|<>\n]*+))?\]\]")
_QUOTES = re.compile("('{2,})")
_SWITCH = re.compile(r"__[A-Z]+(?:_[A-Z]+)*__")
_TABLE_LINE = re.compile(r"^\{?\|.*$", re.MULTILINE)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_SHOWN_CHARACTER = re.compile(r"\w")
# Remains of removed templates and references: "()", "(; born 1950)", "1950 ."
_GAPS = re.compile(rf" ?{GAP}[ {GAP}]*+")
_EMPTY_PARENTHESES = re.compile(rf" ?[(（](?=[^{GAP}()（）]*{GAP})[\s{GAP};,:–-]*+[)）]")
_OPENING_PARENTHESIS = re.compile(rf"([(（]) ?{GAP}(?:[;,] ?)?")
_BEFORE_STOP = re.compile(rf" ?{GAP}(?=[.,;:!?)）\n])")
_BETWEEN_WORDS = re.compile(rf"(?<=\w){GAP}(?=\w)")


def extract_plain_text(
    wikitext: str, invisible: frozenset[str] = INVISIBLE_PREFIXES, *, remove_first: bool = True
) -> str:
    """Return the visible text of a page, with one line for each paragraph, item or heading.

    Templates, tables, references, pictures, formulas and headings without text below them are left out. A heading that
    does not end in ``.``, ``!``, ``?`` or ``…`` gets a full stop, as in the output of WikiExtractor.

    Args:
        wikitext: text of a page.
        invisible: normalised prefixes of links without visible text.
        remove_first: True to remove simple markup before parsing, which is faster; tests compare both ways.

    Raises:
        ImportError: mwparserfromhell is not installed.
        Exception: any error that the parser raises on unusual markup.
    """
    from mwparserfromhell import parse

    wikitext = _RESERVED.sub("", wikitext)
    # Only headings, links with markup in them, definitions and rare markup are left to the parser.
    chunks = _split_chunks(_replace_links(remove_markup(wikitext), invisible)) if remove_first else [wikitext]
    # Bold and italics are left to _remove_quotes, which counts quotes by line as MediaWiki does.
    texts = [_extract_nodes(parse(chunk, skip_style_tags=True), invisible) for chunk in chunks]
    return "\n".join(_iter_lines("".join(texts)))


def _replace_links(wikitext: str, invisible: frozenset[str]) -> str:
    return _PLAIN_LINK.sub(lambda link: _choose_link_text(link[1], link[2] or "", invisible), wikitext)


def _split_chunks(text: str) -> Iterator[str]:
    """Yield parts of up to ``_CHUNK`` characters, cut between paragraphs or lines if possible."""
    start = 0
    while start < len(text):
        end = start + _CHUNK
        if text.count("[", start, end) - text.count("]", start, end) > _MANY_OPEN:
            end = start + _SHORT_CHUNK
        if end >= len(text):
            yield text[start:]
            return
        places = (text.rfind(gap, start + 1, end) for gap in ("\n\n", "\n"))
        cut = next((place for place in places if place > 0), end)
        yield text[start:cut]
        start = cut


def _extract_nodes(code: Any, invisible: frozenset[str]) -> str:
    """Return the visible text of parsed wikitext, in which entities are not decoded."""
    return "".join([_NODES[type(node).__name__](node, invisible) for node in code.nodes])


def _extract_link(node: Any, invisible: frozenset[str]) -> str:
    text = _extract_nodes(node.text, invisible) if node.text else ""
    return _choose_link_text(_extract_nodes(node.title, invisible), text, invisible)


def _choose_link_text(title: str, text: str, invisible: frozenset[str]) -> str:
    """Return the visible text of a link to the page ``title``: ``text``, or else the title."""
    prefix, colon, _ = title.partition(":")
    if colon and normalize_prefix(prefix) in invisible:
        return ""
    return text or title.strip().removeprefix(":")


def _extract_external_link(node: Any, invisible: frozenset[str]) -> str:
    if node.title is not None:
        return _extract_nodes(node.title, invisible)
    return "" if node.brackets else str(node.url)


def _extract_heading(node: Any, invisible: frozenset[str]) -> str:
    title = " ".join(_extract_nodes(node.title, invisible).replace(BREAK, " ").split())
    return f"\n{_HEADING}{node.level}{title}\n"


def _extract_tag(node: Any, invisible: frozenset[str]) -> str:
    name = str(node.tag).strip().lower()
    if name in DROPPED_TAGS or name == "table":
        return GAP
    if node.wiki_markup:  # a list item or a horizontal rule
        return BREAK
    if name in VERBATIM_TAGS:
        return escape_verbatim(name, str(node.contents or ""))
    line_end = BREAK if name in BLOCK_TAGS else ""
    return line_end + (_extract_nodes(node.contents, invisible) if node.contents else "") + line_end


_NODES: dict[str, Callable[[Any, frozenset[str]], str]] = {
    "Argument": lambda node, invisible: GAP,
    "Comment": lambda node, invisible: "",
    "ExternalLink": _extract_external_link,
    "Heading": _extract_heading,
    "HTMLEntity": lambda node, invisible: str(node),
    "Tag": _extract_tag,
    "Template": lambda node, invisible: GAP,
    "Text": lambda node, invisible: node.value,
    "Wikilink": _extract_link,
}


def _iter_lines(text: str) -> Iterator[str]:
    """Yield the visible lines of a text; drop quotes, marks and headings without text."""
    headings: list[tuple[str, str]] = []
    for line in _remove_last_markup(text).split("\n"):
        line = " ".join(line.split())
        if line.startswith(_HEADING):
            headings = [heading for heading in headings if heading[0] < line[1:2]]
            headings.append((line[1:2], line[2:].strip()))
        elif _SHOWN_CHARACTER.search(line):
            titles = (title for _, title in headings if title)
            yield from (title if title.endswith((".", "!", "?", "…")) else f"{title}." for title in titles)
            headings = []
            yield line


def _remove_last_markup(text: str) -> str:
    text = "\n".join([_remove_quotes(line) for line in text.replace(BREAK, "\n").split("\n")])
    text = _TABLE_LINE.sub("", _SWITCH.sub("", text))  # tables that were never closed
    # Adjacent marks become one mark, because the next patterns would take quadratic time over many marks.
    text = _GAPS.sub(lambda gap: f" {GAP}" if " " in gap[0] else GAP, text)
    text = _EMPTY_PARENTHESES.sub("", text)
    text = _OPENING_PARENTHESIS.sub(r"\1", text)
    text = _BEFORE_STOP.sub("", text)
    text = _BETWEEN_WORDS.sub(" ", text).replace(GAP, "").replace(SEPARATOR, "")
    return _ENTITY.sub(lambda entity: unescape(entity[0]), text)


def _remove_quotes(line: str) -> str:
    """Remove the quotes that mark bold and italic text (MediaWiki, Parser::doQuotes).

    Runs of two, three and five quotes are marks. In a run of four, one quote is text; in a run of over five, all but
    five are. If the numbers of bold and of italic marks are odd, one run of three is an apostrophe and an italic mark,
    as in ``l'''amour''``.
    """
    if "''" not in line:
        return line
    pieces = _QUOTES.split(line)  # text and quotes in turn
    lengths = [len(piece) for piece in pieces[1::2]]
    text_quotes = [length - 5 if length > 5 else int(length == 4) for length in lengths]
    threes = [number for number, length in enumerate(lengths) if length in (3, 4)]
    bold, italic = sum(n > 2 for n in lengths), sum(n == 2 or n > 4 for n in lengths)
    if threes and bold % 2 and italic % 2:
        text_quotes[min(threes, key=lambda number: _rank_apostrophe(pieces[2 * number]))] += 1
    quotes = [*("'" * count for count in text_quotes), ""]
    return "".join(text + quote for text, quote in zip(pieces[::2], quotes, strict=True))


def _rank_apostrophe(before: str) -> int:
    """Return the rank of a run of quotes by the text before it; the lowest has an apostrophe.

    The rank is 0 after a word of one letter, 2 after a space, and 1 after any other text.
    """
    return 2 if before.endswith(" ") else 0 if before[-2:-1] == " " else 1
