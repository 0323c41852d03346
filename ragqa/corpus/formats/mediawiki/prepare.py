"""What can be taken out of wikitext without a parser: comments, elements, templates, tables, tags of formatting.

Everything here takes time in proportion to the text, whatever the text is. What is left for the parser is a
fraction of the tokens, and little on which it takes time that grows faster.
"""

import re

# Elements whose content is not part of the text, and those whose content is not wikitext.
_DROPPED = """
categorytree ce charinsert chem gallery graph hiero imagemap includeonly indicator inputbox mapframe maplink math ref
references score section source syntaxhighlight templatedata templatestyles timeline
"""
DROPPED = frozenset(_DROPPED.split())
VERBATIM = frozenset(("nowiki", "pre"))
# Elements that begin and end lines, and those that do not.
_BLOCKS = "blockquote br center dd div dl dt h1 h2 h3 h4 h5 h6 hr li ol p poem pre ul"
BLOCKS = frozenset(_BLOCKS.split())
_INLINE = """
abbr b bdi bdo big cite code data del dfn em font i ins kbd mark noinclude onlyinclude q rb rp rt ruby s samp small span
strike strong sub sup time tt u var wbr
"""
_TABLE_PARTS = "table caption colgroup col thead tbody tfoot tr th td"

GONE = "\x01"
"""Stands where something was taken out; XML cannot hold it, so that no page has it."""
BREAK = "\x02"
"""A line end in the result that is none in the wikitext, where it could end a heading or a list."""
NOTHING = "\x03"
"""Nothing in the result, but it parts what else would be markup: ``'<nowiki/>'``."""


def _tags(names: frozenset[str]) -> str:
    return rf"(?:{'|'.join(sorted(names))})(?:\s[^<>]*?)?"


_OPENING = re.compile(rf"<!--|<(?=([a-z]+)){_tags(DROPPED | VERBATIM)}(/?)>", re.IGNORECASE)
_CLOSING = {name: re.compile(rf"</{name}\s*>", re.IGNORECASE) for name in DROPPED | VERBATIM}
_FORMATTING = re.compile(rf"</?(?:({_tags(BLOCKS)})|{_tags(DROPPED.union(_INLINE.split()))})/?>", re.IGNORECASE)
_BRACES = re.compile(r"\{{2,}|\}{2,}")
_TABLE = re.compile(r"^[ \t:*#;]*(\{\|)|^[ \t]*\|\}(?!\})", re.MULTILINE)
_HTML_TABLE = re.compile(r"(<table(?:\s[^<>]*)?>)|</table\s*>", re.IGNORECASE)
_TABLE_TAG = re.compile(rf"</?{_tags(frozenset(_TABLE_PARTS.split()))}/?>", re.IGNORECASE)
_OPEN_TABLE = re.compile(r"^[ \t:*#;]*\{\|", re.MULTILINE)
_NO_TAG = re.compile(r"<(?![^<>]*>)")
_LIST = re.compile(r"^[*#:]++(?!;)", re.MULTILINE)
_SIGN = re.compile(r"(&#?\w+;)|[^\w \t.,/]|_")


def prepared(text: str) -> str:
    """Wikitext without all that; GONE, BREAK and NOTHING stand where something was."""
    text = _FORMATTING.sub(_instead, _without_elements(text))
    text = _without_nested(_without_templates(text), _TABLE)
    text = _TABLE_TAG.sub(BREAK, _without_nested(text, _HTML_TABLE))
    # What is still there was never closed. It shows as it is, and the parser would look far for its end.
    text = _NO_TAG.sub("&lt;", _OPEN_TABLE.sub("|", text.replace("{{", "&#123;" * 2)))
    return _LIST.sub(BREAK, text)


def _instead(tag: re.Match[str]) -> str:
    """What a tag leaves: a line that begins with one begins with no list, heading or table."""
    if tag[1]:
        return BREAK
    first = not tag.start() or tag.string[tag.start() - 1] == "\n"
    return NOTHING if first and "include" not in tag[0].lower() else ""  # MediaWiki takes noinclude out before it looks


def verbatim(name: str, content: str) -> str:
    """The content of an element of VERBATIM with all that could be markup as entities."""
    if not content:
        return NOTHING
    escaped = _SIGN.sub(lambda sign: sign[1] or f"&#{ord(sign[0])};", content)
    return BREAK + escaped + BREAK if name in BLOCKS else escaped


def _without_elements(text: str) -> str:
    """``text`` without comments and elements of DROPPED; those of VERBATIM as ``verbatim`` has them."""
    pieces: list[str] = []
    at, unclosed = 0, set[str]()
    while tag := _OPENING.search(text, at):
        name, start = (tag[1] or "").lower(), tag.end()
        end, after = (start, start) if tag[2] else _end(text, start, name, unclosed)
        if end < 0:
            pieces.append(text[at:start])
        else:
            pieces += text[at : tag.start()], _shown(name, text[start:end])
        at = after
    return "".join((*pieces, text[at:]))


def _end(text: str, at: int, name: str, unclosed: set[str]) -> tuple[int, int]:
    """End of the content of a comment or an element from ``at``, -1 where it is not closed; and where to go on."""
    if not name:
        end = text.find("-->", at)
        return (end, end + 3) if end >= 0 else (len(text), len(text))
    closing = None if name in unclosed else _CLOSING[name].search(text, at)
    if closing is None:
        unclosed.add(name)  # so that it is looked for once, not from every place
        return -1, at
    return closing.span()


def _shown(name: str, content: str) -> str:
    if name in VERBATIM:
        return verbatim(name, content)
    return GONE if name else ""


def _without_templates(text: str) -> str:
    """``text`` without what stands between matching braces, two or more: templates and their arguments."""
    opened: list[tuple[int, int]] = []  # place and length of the runs that are not closed yet
    spans: list[tuple[int, int]] = []
    for braces in _BRACES.finditer(text):
        place, length = braces.span()[0], len(braces[0])
        if text[place] == "{":
            opened.append((place, length))
            continue
        while length > 1 and opened:
            start, open_length = opened.pop()
            matched = min(open_length, length)
            place, length, open_length = place + matched, length - matched, open_length - matched
            _add_span(spans, start + open_length, place)
            if open_length > 1:
                opened.append((start, open_length))
    return _cut(text, spans)


def _without_nested(text: str, brackets: re.Pattern[str]) -> str:
    """``text`` without what stands between brackets that match; group 1 of ``brackets`` is an opening one."""
    opened: list[int] = []
    spans: list[tuple[int, int]] = []
    for bracket in brackets.finditer(text):
        if bracket[1]:
            opened.append(bracket.start(1))
        elif opened:
            _add_span(spans, opened.pop(), bracket.end())
    return _cut(text, spans)


def _add_span(spans: list[tuple[int, int]], start: int, end: int) -> None:
    """Append a span in place of those that lie in it."""
    while spans and spans[-1][0] >= start:
        spans.pop()
    spans.append((start, end))


def _cut(text: str, spans: list[tuple[int, int]]) -> str:
    pieces: list[str] = []
    at = 0
    for start, end in spans:
        pieces += text[at:start], GONE
        at = end
    return "".join((*pieces, text[at:]))
