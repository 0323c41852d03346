"""Interface of the format readers: the opened file, its documents, the report of problems.

A reader is a function ``read(file: InputFile) -> Iterator[NumberedDocument]``. It calls ``file.reject`` for a malformed
record, and ``file.note_undecodable`` for bytes that are not valid text.
"""

import codecs
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from io import BufferedReader, BytesIO
from pathlib import PurePath

from ragqa.corpus.formats.limits import MAX_RECORD_BYTES, MAX_TEXT_BYTES, ExpansionBudget, check_size
from ragqa.errors import BadInput, BadLine, MissingExtra
from ragqa.terminal import to_one_line
from ragqa.text import format_count

MAX_NOTES = 20
"""Maximum number of problems that a report describes; further problems are only counted."""
READ_ERRORS = (OSError, EOFError, lzma.LZMAError, zlib.error, tarfile.TarError, MemoryError)
"""Errors raised while reading a file that is damaged, cut short, gone or too large."""
_CHUNK = 1 << 20
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True, slots=True)
class Document:
    """Text with a title: a whole file, or a record of a larger file."""

    id: str
    """Id of the record, or ``path`` if the whole file is the document."""
    title: str
    text: str
    path: str
    """Path of the file, or archive/member; absolute in an index."""
    body: int = 0
    """Offset of the body in ``text``, in characters; the title line before it is not indexed."""


NumberedDocument = tuple[int, Document]
"""Number of a document's first line, from 1 (0 if the document is the whole file), and the document."""


@dataclass
class CorpusReport:
    """Counts of documents and files that were read or left out; they grow during reading."""

    documents: int = 0
    """Number of documents read."""
    duplicates: int = 0
    """Number of documents left out because an earlier document has the same title and text."""
    empty: int = 0
    """Number of documents left out because their body has only white space."""
    undecodable: int = 0
    """Number of files or records in which undecodable bytes were replaced by U+FFFD."""
    binary: int = 0
    """Number of files left out because they are binary, of an unknown type, or not regular files."""
    redirects: int = 0
    """Number of wiki pages left out because they only redirect to another page."""
    disambiguations: int = 0
    """Number of wiki pages left out because they only list the meanings of their title."""
    other_pages: int = 0
    """Number of wiki pages left out because they are not articles: talk pages, templates and others."""
    bad: int = 0
    """Number of malformed files and records left out because of ``skip_bad``."""
    bytes_read: int = 0
    """Number of bytes read so far; for data sets of the hub, number of characters."""
    notes: list[str] = field(default_factory=list)
    """The first problems, each as ``path[:line]: problem``."""

    def describe_problems(self) -> list[str]:
        """Return lines with the counts of input left out or repaired, and with the first problems."""
        counts = {k: v for k, v in vars(self).items() if isinstance(v, int) and k not in ("documents", "bytes_read")}
        listed = ", ".join(format_count(count, name.replace("_", " ")) for name, count in counts.items() if count)
        return [f"left out or repaired: {listed}"] * bool(listed) + [f"  {to_one_line(note)}" for note in self.notes]

    def note(self, where: str, problem: str) -> None:
        """Add a problem to ``notes``, unless ``notes`` is full.

        Args:
            where: path of the file, and the line if known, as ``path:line``.
            problem: description of the problem.
        """
        if len(self.notes) < MAX_NOTES:
            self.notes.append(f"{where}: {problem}")


@dataclass(frozen=True)
class ProblemHandler:
    """Policy for bad input: raise an error, or count the problem in the report and go on."""

    report: CorpusReport
    skip_bad: bool

    def reject(self, path: str, problem: str, line: int = 0) -> None:
        """Raise an error for a malformed file or record, or count it if bad input is skipped.

        Args:
            path: path of the file.
            problem: reason why the input is malformed.
            line: number of the record's first line; 0 for the whole file.

        Raises:
            BadLine: a record is malformed, and bad input is not skipped.
            BadInput: a whole file is malformed, and bad input is not skipped.
        """
        where = _format_place(path, line)
        if not self.skip_bad:
            raise (BadLine if line else BadInput)(f"{where}: {problem} (fix it, or skip such input with --skip-bad)")
        self.report.bad += 1
        self.report.note(where, problem)

    def note_not_text(self, path: str, problem: str) -> None:
        """Count and note a file that is left out because it holds no text."""
        self.report.binary += 1
        self.report.note(path, problem)


@dataclass(frozen=True)
class InputFile:
    """Opened file or member of an archive, with its names and the handler of its problems."""

    path: str
    """Path that reports and documents show."""
    name: str
    """File name without a compression suffix, from which format and title are derived."""
    stream: BufferedReader
    problems: ProblemHandler
    budget: ExpansionBudget = field(default_factory=ExpansionBudget)
    """Budget of bytes to which the file can still expand; all members of an archive share it."""

    def make_title(self) -> str:
        """Return a title made of the file's name: its stem with spaces for ``-`` and ``_``."""
        return PurePath(self.name).stem.replace("-", " ").replace("_", " ").strip()

    def read_text(self) -> str:
        """Return the decoded content; undecodable bytes are replaced and noted in the report."""
        encoding = self._skip_byte_order_mark()
        text, is_replaced = _decode(self.read_bytes(), encoding)
        if is_replaced:
            self.note_undecodable()
        return text

    def read_bytes(self) -> bytes:
        """Return the whole content of the file.

        Raises:
            LimitError: the content is longer than MAX_TEXT_BYTES.
        """
        data = BytesIO()
        while chunk := self.stream.read(_CHUNK):
            data.write(chunk)
            check_size(data.tell(), MAX_TEXT_BYTES, "its text")
        return data.getvalue()

    def iter_lines(self) -> Iterator[tuple[int, str, bool]]:
        """Yield the number (from 1) and text of each line, and True if bytes were replaced."""
        encoding = self._skip_byte_order_mark()
        if encoding == "utf-8":
            for number, line in enumerate(iter(partial(self.stream.readline, MAX_RECORD_BYTES + 1), b""), 1):
                if len(line) > MAX_RECORD_BYTES:
                    check_size(len(line), MAX_RECORD_BYTES, f"line {number}")
                yield number, *_decode(line, encoding)
        else:
            for number, text in enumerate(_iter_wide_lines(self.stream, encoding), 1):
                yield number, text, "\ufffd" in text

    def reject(self, problem: str, line: int = 0) -> None:
        """Reject the file, or its record at ``line``; see ``ProblemHandler.reject``."""
        self.problems.reject(self.path, problem, line)

    def reject_without_extra(self, extra: str, error: ImportError) -> None:
        """Reject the file because the extra of ragqa that its format needs is not installed.

        Raises:
            MissingExtra: bad input is not skipped.
        """
        missing = MissingExtra(f"reading {self.path}", extra)
        if not self.problems.skip_bad:
            raise missing from error
        self.reject(str(missing))

    def note_undecodable(self, line: int = 0) -> None:
        """Note in the report that undecodable bytes of the file, or of a record, were replaced."""
        self.problems.report.undecodable += 1
        self.problems.report.note(_format_place(self.path, line), "invalid bytes were replaced by U+FFFD")

    def _skip_byte_order_mark(self) -> str:
        encoding, length = detect_encoding(self.stream.peek(4))
        self.stream.read(length)
        return encoding


def detect_encoding(head: bytes) -> tuple[str, int]:
    """Return the encoding of a text by its first bytes, and the size of its byte order mark."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return encoding, len(mark)
    return "utf-8", 0


def describe_error(error: Exception) -> str:
    """Return a one-line message for one of ``READ_ERRORS``."""
    if isinstance(error, MemoryError):
        return "it needs more memory than there is"
    system = error.strerror if isinstance(error, OSError) else None
    return str(system or error or type(error).__name__)


def _format_place(path: str, line: int) -> str:
    return f"{path}:{line}" if line else path


def _iter_wide_lines(stream: BufferedReader, encoding: str) -> Iterator[str]:
    """Yield the lines of a UTF-16 text, in which a line end has two bytes."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    pieces: list[str] = []  # pieces of the line that has not ended yet
    while data := stream.read(_CHUNK):
        first, *lines = decoder.decode(data).split("\n")
        pieces.append(first)
        check_size(sum(map(len, pieces)), MAX_RECORD_BYTES, "a line")
        if lines:
            yield "".join((*pieces, "\n"))
            *whole, rest = lines
            yield from (f"{line}\n" for line in whole)
            pieces = [rest]
    if rest := "".join(pieces) + decoder.decode(b"", final=True):
        yield rest


def _decode(data: bytes, encoding: str) -> tuple[str, bool]:
    try:
        return data.decode(encoding), False
    except UnicodeDecodeError:
        return data.decode(encoding, errors="replace"), True
