"""Interface of the parsers: the opened file, its documents, the report of problems.

A parser is a function ``read(file: InputFile) -> Iterator[NumberedDocument]``. It calls ``file.reject`` for a malformed
record, and ``file.note_undecodable`` for bytes that are not valid text. It can leave ``READ_ERRORS`` to its caller.
"""

import codecs
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from io import BufferedReader, BytesIO
from pathlib import PurePath

from ragqa.corpus.formats.encodings import choose_encoding, decode, detect_encoding
from ragqa.corpus.formats.limits import MAX_RECORD_BYTES, MAX_TEXT_BYTES, ExpansionBudget, check_size
from ragqa.errors import BadInput, BadLine, MissingExtra
from ragqa.terminal import to_one_line
from ragqa.text import format_count

MAX_NOTES = 20
"""Maximum number of problems that a report describes; further problems are only counted."""
MAX_PATHS = 100
"""Maximum number of paths in a report for each kind of file that is left out."""
_MAX_NAMED = 5
"""Maximum number of files of a kind that the summary names."""
EMPTY_FILE = "empty file"
"""Kind under which a file without text is counted as left out."""
DUPLICATE_FILE = "duplicate file"
"""Kind under which a file that repeats an earlier document's title and text is counted."""
UNNAMED_KINDS = ("image", "sound", "video")
"""Kinds whose files the summary counts but does not name, because nobody expects text in them."""
READABLE = (
    "ragqa reads text of every kind, Markdown, HTML, PDF, Office and OpenDocument files, e-books, CSV, TSV, JSON, "
    "mail, Wikipedia, Parquet and Arrow, also in tar and zip archives; with --ocr also images"
)
READ_ERRORS = (OSError, EOFError, lzma.LZMAError, zlib.error, tarfile.TarError, zipfile.BadZipFile, MemoryError)
"""Errors raised while reading a file that is damaged, cut short, gone or too large."""
_CHUNK = 1 << 20
_NOT_OF_FORMAT = {
    "File is not a zip file": "damaged, or no zip archive",
    "Not a gzipped file": "damaged, or no gzip file",
    "Input format not supported by decoder": "damaged, or no xz file",
    "Invalid data stream": "damaged, or no bzip2 file",
}
"""Clearer messages for compressed files, by the message of Python."""
_NOUNS = {
    "duplicates": "duplicates",
    "empty": "empty documents",
    "undecodable": "undecodable texts",
    "redirects": "redirects",
    "disambiguations": "disambiguations",
    "other_pages": "other pages",
    "bad": "malformed records",
}
"""Plural noun for each count of a report."""


@dataclass(frozen=True, slots=True)
class Section:
    """Part of a document under the same headings; no passage reaches beyond it."""

    start: int
    end: int
    """Characters ``start`` to ``end`` (exclusive) of the document's text."""
    headings: tuple[str, ...] = ()
    """Headings above the section, from the outermost to the nearest."""
    number: int = 0
    """Number of the unit (line, page, …) in which the section begins; 0 to count from the start of the text."""
    sheet: str = ""
    """Name of the sheet of a spreadsheet; empty for other files."""
    has_records: bool = False
    """True if each line is a record of a table; then no passage spans two lines."""


@dataclass(frozen=True, slots=True)
class Document:
    """Text with a title: a whole file, or a record of a larger file."""

    id: str
    """Id of the record, or ``path`` if the whole file is the document."""
    title: str
    text: str
    path: str
    """Path of the file, or archive/member; absolute in an index."""
    sections: tuple[Section, ...] = ()
    """Parts of the text that are indexed, in order; by default one part, the whole text."""
    unit: str = ""
    """Unit of places in the file, a key of ``ragqa.types.SEPARATORS``; empty if there is none."""
    tags: tuple[str, ...] = ()
    date: str = ""
    """Date in the document, YYYY-MM-DD, or else the date of the file's last change; empty if unknown."""

    def list_sections(self) -> tuple[Section, ...]:
        """Return the parts of the text that are indexed."""
        return self.sections or (Section(0, len(self.text)),)


NumberedDocument = tuple[int, Document]
"""Number and document: the number of the document's first line or row, from 1; 0 for a whole file, a mail, or the first
part of a table."""


@dataclass
class CorpusReport:
    """Counts of documents and files that were read or left out; they grow during reading."""

    documents: int = 0
    """Number of documents read."""
    duplicates: int = 0
    """Number of documents left out because an earlier document has the same title and text."""
    empty: int = 0
    """Number of documents left out because they have only white space."""
    undecodable: int = 0
    """Number of files or records in which invalid bytes or characters were replaced by U+FFFD."""
    redirects: int = 0
    """Number of wiki pages left out because they only redirect to another page."""
    disambiguations: int = 0
    """Number of wiki pages left out because they only list the meanings of their title."""
    other_pages: int = 0
    """Number of wiki pages left out because they are not articles: talk pages, templates and others."""
    bad: int = 0
    """Number of malformed files and records left out or repaired."""
    bad_files: int = 0
    """Number of malformed files; ``bad`` counts them, too."""
    bytes_read: int = 0
    """Number of bytes read so far; for data sets of the hub, number of characters."""
    encodings: dict[str, int] = field(default_factory=dict)
    """Number of files in each encoding other than UTF-8, UTF-16 and UTF-32."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Number of files left out, by kind, such as ``encrypted PDF``."""
    left_out_paths: dict[str, list[str]] = field(default_factory=dict)
    """Paths of the first ``MAX_PATHS`` files that were left out, by kind."""
    notes: list[str] = field(default_factory=list)
    """The first ``MAX_NOTES`` problems, each as ``path[:line]: problem``."""

    def describe_problems(self) -> list[str]:
        """Return lines for the user about everything left out or repaired, encodings and ``notes``.

        Without problems, the list is empty.
        """
        counts = {k: v for k, v in vars(self).items() if isinstance(v, int) and k not in ("documents", "bytes_read")}
        counts["bad"] -= counts.pop("bad_files")  # the kinds of files left out contain them
        repeated_files, empty_files = self.left_out.get(DUPLICATE_FILE, 0), self.left_out.get(EMPTY_FILE, 0)
        counts["duplicates"] -= repeated_files
        counts["empty"] -= empty_files
        listed = ", ".join(format_count(count, _NOUNS[name]) for name, count in counts.items() if count)
        files = ", ".join(map(self._describe_kind, self.left_out))
        lines = [f"left out: {files}"] * bool(files)
        lines += [READABLE] * (sum(self.left_out.values()) > self.bad_files + empty_files + repeated_files)
        lines += [f"documents and records left out or repaired: {listed}"] * bool(listed)
        if count := sum(self.encodings.values()):
            files = "1 file was" if count == 1 else f"{count:,} files were"
            lines.append(f"{files} not UTF-8: read as {', '.join(sorted(self.encodings))}")
        return lines + [f"  {to_one_line(_make_relative(note))}" for note in self.notes]

    def _describe_kind(self, kind: str) -> str:
        count, paths = self.left_out[kind], [*map(_make_relative, self.left_out_paths[kind][:_MAX_NAMED])]
        named = f" ({', '.join(map(to_one_line, paths))}{', …' * (count > len(paths))})" * (kind not in UNNAMED_KINDS)
        return f"{count:,} {kind}{'s' * (count != 1)}{named}"

    def leave_out(self, path: str, kind: str) -> None:
        """Count a file that is left out.

        Args:
            path: path of the file.
            kind: kind of file, a noun in the singular.
        """
        self.left_out[kind] = self.left_out.get(kind, 0) + 1
        paths = self.left_out_paths.setdefault(kind, [])
        if len(paths) < MAX_PATHS:
            paths.append(path)

    def count_duplicate(self, identifier: str, path: str) -> None:
        """Count a document that is left out as a duplicate; a whole file also counts as left out.

        Args:
            identifier: id of the document.
            path: path of its file.
        """
        self.duplicates += 1
        if identifier == path:
            self.leave_out(path, DUPLICATE_FILE)

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
    """Handler of malformed input, which raises an error or records the problem in a report."""

    report: CorpusReport
    is_strict: bool
    """True to raise an error; False to record the problem and continue."""

    def reject(self, path: str, problem: str, line: int = 0, kind: str = "unreadable file") -> None:
        """Raise an error for a malformed file or record in strict mode; else count and note it.

        Args:
            path: path of the file.
            problem: reason why the input is malformed.
            line: number of the record's first line, from 1; 0 for the whole file.
            kind: kind under which a whole file is counted, such as ``encrypted PDF``.

        Raises:
            BadLine: in strict mode, for a record.
            BadInput: in strict mode, for a whole file.
        """
        where = _format_place(path, line)
        if self.is_strict:
            raise (BadLine if line else BadInput)(f"{where}: {problem} (fix it, or leave out --strict)")
        self.report.note(where, problem)
        self.report.bad += 1
        if not line:
            self.report.bad_files += 1
            self.report.leave_out(path, kind)


WaitHandler = Callable[[str, float], object]
"""Function that receives the path of the file being read, and the seconds since its reading began."""


def ignore_wait(path: str, seconds: float) -> None:
    """Do nothing: the default ``WaitHandler``."""


@dataclass(frozen=True)
class InputFile:
    """Opened file or archive member, with the options for reading it."""

    path: str
    """Path that reports and documents show."""
    name: str
    """File name, from which format and title are derived; for a parser, without a compression suffix."""
    stream: BufferedReader
    problems: ProblemHandler
    budget: ExpansionBudget = field(default_factory=ExpansionBudget)
    """Budget of expanded bytes, which all members of an archive share."""
    date: str = ""
    """Date of the last change of the file, YYYY-MM-DD; empty if unknown."""
    tesseract: str = ""
    """Path of the command ``tesseract``, which reads images and scanned pages; empty to read neither."""
    on_wait: WaitHandler = ignore_wait
    """Function called every second while an Office file, a PDF or an image is read."""

    def make_title(self) -> str:
        """Return the stem of the file's name, with spaces for ``-`` and ``_``, as a title."""
        return PurePath(self.name).stem.replace("-", " ").replace("_", " ").strip()

    def read_text(self) -> str:
        """Return the decoded content; undecodable bytes are replaced and noted in the report.

        Raises:
            LimitError: as for ``read_bytes``.
        """
        encoding, data = self._skip_byte_order_mark(), self.read_bytes()
        if encoding == "utf-8" and (chosen := choose_encoding(data)) != encoding:
            encoding = chosen
            self._count_encoding(encoding)
        text, is_replaced = decode(data, encoding)
        if is_replaced:
            self.note_undecodable()
        return text

    def read_bytes(self) -> bytes:
        """Return the whole content of the file.

        Raises:
            LimitError: the content is longer than MAX_TEXT_BYTES, or the file expands too much.
        """
        data = BytesIO()
        while chunk := self.stream.read(_CHUNK):
            data.write(chunk)
            check_size(data.tell(), MAX_TEXT_BYTES, "its text")
        return data.getvalue()

    def iter_lines(self, *, can_guess: bool = False) -> Iterator[tuple[int, str, bool]]:
        """Yield the number (from 1) and text of each line, and True if bytes were replaced.

        Args:
            can_guess: True to decode lines that are not valid UTF-8 by the encoding that ``choose_encoding`` finds; by
                default, their undecodable bytes are replaced by U+FFFD.

        Raises:
            LimitError: a line is longer than MAX_RECORD_BYTES, or the file expands too much.
        """
        encoding = self._skip_byte_order_mark()
        if encoding == "utf-8":
            for number, line in enumerate(iter(partial(self.stream.readline, MAX_RECORD_BYTES + 1), b""), 1):
                if len(line) > MAX_RECORD_BYTES:
                    check_size(len(line), MAX_RECORD_BYTES, f"line {number}")
                text, is_replaced = decode(line, "utf-8")
                if is_replaced and can_guess:
                    if encoding == "utf-8" and (encoding := choose_encoding(line + self.stream.peek())) != "utf-8":
                        self._count_encoding(encoding)
                    text, is_replaced = decode(line, encoding)
                yield number, text, is_replaced
        else:
            for number, text in enumerate(_iter_wide_lines(self.stream, encoding), 1):
                yield number, text, "\ufffd" in text

    def reject(self, problem: str, line: int = 0, **options: str) -> None:
        """Reject the file, or its record at ``line``, as malformed; see ``ProblemHandler.reject``."""
        self.problems.reject(self.path, problem, line, **options)

    def reject_without_extra(self, extra: str, error: ImportError) -> None:
        """Reject the file because its format needs an extra of ragqa that is not installed.

        Args:
            extra: name of the extra.
            error: error of the failed import.

        Raises:
            MissingExtra: in strict mode.
        """
        missing = MissingExtra(f"reading {self.path}", extra)
        if self.problems.is_strict:
            raise missing from error
        self.reject(str(missing))

    def note_undecodable(self, line: int = 0) -> None:
        """Note in the report that undecodable bytes were replaced by U+FFFD.

        Args:
            line: number of the first line of the record with these bytes; 0 for the whole file.
        """
        self.problems.report.undecodable += 1
        self.problems.report.note(_format_place(self.path, line), "invalid bytes were replaced by U+FFFD")

    def _count_encoding(self, encoding: str) -> None:
        counts = self.problems.report.encodings
        counts[encoding] = counts.get(encoding, 0) + 1

    def _skip_byte_order_mark(self) -> str:
        encoding, length = detect_encoding(self.stream.peek(4))
        self.stream.read(length)
        return encoding


def describe_error(error: Exception) -> str:
    """Return a clear message for one of ``READ_ERRORS``."""
    if isinstance(error, MemoryError):
        return "it needs more memory than there is"
    if (problem := str(error).partition("(")[0].strip()) in _NOT_OF_FORMAT:
        return _NOT_OF_FORMAT[problem]
    system = error.strerror if isinstance(error, OSError) else None
    return str(system or error or type(error).__name__)


def _make_relative(text: str) -> str:
    """Remove the working directory from the start of a text that begins with a path."""
    return text.removeprefix(os.path.join(os.getcwd(), ""))


def _format_place(path: str, line: int) -> str:
    return f"{path}:{line}" if line else path


def _iter_wide_lines(stream: BufferedReader, encoding: str) -> Iterator[str]:
    """Yield the lines of a text in UTF-16 or UTF-32, in which a line end has several bytes."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    pieces: list[str] = []  # of the current line
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
