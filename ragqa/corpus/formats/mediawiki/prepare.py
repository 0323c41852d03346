"""Remove comments, elements, templates, tables and tags from wikitext before it is parsed.

The parser's running time can grow faster than the length of the text. This module takes linear time for any text, and
leaves few tokens to the parser.
"""

import re

_DROPPED_NAMES = """
categorytree ce charinsert chem gallery graph hiero imagemap includeonly indicator inputbox mapframe maplink math ref
references score section source syntaxhighlight templatedata templatestyles timeline
"""
DROPPED_TAGS = frozenset(_DROPPED_NAMES.split())
"""Elements whose content is not part of the text."""
VERBATIM_TAGS = frozenset(("nowiki", "pre"))
"""Elements whose content is not wikitext."""
_BLOCK_NAMES = "blockquote br center dd div dl dt h1 h2 h3 h4 h5 h6 hr li ol p poem pre ul"
BLOCK_TAGS = frozenset(_BLOCK_NAMES.split())
"""Elements whose tags begin a new line."""
_INLINE_NAMES = """
abbr b bdi bdo big cite code data del dfn em font i ins kbd mark noinclude onlyinclude q rb rp rt ruby s samp small span
strike strong sub sup time tt u var wbr
"""
_TABLE_NAMES = "table caption colgroup col thead tbody tfoot tr th td"

GAP = "\x01"
"""Mark in place of removed markup; XML cannot contain this character, so no page has it."""
BREAK = "\x02"
"""Mark in place of a line end; a real line end could end a heading or a list too early."""
SEPARATOR = "\x03"
"""Mark between characters that must not form markup together, as in ``'<nowiki/>'``."""


def _make_tag_pattern(names: frozenset[str]) -> str:
    return rf"(?:{'|'.join(sorted(names))})(?:\s[^<>]*?)?"


_OPENING = re.compile(rf"<!--|<(?=([a-z]+)){_make_tag_pattern(DROPPED_TAGS | VERBATIM_TAGS)}(/?)>", re.IGNORECASE)
_CLOSING = {name: re.compile(rf"</{name}\s*>", re.IGNORECASE) for name in DROPPED_TAGS | VERBATIM_TAGS}
_FORMATTING = re.compile(
    rf"</?(?:({_make_tag_pattern(BLOCK_TAGS)})|{_make_tag_pattern(DROPPED_TAGS.union(_INLINE_NAMES.split()))})/?>",
    re.IGNORECASE,
)
_BRACES = re.compile(r"\{{2,}|\}{2,}")
_TABLE = re.compile(r"^[ \t:*#;]*(\{\|)|^[ \t]*\|\}(?!\})", re.MULTILINE)
_HTML_TABLE = re.compile(r"(<table(?:\s[^<>]*)?>)|</table\s*>", re.IGNORECASE)
_TABLE_TAG = re.compile(rf"</?{_make_tag_pattern(frozenset(_TABLE_NAMES.split()))}/?>", re.IGNORECASE)
_OPEN_TABLE = re.compile(r"^[ \t:*#;]*\{\|", re.MULTILINE)
_NO_TAG = re.compile(r"<(?![^<>]*>)")
_LIST = re.compile(r"^[*#:]++(?!;)", re.MULTILINE)
_SIGN = re.compile(r"(&#?\w+;)|[^\w \t.,/]|_")


def remove_markup(text: str) -> str:
    """Return wikitext with simple markup removed, or replaced by the marks of this module."""
    text = _FORMATTING.sub(_replace_tag, _remove_elements(text))
    text = _remove_nested(_remove_templates(text), _TABLE)
    text = _TABLE_TAG.sub(BREAK, _remove_nested(text, _HTML_TABLE))
    # The remaining openings are never closed. They are escaped, so that the parser does not search for their ends.
    text = _NO_TAG.sub("&lt;", _OPEN_TABLE.sub("|", text.replace("{{", "&#123;" * 2)))
    return _LIST.sub(BREAK, text)


def _replace_tag(tag: re.Match[str]) -> str:
    if tag[1]:
        return BREAK
    # A line that begins with a tag must not begin a list, a heading or a table.
    opens_line = not tag.start() or tag.string[tag.start() - 1] == "\n"
    return SEPARATOR if opens_line and "include" not in tag[0].lower() else ""  # MediaWiki removes noinclude first


def escape_verbatim(name: str, content: str) -> str:
    """Return the content of a verbatim element, with entities in place of possible markup.

    BREAK is added before and after the content of a block element. An empty content becomes SEPARATOR.

    Args:
        name: name of the element, in lower case.
        content: text between its tags.
    """
    if not content:
        return SEPARATOR
    escaped = _SIGN.sub(lambda sign: sign[1] or f"&#{ord(sign[0])};", content)
    return BREAK + escaped + BREAK if name in BLOCK_TAGS else escaped


def _remove_elements(text: str) -> str:
    """Remove comments, replace DROPPED_TAGS by GAP, and escape the contents of VERBATIM_TAGS."""
    pieces: list[str] = []
    position, unclosed = 0, set[str]()
    while tag := _OPENING.search(text, position):
        name, start = (tag[1] or "").lower(), tag.end()
        end, after = (start, start) if tag[2] else _find_end(text, start, name, unclosed)
        if end < 0:
            pieces.append(text[position:start])
        else:
            mark = GAP if name else ""  # a comment is removed without a mark
            content = escape_verbatim(name, text[start:end]) if name in VERBATIM_TAGS else mark
            pieces += text[position : tag.start()], content
        position = after
    return "".join((*pieces, text[position:]))


def _find_end(text: str, start: int, name: str, unclosed: set[str]) -> tuple[int, int]:
    """Return the end of the content of a comment or element, and the end of its end tag.

    A comment has an empty name. For an unclosed element, the result is -1 and ``start``; its name is added to
    ``unclosed``. An unclosed comment ends with the text.
    """
    if not name:
        end = text.find("-->", start)
        return (end, end + 3) if end >= 0 else (len(text), len(text))
    closing = None if name in unclosed else _CLOSING[name].search(text, start)
    if closing is None:
        unclosed.add(name)  # searching for the end from every opening would take quadratic time
        return -1, start
    return closing.span()


def _remove_templates(text: str) -> str:
    """Replace templates and arguments, between matching runs of two or more braces, by GAP."""
    open_brackets: list[tuple[int, int]] = []  # place and length of the unclosed runs
    spans: list[tuple[int, int]] = []
    for braces in _BRACES.finditer(text):
        place, length = braces.start(), len(braces[0])
        if text[place] == "{":
            open_brackets.append((place, length))
            continue
        while length > 1 and open_brackets:
            start, open_length = open_brackets.pop()
            matched = min(open_length, length)
            place, length, open_length = place + matched, length - matched, open_length - matched
            spans.append((start + open_length, place))
            if open_length > 1:
                open_brackets.append((start, open_length))
    return _remove_spans(text, spans)


def _remove_nested(text: str, brackets: re.Pattern[str]) -> str:
    """Replace matching brackets and the text between them by GAP.

    Group 1 of the pattern must match opening brackets only.
    """
    open_brackets: list[int] = []
    spans: list[tuple[int, int]] = []
    for bracket in brackets.finditer(text):
        if bracket[1]:
            open_brackets.append(bracket.start(1))
        elif open_brackets:
            spans.append((open_brackets.pop(), bracket.end()))
    return _remove_spans(text, spans)


def _remove_spans(text: str, spans: list[tuple[int, int]]) -> str:
    """Return the text with GAP in place of each outermost span."""
    pieces: list[str] = []
    after = 0
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if start >= after:
            pieces += text[after:start], GAP
            after = end
    return "".join((*pieces, text[after:]))
