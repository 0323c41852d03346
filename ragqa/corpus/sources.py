"""Documents out of files, folders and archives: one at a time, each text and each id once."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from io import BufferedReader
from pathlib import Path

from ragqa.corpus import hub
from ragqa.corpus.digests import DigestSet
from ragqa.corpus.formats.base import UNREADABLE, CorpusReport, Document, InputFile, ProblemHandler, reason_of
from ragqa.corpus.formats.registry import BUFFER, read_input
from ragqa.corpus.walk import check_paths, get_file_size, walk_files

__all__ = ["CorpusReport", "Document", "count_input_bytes", "read_documents", "to_document_id"]

MAX_CHARACTERS = 500_000_000
"""Longest document: of a text no longer, offsets in characters and in UTF-8 fit into 32 bits."""
_VISIBLE = re.compile(r"\S")
_SURROGATE = re.compile("[\ud800-\udfff]")


def count_input_bytes(paths: Sequence[Path]) -> int:
    """Bytes, as they lie on disk, of all files that ``read_documents`` looks at; of the hub it knows nothing.

    Raises BadInput where a path does not exist.
    """
    check_paths(paths)
    return sum(get_file_size(path) for path in walk_files(paths, on_error=lambda error: None))


def read_documents(
    paths: Sequence[Path],
    *,
    skip_bad: bool = False,
    report: CorpusReport | None = None,
    left_out: Callable[[Document], object] | None = None,
) -> Iterator[Document]:
    """Documents of files and folders, one at a time, always in the same order.

    A path that begins with ``hf:`` names a data set of the Hugging Face hub (``ragqa.corpus.hub``). Of a file, the
    suffix tells the format: ``.txt``, ``.md``, ``.markdown``, ``.html``, ``.htm``, ``.pdf``, ``.jsonl``,
    ``.tsv`` (DPR's passages) and ``.tar`` (its members), each also compressed as ``.xz``, ``.gz``, ``.bz2``, and
    ``.arrow`` and ``.parquet``, tables with columns id, title and text. Where it tells nothing the first bytes
    do: WikiExtractor's output, Wikipedia's XML dumps and PDF under any name; JSON lines and plain text under a
    name without a suffix. Text is UTF-8, or UTF-16 with a byte order mark, and is kept as it is: line ends and
    control characters too. What is binary, of no known type, empty, or there twice is left out and counted in
    ``report``; ``left_out`` is called with documents that are empty or there twice.

    Raises BadInput on a file that cannot be read, BadLine on a malformed record and on an id that belongs
    to another text already, MissingExtra on a PDF without the extra ``docs``, on a dump without
    ``wiki`` and on a name of the hub without ``torch``; with ``skip_bad`` such input is left out, counted and
    noted instead.
    """
    check_paths(paths)
    intake = ProblemHandler(CorpusReport() if report is None else report, skip_bad)
    return _unique(paths, intake, left_out or (lambda document: None))


def _unique(
    paths: Sequence[Path], intake: ProblemHandler, left_out: Callable[[Document], object]
) -> Iterator[Document]:
    report = intake.report
    seen = DigestSet()
    for source, line, document in _files(paths, intake):
        if _VISIBLE.search(document.text, document.body) is None:
            report.empty += 1
            left_out(_without_surrogates(document))
            continue
        try:
            text, identifier = _digests(document)
        except UnicodeEncodeError:  # half of a surrogate pair: JSON and PDF can hold it, UTF-8 cannot
            source.replaced(line)
            document = _without_surrogates(document)
            text, identifier = _digests(document)
        if text in seen:
            report.duplicates += 1
            left_out(document)
        elif identifier in seen:
            source.bad(f"the id {document.id[:80]!r} belongs to another text already", line)
        elif len(document.text) > MAX_CHARACTERS:
            source.bad(f"longer than {MAX_CHARACTERS:,} characters: split it", line)
        else:
            seen.add(text)
            seen.add(identifier)
            report.documents += 1
            yield document


def _files(paths: Sequence[Path], intake: ProblemHandler) -> Iterator[tuple[InputFile, int, Document]]:
    """The documents of each file in turn; counts its bytes, and reports it where it cannot be read."""
    for path in walk_files(paths, on_error=lambda error: intake.bad(_shown(error.filename), _reason(error))):
        if hub.is_hub(path):
            yield from hub.read(path, intake)
            continue
        end = intake.report.bytes_read + get_file_size(path)
        try:
            yield from _file(path, intake)
        except UNREADABLE as error:
            intake.bad(_shown(path), _reason(error))
        intake.report.bytes_read = end


def _file(path: Path, intake: ProblemHandler) -> Iterator[tuple[InputFile, int, Document]]:
    if not path.is_file():  # a pipe would be waited for, a link may lead nowhere
        intake.not_text(_shown(path), "not a file")
        return
    before = intake.report.bytes_read
    with path.open("rb", buffering=0) as raw:
        source = InputFile(_shown(path), path.name, BufferedReader(raw, BUFFER), intake)
        for record in read_input(source):
            intake.report.bytes_read = before + raw.tell()
            yield record


def _reason(error: Exception) -> str:
    return f"cannot be read: {reason_of(error)}"


def _shown(path: str | Path) -> str:
    """A path as text that can be written: a file's name need not be valid UTF-8."""
    return os.fsencode(path).decode(errors="replace")


def to_document_id(name: str) -> str:
    """What a document's id, or the path of a file, is once it has been read."""
    try:
        return _shown(name)
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", name)


def _digests(document: Document) -> tuple[bytes, bytes]:
    """16 bytes that stand for title and text, and 16 for the id within its file: many files count from 1."""
    text = blake2b(f"{len(document.title)} {document.title}".encode(), digest_size=16, person=b"text")
    text.update(document.text.encode())
    within = f"{document.path}\0{document.id}".encode()
    return text.digest(), blake2b(within, digest_size=16, person=b"id").digest()


def _without_surrogates(document: Document) -> Document:
    fields = (document.id, document.title, document.text)
    identifier, title, text = (_SURROGATE.sub("\ufffd", field) for field in fields)
    return replace(document, id=identifier, title=title, text=text)
