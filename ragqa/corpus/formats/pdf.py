"""PDF through pypdf (extra ``docs``): the text of all pages."""

import logging
from collections.abc import Iterator
from io import BytesIO

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument


def read(file: InputFile) -> Iterator[NumberedDocument]:
    """Yield the file as one document; passage offsets are positions in its extracted text.

    Blank lines separate the pages.

    Raises:
        MissingExtra: pypdf is not installed, and bad input is not skipped.
        BadInput: the file cannot be read, and bad input is not skipped.
    """
    try:
        title, text = _extract_text(file.stream.read())
    except ImportError as error:
        file.reject_without_extra("docs", error)
        return
    except Exception as error:  # on a broken file pypdf raises all kinds of errors
        file.reject(f"not a PDF that can be read: {error or type(error).__name__}")
        return
    if not text.strip():
        file.problems.report.note(file.path, "no text in it (scanned pages?)")
    yield 0, Document(file.path, title or file.make_title(), text, file.path)


def _extract_text(data: bytes) -> tuple[str, str]:
    """Return the title and the text of a PDF."""
    from pypdf import PdfReader
    from pypdf.errors import PdfReadError

    # pypdf logs every small departure from the standard, hundreds of lines for some files.
    logging.getLogger("pypdf").setLevel(logging.ERROR)
    reader = PdfReader(BytesIO(data))
    # Many files are encrypted with an empty password, so anybody can read them.
    if reader.is_encrypted and not reader.decrypt(""):
        raise PdfReadError("it is encrypted")
    title = str(reader.metadata.title or "") if reader.metadata else ""
    return title.strip(), "\n\n".join(page.extract_text() for page in reader.pages)
