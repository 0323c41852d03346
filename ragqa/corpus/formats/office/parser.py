"""Read Office files, e-books, PDF and images as documents."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument
from ragqa.corpus.formats.office.content import ENCRYPTED, UnreadableFile
from ragqa.corpus.formats.office.process import EXTRACTOR

SUFFIXES = (
    *(".docx", ".docm", ".dotx", ".doc", ".odt", ".rtf"),
    *(".pptx", ".pptm", ".ppsx", ".ppt", ".odp"),
    *(".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"),
    *(".epub", ".msg", ".pdf"),
)
"""Suffixes of the files to read; the content of a file determines its format."""
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp")
"""Suffixes of images, which are read if ``InputFile.tesseract`` is set."""


def read(file: InputFile) -> Iterator[NumberedDocument]:
    """Yield the file as one document; passage offsets are positions in its extracted text.

    An empty file gives an empty document. An image without text is left out and counted in the report.

    Raises:
        BadInput: in strict mode, the file cannot be read.
        LimitError: the file is longer than MAX_TEXT_BYTES, takes too much time, or has too much text for its size.
    """
    data = file.read_bytes()
    if not data.strip():
        yield 0, Document(file.path, file.make_title(), "", file.path)
        return
    try:
        content = EXTRACTOR.extract(data, file.tesseract, partial(file.on_wait, file.path))
    except UnreadableFile as error:
        name = "PDF" if file.name.lower().endswith(".pdf") else "Office file"
        kind = f"encrypted {name}" if str(error) == ENCRYPTED else "unreadable file"
        file.reject(f"cannot be read: {error}", kind=kind)
        return
    file.budget.spend(len(content.text))
    if not content.text.strip():
        if file.name.lower().endswith(IMAGE_SUFFIXES):  # most photos have no text
            file.problems.report.leave_out(file.path, "image")
            return
        content = replace(content, note=content.note or "no text in it (scanned pages?)")
    if content.note:
        file.problems.report.note(file.path, content.note)
    title = content.title or file.make_title()
    yield 0, Document(file.path, title, content.text, file.path, content.sections, content.unit, date=content.date)
