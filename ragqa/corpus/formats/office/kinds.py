"""Extract the content of a file, whose bytes determine its kind; suffixes are often wrong."""

import re

from ragqa.corpus.formats.office import images, opendocument, other, pages, sheets, slides, word
from ragqa.corpus.formats.office.content import ENCRYPTED, Content, UnreadableFile
from ragqa.corpus.formats.office.ocr import TextRecognizer
from ragqa.corpus.formats.office.package import Package, read_field

_COMPOUND = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_HEAD_BYTES = 8192
"""Number of first bytes in which a zero byte shows that a file is not text."""
_PDF_HEAD_BYTES = 1024
"""Number of first bytes that must contain ``%PDF-``; some programs write a header before it."""
_STREAMS = {"WordDocument": "doc", "PowerPoint Document": "ppt", "__properties_version1.0": "msg"}
"""Kind of a compound file, by the name of a stream that only this kind has."""
_SHEETS = {"xl/workbook.xml", "xl/workbook.bin"}
_BOOK_TEXT = re.compile(rb"URI=[\"'][^\"']*\.x?html?[\"']", re.IGNORECASE)


def extract_content(data: bytes, recognizer: TextRecognizer | None = None) -> Content:
    """Return the content of an Office file, PDF, e-book or image.

    Args:
        data: bytes of the file.
        recognizer: text recognition for images and scanned pages; None to reject images and leave scanned pages empty.

    Raises:
        UnreadableFile: the file is damaged, encrypted, too large or of another kind.
    """
    if b"%PDF-" in data[:_PDF_HEAD_BYTES]:
        return pages.read_pages(data, recognizer)
    if recognizer and images.is_image(data):
        return images.read_image(data, recognizer)
    if data.startswith(b"PK"):
        return _read_package(data)
    if data.startswith(_COMPOUND):
        return _read_compound(data)
    if data.lstrip()[:5] == rb"{\rtf":
        return other.read_other("rtf", data)
    if b"\0" not in data[:_HEAD_BYTES]:  # for example a page to sign in, saved in place of the file
        raise UnreadableFile("its content is text, not what its suffix says: rename it, for example to .html or .csv")
    raise UnreadableFile("its content does not fit its suffix")


def _read_package(data: bytes) -> Content:
    package = Package(data)
    kind = package.read("mimetype").decode("ascii", "replace").strip()
    if "word/document.xml" in package.names:
        return word.read_word(package)
    if "ppt/presentation.xml" in package.names:
        return slides.read_slides(package)
    if package.names & _SHEETS:
        core = package.parse("docProps/core.xml")
        return sheets.read_sheets(data, package, read_field(core, "title"), read_field(core, "modified"))
    if kind == other.TYPES["epub"]:
        if _BOOK_TEXT.search(package.read("META-INF/encryption.xml")):
            raise UnreadableFile(ENCRYPTED)
        return other.read_other("epub", data)
    if kind.startswith("application/vnd.oasis.opendocument."):
        opendocument.check_encryption(package)
        if "spreadsheet" in kind:
            meta = package.parse("meta.xml")
            return sheets.read_sheets(data, package, read_field(meta, "title"), read_field(meta, "date"))
        return opendocument.read_open_document(package)
    raise UnreadableFile("an archive of an unknown kind: unpack it first")


def _read_compound(data: bytes) -> Content:
    """Return the content of a compound file (Office before 2007, or an Outlook message)."""

    def has_stream(name: str) -> bool:
        return name.encode("utf-16-le") in data

    if has_stream("EncryptedPackage"):
        raise UnreadableFile(ENCRYPTED)
    if has_stream("Workbook") or has_stream("Book\0"):
        return sheets.read_sheets(data)
    for name, kind in _STREAMS.items():
        if has_stream(name):
            return other.read_other(kind, data)
    raise UnreadableFile("an Office file of an unknown kind")
