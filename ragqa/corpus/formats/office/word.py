"""Read Word files (.docx): headings, paragraphs, tables, text boxes and notes."""

import re
from collections.abc import Iterable, Iterator
from xml.etree.ElementTree import Element

from ragqa.corpus.formats.office.content import BOLD_LEVEL, MAX_DEPTH, Content, TextBuilder, is_bold_heading
from ragqa.corpus.formats.office.package import (
    Package,
    find_child,
    get_children,
    get_name,
    get_value,
    iter_named,
    read_field,
)

_LEFT_OUT = ("del", "moveFrom", "Fallback", "txbxContent", "instrText", "delText", "pPr", "rPr")
"""Elements whose text is not part of the paragraph, such as deleted text, text boxes, fields and properties."""
_BREAKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "softHyphen": ""}
_OFF = ("0", "false", "off")


def read_word(package: Package) -> Content:
    """Return the content of a Word file; raise UnreadableFile if a part is damaged."""
    relations = package.read_relations("")
    main = next((name for kind, name in relations.values() if kind == "officeDocument"), "word/document.xml")
    parser = _WordParser(package, main)
    parser.read_blocks(get_children(find_child(package.parse(main), "body")), 0)
    parser.read_margins()
    core = package.parse("docProps/core.xml")
    return parser.builder.finish(read_field(core, "title"), read_field(core, "modified") or read_field(core, "created"))


class _WordParser:
    """Parser that adds the parts of a Word file to a builder."""

    def __init__(self, package: Package, main: str) -> None:
        self.builder = TextBuilder()
        self._package = package
        self._parts = list(package.read_relations(main).values())
        styles = (style for style in self._open("styles") if get_name(style) == "style")
        self._styles = {get_value(style, "styleId"): style for style in styles}
        self._notes = {
            kind: {get_value(note, "id"): note for note in self._open(f"{kind}s")} for kind in ("footnote", "endnote")
        }

    def _open(self, kind: str) -> Element:
        return self._package.parse(next((name for found, name in self._parts if found == kind), ""))

    def read_blocks(self, parent: Iterable[Element], depth: int) -> None:
        """Add paragraphs and tables to the builder, except tables of contents.

        Args:
            parent: element with the paragraphs and tables, or a list of them.
            depth: number of containers around them; above ``MAX_DEPTH``, they are left out.
        """
        if depth > MAX_DEPTH:
            self.builder.note_depth()
            return
        for block in parent:
            name = get_name(block)
            if name == "p":
                self._read_paragraph(block, depth)
            elif name == "tbl":
                self._read_table(block, depth)
            elif name == "sdt" and not _is_contents(block):
                self.read_blocks(get_children(find_child(block, "sdtContent")), depth + 1)
            elif name in ("ins", "moveTo", "customXml", "smartTag"):
                self.read_blocks(block, depth + 1)

    def read_margins(self) -> None:
        """Add running heads and feet of over four words; shorter ones are mostly page numbers."""
        for name in sorted({name for kind, name in self._parts if kind in ("header", "footer")}):
            text = "\n".join(filter(None, (_read_text(part) for part in iter_named(self._package.parse(name), "p"))))
            if len(text.split()) > 4:
                self.builder.end_headings()
                self.builder.add_paragraph(text)

    def _read_paragraph(self, paragraph: Element, depth: int) -> None:
        text = _read_text(paragraph)
        level = self._find_level(paragraph)
        if level < 0:
            return
        if level:
            self.builder.add_heading(level, text)
        elif text and is_bold_heading(text) and not _is_listed(paragraph) and _is_bold(paragraph):
            self.builder.add_heading(BOLD_LEVEL, text)
        else:
            self.builder.add_paragraph(text)
        for part in _iter_visible(paragraph):
            if get_name(part) == "txbxContent":
                self.read_blocks(part, depth + 1)
            elif get_name(part) in ("footnoteReference", "endnoteReference"):
                note = self._notes[get_name(part).removesuffix("Reference")].get(get_value(part, "id"))
                lines = () if note is None else iter_named(note, "p")
                self.builder.add_paragraph(" ".join(map(_read_text, lines)))

    def _find_level(self, paragraph: Element) -> int:
        """Return the level of a heading; 0 for other text, -1 for a line of a table of contents."""
        properties = find_child(paragraph, "pPr")
        style = self._styles.get(get_value(find_child(properties, "pStyle"), "val"))
        outline = get_value(find_child(properties, "outlineLvl"), "val")
        for _ in range(10):  # in a damaged file, styles can be based on each other in a circle
            if outline.isdecimal() and int(outline) < 9:
                return min(int(outline) + 2, BOLD_LEVEL)
            if style is None:
                break
            name = get_value(find_child(style, "name"), "val").lower()
            if name == "title":
                return 1
            if heading := re.fullmatch(r"heading (\d)", name):
                return min(int(heading[1]) + 1, BOLD_LEVEL)
            if name.startswith("toc "):
                return -1
            outline = get_value(find_child(style, "pPr", "outlineLvl"), "val")
            style = self._styles.get(get_value(find_child(style, "basedOn"), "val"))
        return 0

    def _read_table(self, table: Element, depth: int) -> None:
        rows = [row for row in _unwrap(table) if get_name(row) == "tr"]
        cells = [[cell for cell in _unwrap(row) if get_name(cell) == "tc"] for row in rows]
        if max(map(len, cells), default=0) < 2:  # a frame around text
            for row in cells:
                for cell in row:
                    self.read_blocks(cell, depth + 1)
            return
        texts = list[list[str]]()
        for row in cells:
            values = list[str]()
            for cell in row:
                value = "\n".join(filter(None, (_read_text(part) for part in iter_named(cell, "p"))))
                merge = find_child(cell, "tcPr", "vMerge")
                if merge is not None and get_value(merge, "val") != "restart" and texts:
                    value = texts[-1][len(values)] if len(values) < len(texts[-1]) else value
                span = get_value(find_child(cell, "tcPr", "gridSpan"), "val")
                values += [value] * max(1, min(int(span) if span.isdecimal() else 1, 100))
            texts.append(values)
        self.builder.add_table(texts)


def _unwrap(parent: Element) -> Iterator[Element]:
    """Yield an element's children, looking inside content controls and insertions."""
    for child in parent:
        if get_name(child) == "sdt":
            yield from get_children(find_child(child, "sdtContent"))
        elif get_name(child) == "ins":
            yield from child
        else:
            yield child


def _iter_visible(element: Element) -> Iterator[Element]:
    """Yield the elements of a paragraph at any depth, except inside ``_LEFT_OUT`` elements."""
    pending = list(element)[::-1]
    while pending:
        part = pending.pop()
        yield part
        if get_name(part) not in _LEFT_OUT:
            pending += list(part)[::-1]


def _read_text(paragraph: Element) -> str:
    texts = []
    for part in _iter_visible(paragraph):
        name = get_name(part)
        texts.append(part.text or "" if name == "t" else _BREAKS.get(name, ""))
    return "".join(texts).strip()


def _is_bold(paragraph: Element) -> bool:
    runs = [run for run in _iter_visible(paragraph) if get_name(run) == "r" and _read_text(run)]
    marks = [find_child(run, "rPr", "b") for run in runs]
    return bool(runs) and all(mark is not None and get_value(mark, "val") not in _OFF for mark in marks)


def _is_listed(paragraph: Element) -> bool:
    return find_child(paragraph, "pPr", "numPr") is not None


def _is_contents(block: Element) -> bool:
    gallery = find_child(block, "sdtPr", "docPartObj", "docPartGallery")
    return get_value(gallery, "val") == "Table of Contents"
