"""WikiExtractor's output: articles between ``<doc id="…" url="…" title="…">`` and ``</doc>``."""

import re
from collections.abc import Iterator
from html import unescape

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument

BEGINNING = '<doc id="'
_HEAD = re.compile(r'<doc id="([^"]+)"(?: .*?)? title="(.*)">\s*')
_NOT_ESCAPED = re.compile("[<>]|&(?!(?:amp|lt|gt);)")


def read(source: InputFile) -> Iterator[NumberedDocument]:
    """The articles of the file in their order; the body starts after the line that repeats the title.

    Raises BadLine on text outside of an article and on one that does not end, unless bad input is skipped.
    """
    for first, lines, replaced in _articles(source):
        head = _HEAD.fullmatch(lines[0])
        if not lines[0].startswith(BEGINNING):
            source.bad("text outside of <doc …> and </doc>", first)
        elif head is None:
            source.bad("malformed <doc …> line", first)
        elif not _ends(lines[-1]):
            source.bad("<doc …> without </doc>", first)
        else:
            if replaced:
                source.replaced(first)
            yield first, _document(head[1], head[2], lines[1:-1], source.path)


def _articles(source: InputFile) -> Iterator[tuple[int, list[str], bool]]:
    """From each ``<doc …>`` to its ``</doc>``, or what stands outside: first line, lines, bytes replaced."""
    lines: list[str] = []
    first, any_replaced = 0, False
    for number, line, replaced in source.lines():
        if lines and line.startswith(BEGINNING):
            yield first, lines, any_replaced
            lines = []
        if not lines:
            if line.isspace():
                continue
            first, any_replaced = number, False
        lines.append(line)
        any_replaced |= replaced
        if _ends(line):
            yield first, lines, any_replaced
            lines = []
    if lines:
        yield first, lines, any_replaced


def _ends(line: str) -> bool:
    return line.startswith("</doc>") and line.rstrip() == "</doc>"


def _document(identifier: str, title: str, lines: list[str], path: str) -> Document:
    """Titles come with HTML entities, in the attribute and in the line that repeats them.

    Texts have none, except from the newer versions, which escape ``&``, ``<`` and ``>`` throughout.
    """
    repeated = bool(lines) and lines[0].strip() == title.strip()
    opening = lines[0] if repeated else ""
    rest = "".join(lines[1:] if repeated else lines)
    if "&" in rest and not _NOT_ESCAPED.search(rest):
        rest = rest.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return Document(identifier, unescape(title), opening + rest, path, len(opening))
