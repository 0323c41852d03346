"""Read the tags and texts of an HTML page, in linear time on any input.

Python's ``html.parser`` takes quadratic time on unclosed constructs (``<!--``, ``</``, ``<a``; versions of Python
differ), and raises errors on some declarations. This module follows the HTML standard
(https://html.spec.whatwg.org/multipage/parsing.html), but reads an unclosed tag or comment as text.
"""

import re
from collections.abc import Iterator
from html import unescape
from typing import Literal

Token = tuple[Literal["start", "end", "text", "attributes"], str]
"""Kind of a token, and its value: the name of the tag in lower case, the decoded text, or the source of attributes."""

_TAG_NAME = re.compile(r"[a-zA-Z][^\s/>]*+")
_BEFORE_VALUE_OR_END = re.compile(r">|=\s*+[\"']")
_COMMENT_END = re.compile(r"--!?\s*+>")
_WITH_ATTRIBUTES = frozenset(("meta", "td", "th"))
_RAW = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style")}
"""Patterns of the end tags of elements whose content is not HTML."""
# Python refuses to read numbers of thousands of digits; the largest character has seven.
_LONG_NUMBER = re.compile(r"&#(?:0*+[0-9]{8,}+|[xX]0*+[0-9a-fA-F]{8,}+);?")


def iter_tokens(page: str) -> Iterator[Token]:
    """Yield the tags and texts of a page in order, with decoded character references.

    Comments, declarations and the contents of scripts and styles are skipped. If a tag ``meta``, ``td`` or ``th`` has
    attributes, a token ``attributes`` follows its start token.
    """
    scanner = _Scanner(page)
    text_start = position = 0
    while (position := page.find("<", position)) >= 0:
        found = scanner.scan(position)
        if found is None:  # a bare <
            position += 1
            continue
        tokens, end = found
        if position > text_start:
            yield "text", _decode(page[text_start:position])
        yield from tokens
        text_start = position = end
    if text_start < len(page):
        yield "text", _decode(page[text_start:])


def _decode(text: str) -> str:
    return unescape(_LONG_NUMBER.sub("\ufffd", text)) if "&" in text else text


class _Scanner:
    """Scanner of single tags and comments, which searches only once for a missing end."""

    def __init__(self, page: str) -> None:
        self._page = page
        self._last = {sign: page.rfind(sign) for sign in (">", '"', "'", "]]>")}
        self._has_comment_end = True
        self._are_quotes_closed = True

    def scan(self, start: int) -> tuple[list[Token], int] | None:
        """Return the tokens and the end of the tag or comment at ``start``; None for plain text."""
        page = self._page
        if start > self._last[">"]:
            return None
        if page.startswith("<!--", start):
            return self._skip_comment(start)
        if page.startswith("<![CDATA[", start) and start < self._last["]]>"]:
            return [], page.find("]]>", start) + 3
        if page.startswith(("<!", "<?"), start):
            return [], page.find(">", start) + 1
        if page.startswith("</", start):
            name = _TAG_NAME.match(page, start + 2)
            tokens: list[Token] = [("end", name[0].lower())] if name else []
            return tokens, page.find(">", start) + 1
        name = _TAG_NAME.match(page, start + 1)
        return self._scan_start_tag(name[0].lower(), name.end()) if name else None

    def _skip_comment(self, start: int) -> tuple[list[Token], int] | None:
        # "<!-->" and "<!--->" are whole comments.
        end = _COMMENT_END.search(self._page, start + 2) if self._has_comment_end else None
        if end is None:
            self._has_comment_end = False
            return None
        return [], end.end()

    def _scan_start_tag(self, name: str, position: int) -> tuple[list[Token], int]:
        end = self._find_tag_end(position)
        tokens: list[Token] = [("start", name)]
        if name in _WITH_ATTRIBUTES and end - position > 1:
            tokens.append(("attributes", self._page[position : end - 1]))
        if self._page[end - 2] == "/":
            return [*tokens, ("end", name)], end
        if name not in _RAW:
            return tokens, end
        closing = _RAW[name].search(self._page, end)
        return [("start", name)], closing.start() if closing else len(self._page)

    def _find_tag_end(self, start: int) -> int:
        """Return the end (exclusive) of a tag; a ``>`` in a quoted value does not end it."""
        position = start
        while self._are_quotes_closed:
            match = _BEFORE_VALUE_OR_END.search(self._page, position)
            if match is None:  # an unclosed quote; without this flag, each tag would search for its end again
                self._are_quotes_closed = False
            elif match[0] == ">":
                return match.end()
            else:
                quote, position = match[0][-1], match.end()
                if position <= self._last[quote]:
                    position = self._page.index(quote, position) + 1
        return self._page.index(">", start) + 1
