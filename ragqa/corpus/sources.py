"""Read documents from files, folders and the hub: one at a time, without duplicates."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from io import BufferedReader
from pathlib import Path

from ragqa.artefacts.paths import resolve_input_file
from ragqa.corpus import hub
from ragqa.corpus.digests import DigestSet
from ragqa.corpus.formats.base import (
    EMPTY_FILE,
    READ_ERRORS,
    CorpusReport,
    Document,
    InputFile,
    ProblemHandler,
    WaitHandler,
    describe_error,
    ignore_wait,
)
from ragqa.corpus.formats.containers.tar_archives import BUFFER_BYTES, format_date
from ragqa.corpus.formats.limits import ExpansionBudget, check_size_on_disk
from ragqa.corpus.formats.office.ocr import find_tesseract
from ragqa.corpus.formats.registry import read_input
from ragqa.corpus.walk import check_paths, get_file_size, walk_files
from ragqa.text import replace_surrogates

__all__ = ["CorpusReport", "Document", "count_input_bytes", "read_documents", "to_document_id"]

MAX_CHARACTERS = 500_000_000
"""Maximum length of a document in characters, so that its offsets in UTF-8 bytes fit into 32 bits."""
MAX_TITLE_CHARACTERS = 1_000
"""Maximum length of a title in characters; a longer one is cut, because each passage of a document repeats it."""
MAX_ID_CHARACTERS = 10_000
"""Maximum length of an id in characters; a document with a longer id is malformed. Paths have up to 4,096 bytes."""
_VISIBLE = re.compile(r"\S")


def count_input_bytes(paths: Sequence[Path]) -> int:
    """Return the size in bytes of the files to read; data sets of the hub count as 0.

    Raises:
        BadInput: as for ``check_paths``.
    """
    check_paths(paths)
    return sum(get_file_size(path) for path in walk_files(paths, on_error=lambda error: None))


def read_documents(
    paths: Sequence[Path],
    *,
    strict: bool = False,
    ocr: bool = False,
    report: CorpusReport | None = None,
    on_left_out: Callable[[Document], object] | None = None,
    on_wait: WaitHandler = ignore_wait,
) -> Iterator[Document]:
    """Yield the documents of files, folders and data sets of the hub, always in the same order.

    Empty documents and duplicates are left out. ``ragqa.corpus.formats.registry`` chooses the format of a file. The
    members of tar and zip archives are read like files. Files can be compressed as ``.xz``, ``.gz`` or ``.bz2``. Plain
    text does not change: line ends and control characters stay.

    Args:
        paths: files, folders, or names of data sets ``hf:…`` (see ``ragqa.corpus.hub``).
        strict: True to raise an error for malformed input; by default it is left out or repaired, counted and noted.
        ocr: True to read images and scanned pages with Tesseract.
        report: report that counts the files and documents that were read or left out.
        on_left_out: function called with each document that is left out as empty or as a duplicate.
        on_wait: function called every second while an Office file, a PDF or an image is read.

    Raises:
        BadInput: as for ``check_paths``; with ``ocr``, Tesseract is not installed; with ``strict``, a file cannot be
            read.
        BadLine: with ``strict``, a record is malformed, or an earlier record of the file has its id and another text.
        MissingExtra: with ``strict``, the extra ``wiki`` (for dumps) or ``torch`` (for the hub) is not installed.
    """
    check_paths(paths)
    problems = ProblemHandler(CorpusReport() if report is None else report, strict)
    tesseract = find_tesseract() if ocr else ""
    documents = _read_paths(paths, problems, tesseract, on_wait)
    return _iter_unique(documents, problems.report, on_left_out or (lambda document: None))


def _iter_unique(
    documents: Iterator[tuple[InputFile, int, Document]],
    report: CorpusReport,
    on_left_out: Callable[[Document], object],
) -> Iterator[Document]:
    known = DigestSet()
    for file, line, document in documents:
        if file.date and not document.date:
            document = replace(document, date=file.date)
        if len(document.id) > MAX_ID_CHARACTERS:
            file.reject(f"an id of more than {MAX_ID_CHARACTERS:,} characters", line)
            continue
        if len(document.title) > MAX_TITLE_CHARACTERS:
            document = replace(document, title=document.title[:MAX_TITLE_CHARACTERS])
        if not _has_text(document):
            report.empty += 1
            if document.id == document.path and not line:
                report.leave_out(document.path, EMPTY_FILE)
            on_left_out(_replace_surrogates(document))
            continue
        try:
            text, identifier = _compute_digests(document)
        except UnicodeEncodeError:  # JSON and PDF can contain lone surrogates, which UTF-8 cannot encode
            file.note_undecodable(line)
            document = _replace_surrogates(document)
            text, identifier = _compute_digests(document)
        if text in known:
            report.count_duplicate(document.id, document.path)
            on_left_out(document)
        elif identifier in known:
            file.reject(f"the id {document.id[:80]!r} belongs to another text already", line)
        elif len(document.text) > MAX_CHARACTERS:
            file.reject(f"longer than {MAX_CHARACTERS:,} characters: split it", line)
        else:
            known.add(text)
            known.add(identifier)
            report.documents += 1
            yield document


def _has_text(document: Document) -> bool:
    return any(_VISIBLE.search(document.text, part.start, part.end) for part in document.list_sections())


def _read_paths(
    paths: Sequence[Path], problems: ProblemHandler, tesseract: str, on_wait: WaitHandler
) -> Iterator[tuple[InputFile, int, Document]]:

    def reject(path: str | Path, error: Exception) -> None:
        problems.reject(_as_text(path), f"cannot be read: {describe_error(error)}")

    for path in walk_files(paths, on_error=lambda error: reject(error.filename, error)):
        if hub.is_hub_name(path):
            yield from hub.read_dataset(path, problems)
            continue
        end = problems.report.bytes_read + get_file_size(path)
        try:
            yield from _read_file(path, problems, tesseract, on_wait)
        except READ_ERRORS as error:
            reject(path, error)
        problems.report.bytes_read = end


def _read_file(
    path: Path, problems: ProblemHandler, tesseract: str, on_wait: WaitHandler
) -> Iterator[tuple[InputFile, int, Document]]:
    if not path.is_file():  # a pipe could block forever, and a link can lead nowhere or in a circle
        link = "link to a folder" if path.is_dir() else "broken link"
        problems.report.leave_out(_as_text(path), link if path.is_symlink() else "special file")
        return
    before = problems.report.bytes_read
    check_size_on_disk(path)
    with resolve_input_file(path).open("rb", buffering=0) as raw:
        budget = ExpansionBudget(raw.tell)
        date = format_date(os.fstat(raw.fileno()).st_mtime)
        stream: BufferedReader = BufferedReader(raw, BUFFER_BYTES)
        file = InputFile(_as_text(path), _as_text(path.name), stream, problems, budget, date, tesseract, on_wait)
        for document in read_input(file):
            problems.report.bytes_read = before + raw.tell()
            yield document


def _as_text(path: str | Path) -> str:
    """Return a path with U+FFFD for each byte that is not UTF-8."""
    return os.fsencode(path).decode(errors="replace")


def to_document_id(name: str) -> str:
    """Return an id or path as an index stores it, with U+FFFD for whatever UTF-8 cannot encode."""
    try:
        return _as_text(name)
    except UnicodeEncodeError:
        return replace_surrogates(name)


def _compute_digests(document: Document) -> tuple[bytes, bytes]:
    """Return two digests of 16 bytes: of a document's title and text, and of its path and id."""
    text = blake2b(f"{len(document.title)} {document.title}".encode(), digest_size=16, person=b"text")
    text.update(document.text.encode())
    path_and_id = f"{document.path}\0{document.id}".encode()
    return text.digest(), blake2b(path_and_id, digest_size=16, person=b"id").digest()


def _replace_surrogates(document: Document) -> Document:
    identifier, title, text = map(replace_surrogates, (document.id, document.title, document.text))
    return replace(document, id=identifier, title=title, text=text)
