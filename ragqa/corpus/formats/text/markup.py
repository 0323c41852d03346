"""Read reStructuredText, AsciiDoc, Org and LaTeX: the text of the file, with its headings.

The text is not changed, so passage offsets are positions in the file.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePath

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument
from ragqa.corpus.formats.front_matter import parse_date
from ragqa.corpus.formats.markdown import CLOSING_HASHES, HEADING
from ragqa.corpus.formats.outline import MAX_HEADING_CHARACTERS, Outline

Mark = tuple[int, str, int, int]
"""Level, text, start and end (exclusive) of a heading; level 0 marks a part to leave out."""
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_OPTION = r"(?:\[[^\]\n]{0,300}\])?"
_BRACES = r"\{((?:[^{}\n]|\{[^{}\n]{0,300}\}){0,300})\}"
_TEX_LEVELS = ("part", "chapter", "section", "subsection", "subsubsection", "paragraph", "subparagraph")
_TEX_HEADING = re.compile(rf"[ \t]*\\({'|'.join(_TEX_LEVELS)})\*?{_OPTION}{_BRACES}")
_TEX_MARKUP = re.compile(r"\\[a-zA-Z]+\*?|[{}~]|\\\\")
_RST_LINE = re.compile(r"([!-/:-@\[-`{-~])\1+[ \t]*$")


def find_marks(text: str, start: int, end: int, heading: re.Pattern[str], block: re.Pattern[str]) -> Iterator[Mark]:
    """Yield the headings in the characters ``start`` to ``end`` (exclusive) of a text.

    Args:
        text: text of the file.
        start: first character.
        end: character after the last.
        heading: pattern of a heading line; the length of its first group is the level, the second group is the text.
        block: pattern of the lines before and after a block of code, in which no line is a heading.
    """
    inside = ""
    for line in _LINE.finditer(text, start, end):
        content = line[0].rstrip("\r\n")
        if opening := block.match(content):
            mark = opening[0].lower().replace("end", "begin")
            inside = "" if inside == mark else inside or mark
        elif not inside and (found := heading.match(content)):
            yield len(found[1]), found[2] or "", line.start(), line.end()


def find_markdown_headings(text: str, start: int, end: int) -> Iterator[Mark]:
    """Yield the Markdown headings (``# …``) of a text; arguments as for ``find_marks``."""
    for level, title, first, after in find_marks(text, start, end, HEADING, re.compile(r"[ \t]*(?:```|~~~)")):
        yield level, CLOSING_HASHES.sub("", title).strip(), first, after


def _find_rst_marks(text: str) -> Iterator[Mark]:
    """Yield the underlined headings of a text in reStructuredText.

    The first style of underlining has level 1, the second level 2, and so on, in the order of the text.
    """
    kinds, before = list[tuple[str, bool]](), [(0, 0, ""), (0, 0, "")]  # the two lines before
    for line in _LINE.finditer(text):
        content = line[0].rstrip("\r\n")
        (first, _, above), (start, _, title) = before
        name = title.strip()
        if name and len(content.rstrip()) >= len(name) and _RST_LINE.match(content) and not _RST_LINE.match(title):
            has_line_above = above[:1] == content[0] and bool(_RST_LINE.match(above))
            if has_line_above or not title[0].isspace():
                kind = (content[0], has_line_above)
                kinds += [kind] * (kind not in kinds)
                yield kinds.index(kind) + 1, name, first if has_line_above else start, line.end()
                before = [(0, 0, ""), (0, 0, "")]
                continue
        before = [before[1], (line.start(), line.end(), content)]


def _find_tex_marks(text: str) -> Iterator[Mark]:
    """Yield the headings of a LaTeX file, and marks of level 0 for parts to leave out.

    These parts are lines of comments and the text outside of the environment ``document``.
    """
    beginning, ending = text.find("\\begin{document}"), text.find("\\end{document}")
    start = text.find("\n", beginning) + 1 or len(text) if beginning >= 0 else 0
    end = ending if ending >= start else len(text)
    yield 0, "", 0, start
    for line in _LINE.finditer(text, start, end):
        if found := _TEX_HEADING.match(line[0]):
            level = _TEX_LEVELS.index(found[1]) + 2  # no section is the title
            yield level, _TEX_MARKUP.sub(" ", found[2]), line.start(), line.start() + found.end()
        elif line[0].lstrip().startswith("%"):
            yield 0, "", line.start(), line.end()
    yield 0, "", end, len(text)


@dataclass(frozen=True)
class _Markup:
    find_marks: Callable[[str], Iterator[Mark]]
    """Function that yields the marks of a text in order."""
    title: re.Pattern[str] | None = None
    date: re.Pattern[str] | None = None
    """Patterns of ``title`` and ``date``; the first group is the value. None if the language has no such field."""


def _make_org_pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"^#\+{name}:[ \t]*<?([^\n>]+)", re.IGNORECASE | re.MULTILINE)


_ORG_HEADING = re.compile(r"(\*{1,8})[ \t]+(?:(?:TODO|DONE)[ \t]+)?(\S.*?)(?:[ \t]+:[\w@#%:]+:)?[ \t]*$")
_ORG_BLOCK = re.compile(r"[ \t]*#\+(?:begin|end)_\w+", re.IGNORECASE)
_ORG_KEYWORD = re.compile(r"[ \t]*#\+\w+:")


def _find_org_marks(text: str) -> Iterator[Mark]:
    """Yield an Org file's headings, after a mark of level 0 for its keywords (``#+TITLE:``)."""
    start = 0
    for line in _LINE.finditer(text):
        if line[0].strip() and not _ORG_KEYWORD.match(line[0]):
            break
        start = line.end()
    yield 0, "", 0, start
    yield from find_marks(text, start, len(text), _ORG_HEADING, _ORG_BLOCK)


_ADOC_HEADING = re.compile(r"(={1,6})[ \t]+(\S.*?)[ \t]*$")
_ADOC_BLOCK = re.compile(r"(?:-{4}|\.{4}|\+{4}|/{4}|```)")
_ADOC = _Markup(lambda text: find_marks(text, 0, len(text), _ADOC_HEADING, _ADOC_BLOCK))
_MARKUPS = {
    ".rst": _Markup(_find_rst_marks),
    ".adoc": _ADOC,
    ".asciidoc": _ADOC,
    ".org": _Markup(_find_org_marks, _make_org_pattern("title"), _make_org_pattern("date")),
    ".tex": _Markup(_find_tex_marks, re.compile(rf"\\title{_OPTION}{_BRACES}"), re.compile(r"\\date\{([\d-]{10})\}")),
}
SUFFIXES = tuple(_MARKUPS)
"""Suffixes of the files that ``read`` can read."""


def read(file: InputFile) -> Iterator[NumberedDocument]:
    """Yield the file as one document with its headings.

    Raises:
        LimitError: as for ``InputFile.read_bytes``.
    """
    text, outline = file.read_text(), Outline()
    markup = _MARKUPS[PurePath(file.name).suffix.lower()]
    for level, heading, start, end in markup.find_marks(text):
        if not level:
            outline.skip(start, end)
        elif len(heading) <= MAX_HEADING_CHARACTERS:
            outline.add_heading(level, heading, start, end)
    title, date = _find_field(markup.title, text), _find_field(markup.date, text)
    title = " ".join(_TEX_MARKUP.sub(" ", title).split())
    sections = outline.finish(text)
    name = title or outline.title or file.make_title()
    yield 0, Document(file.path, name, text, file.path, sections, "line", date=parse_date(date))


def _find_field(pattern: re.Pattern[str] | None, text: str) -> str:
    match = pattern.search(text) if pattern else None
    return match[1] if match else ""
