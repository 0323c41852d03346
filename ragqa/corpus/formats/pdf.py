"""PDF through pypdf (extra ``docs``): the text of all pages."""

import logging
from collections.abc import Iterator
from functools import partial
from io import BytesIO

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument
from ragqa.corpus.formats.limits import ExpansionBudget
from ragqa.corpus.formats.time_limit import call_with_time_limit

# pypdf limits the size to which a stream expands, but thousands of pages can share a stream. A page of text has about
# 3 KB and takes 5 to 20 ms, so a normal file needs a tenth of this time.
_FREE_SECONDS = 30.0
_SECONDS_PER_MEGABYTE = 60.0


def read(file: InputFile) -> Iterator[NumberedDocument]:
    """Yield the file as one document; passage offsets are positions in its extracted text.

    Blank lines separate the pages.

    Raises:
        MissingExtra: pypdf is not installed, and bad input is not allowed.
        BadInput: the file cannot be read, and bad input is not allowed.
    """
    data = file.read_bytes()
    try:
        seconds = _FREE_SECONDS + _SECONDS_PER_MEGABYTE * len(data) / 1e6
        title, text = call_with_time_limit(partial(_extract_text, data, file.budget), seconds)
    except ImportError as error:
        file.reject_without_extra("docs", error)
        return
    except Exception as error:  # on a broken file pypdf raises all kinds of errors
        file.reject(f"not a PDF that can be read: {error or type(error).__name__}")
        return
    if not text.strip():
        file.problems.report.note(file.path, "no text in it (scanned pages?)")
    yield 0, Document(file.path, title or file.make_title(), text, file.path)


def _extract_text(data: bytes, budget: ExpansionBudget) -> tuple[str, str]:
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
    texts = []
    for page in reader.pages:
        texts.append(page.extract_text())
        budget.spend(len(texts[-1]))
    return title.strip(), "\n\n".join(texts)
