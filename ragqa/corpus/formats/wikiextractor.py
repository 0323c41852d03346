"""Read WikiExtractor's output: articles between ``<doc id="…" title="…">`` and ``</doc>``."""

import re
from collections.abc import Iterator
from html import unescape

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument, Section
from ragqa.corpus.formats.limits import MAX_RECORD_BYTES, check_size

_BEGINNING = '<doc id="'
_ID = re.compile(r'<doc id="([^"]+)"(?= )')
_TITLE, _HEAD_END = ' title="', '">'
_NOT_ESCAPED = re.compile("[<>]|&(?!(?:amp|lt|gt);)")


def read(file: InputFile) -> Iterator[NumberedDocument]:
    """Yield the articles of the file as documents.

    A first line that repeats the title of its article is left out of the section.

    Raises:
        BadLine: in strict mode, text is outside of an article, or an article is malformed or has no end.
        LimitError: an article is longer than MAX_RECORD_BYTES, or as for ``InputFile.iter_lines``.
    """
    for first, lines, is_replaced in _iter_articles(file):
        head = _parse_head(lines[0])
        if not lines[0].startswith(_BEGINNING):
            file.reject("text outside of <doc …> and </doc>", first)
        elif head is None:
            file.reject("malformed <doc …> line", first)
        elif not _is_end(lines[-1]):
            file.reject("<doc …> without </doc>", first)
        else:
            if is_replaced:
                file.note_undecodable(first)
            yield first, _make_document(*head, lines[1:-1], file.path)


def _parse_head(line: str) -> tuple[str, str] | None:
    """Return the id and title in a ``<doc …>`` line; None if the line is malformed."""
    # A title can contain quotes. One pattern for both would take quadratic time on ' title="' repeated.
    identifier, line = _ID.match(line), line.rstrip()
    title = line.find(_TITLE, identifier.end()) + len(_TITLE) if identifier else 0
    end = len(line) - len(_HEAD_END)
    if identifier is None or title < len(_TITLE) or end < title or not line.endswith(_HEAD_END):
        return None
    return identifier[1], line[title:end]


def _iter_articles(file: InputFile) -> Iterator[tuple[int, list[str], bool]]:
    """Yield each article as its first line number, its lines, and True if bytes were replaced.

    Text outside of articles is yielded like an article.
    """
    lines: list[str] = []
    first, any_replaced, size = 0, False, 0
    for number, line, is_replaced in file.iter_lines():
        if lines and line.startswith(_BEGINNING):
            yield first, lines, any_replaced
            lines = []
        if not lines:
            if line.isspace():
                continue
            first, any_replaced, size = number, False, 0
        lines.append(line)
        size += len(line)
        if size > MAX_RECORD_BYTES:
            check_size(size, MAX_RECORD_BYTES, f"the article in line {first}")
        any_replaced |= is_replaced
        if _is_end(line):
            yield first, lines, any_replaced
            lines = []
    if lines:
        yield first, lines, any_replaced


def _is_end(line: str) -> bool:
    return line.startswith("</doc>") and line.rstrip() == "</doc>"


def _make_document(identifier: str, title: str, lines: list[str], path: str) -> Document:
    is_repeated = bool(lines) and lines[0].strip() == title.strip()
    opening = lines[0] if is_repeated else ""
    rest = "".join(lines[1:] if is_repeated else lines)
    # All versions of WikiExtractor escape titles; only newer versions escape texts. They escape every &, < and >, so a
    # single unescaped character shows that the text is not escaped.
    if "&" in rest and not _NOT_ESCAPED.search(rest):
        rest = rest.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    sections = (Section(len(opening), len(opening) + len(rest)),)
    return Document(identifier, unescape(title), opening + rest, path, sections)
