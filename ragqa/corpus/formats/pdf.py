"""PDF through pypdf (extra ``docs``): the text of all pages."""

import logging
from collections.abc import Iterator
from io import BytesIO

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument
from ragqa.corpus.formats.plain import title_of
from ragqa.errors import MissingExtra


def read(source: InputFile) -> Iterator[NumberedDocument]:
    """The file as one document; its characters are counted in the extracted text, pages between blank lines.

    Raises MissingExtra where pypdf is not installed, unless bad input is skipped.
    """
    try:
        title, text = _extract(source.stream.read())
    except ImportError as error:
        missing = MissingExtra(f"reading {source.path}", "docs")
        if not source.intake.skip_bad:
            raise missing from error
        source.bad(str(missing))
        return
    except Exception as error:  # a broken PDF raises whatever the parser stumbles over
        source.bad(f"not a PDF that can be read: {error or type(error).__name__}")
        return
    if not text.strip():
        source.intake.report.note(source.path, "no text in it (scanned pages?)")
    yield 0, Document(source.path, title or title_of(source), text, source.path)


def _extract(data: bytes) -> tuple[str, str]:
    from pypdf import PdfReader
    from pypdf.errors import PdfReadError

    # pypdf logs every small departure from the standard, hundreds of lines for some files.
    logging.getLogger("pypdf").setLevel(logging.ERROR)
    reader = PdfReader(BytesIO(data))
    # Many files are encrypted with an empty password: anybody may read them.
    if reader.is_encrypted and not reader.decrypt(""):
        raise PdfReadError("it is encrypted")
    title = str(reader.metadata.title or "") if reader.metadata else ""
    return title.strip(), "\n\n".join(page.extract_text() for page in reader.pages)
