"""Read OpenDocument texts and presentations (.odt, .odp)."""

import re
from collections.abc import Iterable
from xml.etree.ElementTree import Element

from ragqa.corpus.formats.office.content import (
    ENCRYPTED,
    MAX_DEPTH,
    Content,
    TextBuilder,
    UnreadableFile,
    choose_title,
    is_bold_heading,
)
from ragqa.corpus.formats.office.package import (
    Package,
    find_child,
    get_children,
    get_name,
    get_value,
    iter_named,
    read_field,
)

_MAX_REPEATS = 100
"""Maximum number of repetitions of a space or a cell; repeated empty cells fill a row to its end."""
_LEFT_OUT = ("tracked-changes", "annotation", "table-of-content", "note-citation", "forms", "sequence-decls")
_SPACES = {"tab": "\t", "line-break": "\n"}


def check_encryption(package: Package) -> None:
    """Raise UnreadableFile if a package is encrypted, or its manifest is damaged."""
    if next(iter_named(package.parse("META-INF/manifest.xml"), "encryption-data"), None) is not None:
        raise UnreadableFile(ENCRYPTED)


def read_open_document(package: Package) -> Content:
    """Return the content of an OpenDocument text or presentation.

    Raises:
        UnreadableFile: a part of the file is damaged.
    """
    root = package.parse("content.xml")
    body = find_child(root, "body")
    is_presentation = find_child(body, "presentation") is not None
    parser = _OpenDocumentParser(TextBuilder("slide" if is_presentation else ""), root)
    for part in get_children(body):
        parser.read_blocks(part, 0)
    meta = package.parse("meta.xml")
    title = choose_title(read_field(meta, "title")) or (parser.builder.first_heading if is_presentation else "")
    return parser.builder.finish(title, read_field(meta, "date") or read_field(meta, "creation-date"))


class _OpenDocumentParser:
    """Parser that adds the content of a file to a builder."""

    def __init__(self, builder: TextBuilder, root: Element) -> None:
        self.builder = builder
        styles = iter_named(root, "style")
        self._parents = {get_value(style, "name"): get_value(style, "parent-style-name") for style in styles}

    def read_blocks(self, parent: Iterable[Element], depth: int) -> None:
        """Add headings, paragraphs, lists, tables and slides to the builder.

        Args:
            parent: element with the blocks, or a list of blocks.
            depth: number of containers around the blocks.
        """
        for block in parent:
            name = get_name(block)
            if name == "h":
                level = get_value(block, "outline-level")
                self.builder.add_heading(min(int(level) if level.isdecimal() else 1, 6) + 1, _read_text(block))
            elif name == "p":
                self._read_paragraph(block, depth)
            elif name == "table":
                self.builder.add_table(_read_rows(block))
            elif name == "page":
                self._read_slide(block, depth)
            elif name in _LEFT_OUT:
                continue
            elif depth < MAX_DEPTH:
                self.read_blocks(block, depth + 1)
            elif len(block):
                self.builder.note_depth()

    def _read_paragraph(self, paragraph: Element, depth: int) -> None:
        style = get_value(paragraph, "style-name")
        if self._parents.get(style, style) == "Title":
            self.builder.add_heading(1, _read_text(paragraph))
        else:
            self.builder.add_paragraph(_read_text(paragraph))
        pending = list(paragraph)[::-1]
        while pending:
            part = pending.pop()
            if get_name(part) in ("note-body", "text-box"):  # read_blocks also finds the boxes within it
                self.read_blocks([part], depth)
            else:
                pending += list(part)[::-1]

    def _read_slide(self, slide: Element, depth: int) -> None:
        titles = [part for part in slide if get_value(part, "class") == "title"] or _guess_title(slide)
        for part in titles:
            self.builder.add_heading(2, " ".join(_read_text(line) for line in iter_named(part, "p")))
        for part in slide:
            if part not in titles:
                self.read_blocks([part], depth + 1)
        self.builder.end_headings()
        self.builder.end_page()


def _guess_title(slide: Element) -> list[Element]:
    """Return the first frame of a slide in a list if it looks like a title; else an empty list.

    A title has one short line, and other frames follow it.
    """
    frames = [part for part in slide if get_name(part) in ("frame", "custom-shape")]
    lines = [_read_text(line) for line in iter_named(frames[0], "p")] if len(frames) > 1 else []
    return frames[:1] if len(lines) == 1 and is_bold_heading(lines[0]) else []


def _read_text(element: Element) -> str:
    """Return the text of a paragraph without its notes, comments and text boxes."""
    parts, pending = list[str](), _list_content(element)[::-1]
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            parts.append(part)
        elif (name := get_name(part)) == "s":
            count = get_value(part, "c")
            parts.append(" " * min(int(count) if count.isdecimal() else 1, _MAX_REPEATS))
        elif name in _SPACES:
            parts.append(_SPACES[name])
        elif name not in (*_LEFT_OUT, "note", "frame"):
            pending += _list_content(part)[::-1]
    # White space around a line end in the XML is layout.
    return re.sub(r"[ \r\n]*\n[ \r\n]*", "\n", "".join(parts)).strip()


def _list_content(element: Element) -> list[Element | str]:
    return [element.text or "", *(part for child in element for part in (child, child.tail or ""))]


def _read_rows(table: Element) -> list[list[str]]:
    rows = list[list[str]]()
    for row in iter_named(table, "table-row"):
        values = list[str]()
        for cell in row:
            if get_name(cell) in ("table-cell", "covered-table-cell"):
                repeats = get_value(cell, "number-columns-repeated")
                text = "\n".join(filter(None, (_read_text(part) for part in cell.iter() if get_name(part) in "ph")))
                values += [text] * max(1, min(int(repeats) if repeats.isdecimal() else 1, _MAX_REPEATS))
        rows.append(values)
    return rows
