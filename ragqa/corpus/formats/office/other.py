"""Formats that kreuzberg reads: RTF, EPUB, old Word and PowerPoint files, and messages of Outlook."""

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

# kreuzberg loads grammars and models from the network for source code and images. So the type is never guessed.
TYPES = {
    "rtf": "application/rtf",
    "epub": "application/epub+zip",
    "doc": "application/msword",
    "ppt": "application/vnd.ms-powerpoint",
    "msg": "application/vnd.ms-outlook",
}
"""Media types by kind of file."""
_NOTE_MARK = re.compile(r"\[\^\w+\]")


def read_other(kind: str, data: bytes) -> Content:
    """Return the content of a file of a kind of ``TYPES``."""
    import kreuzberg

    # Without ``ocr`` it reads no text of pictures.
    config = kreuzberg.ExtractionConfig(use_cache=False, include_document_structure=True, output_format="plain")
    try:
        result = kreuzberg.extract_bytes_sync(data, TYPES[kind], config=config)
    except kreuzberg.KreuzbergError as error:
        raise UnreadableFile(f"damaged: {str(error).splitlines()[0][:200]}") from error
    builder = TextBuilder()
    nodes: Any = result.document["nodes"] if result.document else ()
    for node in nodes:
        _add_node(builder, node)
    metadata: dict[str, Any] = dict(result.metadata)
    dates = (metadata.get("modified_at"), metadata.get("created_at"))
    title = choose_title(str(metadata.get("title") or ""))
    return builder.finish(title, str(next(filter(None, dates), "")))


def _add_node(builder: TextBuilder, node: dict[str, Any]) -> None:
    content = node["content"]
    text = _NOTE_MARK.sub("", content.get("text") or "")
    kind = content["node_type"]
    if kind == "heading":
        builder.add_heading(int(content["level"]), text)
    elif kind == "table":
        builder.add_table(list(_iter_rows(content["grid"])))
    elif kind == "paragraph" and is_bold_heading(text) and _is_bold(node, len(text.encode())):
        builder.add_heading(BOLD_LEVEL, text)
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
