"""Read PowerPoint files (.pptx): the title, text, tables and notes of each slide."""

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from ragqa.corpus.formats.office.content import Content, TextBuilder, choose_title
from ragqa.corpus.formats.office.package import (
    Package,
    find_child,
    get_name,
    get_relation_id,
    get_value,
    iter_named,
    read_field,
)

_MAIN = "ppt/presentation.xml"
_TITLES = ("title", "ctrTitle")
_TEXTS = ("t", "br")
_LEFT_OUT = ("dt", "ftr", "sldNum", "hdr")
"""Kinds of placeholders whose text is the same on every slide."""


def read_slides(package: Package) -> Content:
    """Return the content of a PowerPoint file; raise UnreadableFile if a part is damaged."""
    relations, builder = package.read_relations(_MAIN), TextBuilder("slide")
    for slide in iter_named(package.parse(_MAIN), "sldId"):
        _, name = relations.get(get_relation_id(slide), ("", ""))
        _read_slide(package, name, builder)
        builder.end_headings()
        builder.end_page()
    core = package.parse("docProps/core.xml")
    title = choose_title(read_field(core, "title")) or builder.first_heading
    return builder.finish(title, read_field(core, "modified") or read_field(core, "created"))


def _read_slide(package: Package, name: str, builder: TextBuilder) -> None:
    shapes = list(_iter_shapes(package.parse(name)))
    for shape in shapes:
        if _get_kind(shape) in _TITLES:
            builder.add_heading(2, " ".join(_iter_paragraphs(shape)))
    for shape in shapes:
        if get_name(shape) == "tbl":
            rows = (row for row in shape if get_name(row) == "tr")
            cells = ([cell for cell in row if get_name(cell) == "tc"] for row in rows)
            builder.add_table([[" ".join(_iter_paragraphs(cell)) for cell in row] for row in cells])
        elif _get_kind(shape) not in (*_TITLES, *_LEFT_OUT):
            for text in _iter_paragraphs(shape):
                builder.add_paragraph(text)
    notes = (target for kind, target in package.read_relations(name).values() if kind == "notesSlide")
    for shape in _iter_shapes(package.parse(next(notes, ""))):
        if _get_kind(shape) == "body":
            for text in _iter_paragraphs(shape):
                builder.add_paragraph(text)


def _iter_shapes(slide: Element) -> Iterator[Element]:
    return (part for part in slide.iter() if get_name(part) in ("sp", "tbl"))


def _get_kind(shape: Element) -> str:
    """Return the type of a placeholder, such as ``title``; empty for other shapes."""
    return get_value(find_child(shape, "nvSpPr", "nvPr", "ph"), "type")


def _iter_paragraphs(shape: Element) -> Iterator[str]:
    for paragraph in iter_named(shape, "p"):
        parts = (
            "\n" if name == "br" else part.text or "" for part in paragraph.iter() if (name := get_name(part)) in _TEXTS
        )
        if text := "".join(parts).strip():
            yield text
