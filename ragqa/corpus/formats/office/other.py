"""Read RTF, EPUB, Outlook messages, and Word and PowerPoint files from before 2007."""

import re
from collections.abc import Iterator
from typing import Any

from ragqa.corpus.formats.office.content import (
    BOLD_LEVEL,
    Content,
    TextBuilder,
    UnreadableFile,
    choose_title,
    is_bold_heading,
)
from ragqa.corpus.formats.records import format_record

# kreuzberg loads grammars and models from the network for source code and images, so the type is always named.
TYPES = {
    "rtf": "application/rtf",
    "epub": "application/epub+zip",
    "doc": "application/msword",
    "ppt": "application/vnd.ms-powerpoint",
    "msg": "application/vnd.ms-outlook",
}
"""Media type of each kind of file that kreuzberg reads."""
_NOTE_MARK = re.compile(r"\[\^\w+\]")
_LINE_END = re.compile(r"\n|\t\t")
"""Pattern of the end of a paragraph or table row in a Word file from before 2007."""


def read_other(kind: str, data: bytes) -> Content:
    """Return the content of a file of one of the kinds in ``TYPES``, which kreuzberg reads.

    Args:
        kind: kind of the file, a key of ``TYPES``.
        data: bytes of the file.

    Raises:
        UnreadableFile: the file is damaged.
    """
    import kreuzberg

    # Without the option ``ocr``, kreuzberg does not recognize text in pictures.
    config = kreuzberg.ExtractionConfig(use_cache=False, include_document_structure=True, output_format="plain")
    try:
        result = kreuzberg.extract_bytes_sync(data, TYPES[kind], config=config)
    except kreuzberg.KreuzbergError as error:
        raise UnreadableFile(f"damaged: {str(error).splitlines()[0][:200]}") from error
    builder = TextBuilder()
    nodes: Any = result.document["nodes"] if result.document else ()
    lines = set[str]()
    for node in nodes:
        content = node["content"]
        text = content.get("text") or content.get("title") or ""
        if content["node_type"] != "footnote" or not lines.issuperset(text.splitlines()):
            _add_node(builder, node, text, has_lines=kind == "doc")
        lines.update(text.splitlines())  # kreuzberg repeats the text of slides as notes
    if kind == "msg" and not lines - {""}:
        builder.note = "only the head of the message was read: it has no text, or one that cannot be read"
    metadata: dict[str, Any] = dict(result.metadata)
    dates = (metadata.get("modified_at"), metadata.get("created_at"))
    title = choose_title(str(metadata.get("subject" if kind == "msg" else "title") or ""))
    return builder.finish(title, str(next(filter(None, dates), "")))


def _add_node(builder: TextBuilder, node: dict[str, Any], text: str, *, has_lines: bool) -> None:
    """Add a part of a document; with ``has_lines``, each line of its text becomes a paragraph."""
    content = node["content"]
    text = _NOTE_MARK.sub("", text)
    kind = content["node_type"]
    if kind == "heading":
        builder.add_heading(int(content["level"]), text)
    elif kind == "table":
        builder.add_table(list(_iter_rows(content["grid"])))
    elif kind == "paragraph" and is_bold_heading(text) and _is_bold(node, len(text.encode())):
        builder.add_heading(BOLD_LEVEL, text)
    elif kind == "metadata_block":
        fields = {name: value for name, value in content["entries"] if name != "Subject"}
        builder.add_records([format_record([*fields], [*fields.values()])])
    elif has_lines:
        for line in _LINE_END.split(text):
            builder.add_paragraph(line)
    elif kind not in ("image", "group"):
        builder.add_paragraph(text)


def _is_bold(node: dict[str, Any], length: int) -> bool:
    marks = (mark for mark in node.get("annotations") or [] if mark["kind"]["annotation_type"] == "bold")
    return any(mark["start"] == 0 and mark["end"] >= length for mark in marks)


def _iter_rows(grid: dict[str, Any]) -> Iterator[list[str]]:
    rows = dict[int, list[str]]()
    for cell in grid["cells"]:
        rows.setdefault(cell["row"], []).append(cell["content"])
    return (rows[number] for number in sorted(rows))
