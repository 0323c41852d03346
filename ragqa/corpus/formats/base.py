"""What a format reader is given and what it gives: an opened input, a document, a report."""

import codecs
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BufferedReader

from ragqa.errors import BadInput, BadLine

MAX_NOTES = 20
"""Problems that a report describes in words; the others are only counted."""
UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error, tarfile.TarError)
"""What reading a file raises that is damaged, cut short or gone."""
_CHUNK = 1 << 20
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


@dataclass(frozen=True, slots=True)
class Document:
    """A text with a title, from a file of its own or from a record of a larger file."""

    id: str
    """The record's own id, or ``path`` where a file is one document."""
    title: str
    text: str
    path: str
    """The file as one could open it from here; a member of an archive: archive/member."""
    body: int = 0
    """Character of ``text`` where the body starts; what lies before (a title line) is not indexed."""


@dataclass
class CorpusReport:
    """What was read and what was left out; updated while documents are read."""

    documents: int = 0
    """Documents handed out."""
    duplicates: int = 0
    """Documents left out because title and text are those of an earlier one."""
    empty: int = 0
    """Documents left out because their body is nothing but white space."""
    undecodable: int = 0
    """Files or records in which something was replaced by U+FFFD."""
    binary: int = 0
    """Files left out because they are binary, of no known type, or not files at all."""
    redirects: int = 0
    """Pages of a wiki left out because they only lead to another one."""
    disambiguations: int = 0
    """Pages of a wiki left out because they only list what their title can mean."""
    other_pages: int = 0
    """Pages of a wiki left out because they are no articles: talk, templates, whatever is not wikitext."""
    bad: int = 0
    """Files and records left out by ``skip_bad``."""
    bytes_read: int = 0
    """Of the bytes that ``input_size`` counts; and the characters of what came from the hub."""
    notes: list[str] = field(default_factory=list)
    """The first problems, each as ``path[:line]: what``."""

    @property
    def left_out(self) -> list[str]:
        """Lines for people: what was left out or mended, and the notes; none where nothing was."""
        counts = {k: v for k, v in vars(self).items() if isinstance(v, int) and k not in ("documents", "bytes_read")}
        said = ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in counts.items() if count)
        return [f"left out or mended: {said}"] * bool(said) + [f"  {note}" for note in self.notes]

    def note(self, where: str, what: str) -> None:
        """Describe a problem, if there is still room."""
        if len(self.notes) < MAX_NOTES:
            self.notes.append(f"{where}: {what}")


@dataclass(frozen=True)
class ProblemHandler:
    """Where problems go: into the report, or, unless bad input is skipped, to whoever asked for documents."""

    report: CorpusReport
    skip_bad: bool

    def bad(self, path: str, what: str, line: int = 0) -> None:
        """Raise BadLine (BadInput without a line), or count and note it where bad input is skipped."""
        where = _where(path, line)
        if not self.skip_bad:
            kind = BadLine if line else BadInput
            raise kind(f"{where}: {what} (mend it, or leave such input out with --skip-bad)")
        self.report.bad += 1
        self.report.note(where, what)

    def replaced(self, path: str, line: int = 0) -> None:
        """Count and note that something could not be decoded."""
        self.report.undecodable += 1
        self.report.note(_where(path, line), "not valid text everywhere, U+FFFD stands where it is not")

    def not_text(self, path: str, what: str) -> None:
        """Count and note a file that is left out because it holds no text to begin with."""
        self.report.binary += 1
        self.report.note(path, what)


@dataclass(frozen=True)
class InputFile:
    """An opened input: its names, its bytes, and where to report what is wrong with it."""

    path: str
    """As reported, and as its documents carry it."""
    name: str
    """What the format and a title are told by: the file's name without a suffix of compression."""
    stream: BufferedReader
    intake: ProblemHandler

    def text(self) -> str:
        """All of the input, decoded; counted where bytes had to be replaced."""
        encoding = self._drop_mark()
        text, replaced = _decode(self.stream.read(), encoding)
        if replaced:
            self.replaced()
        return text

    def lines(self) -> Iterator[tuple[int, str, bool]]:
        """Each line: its number from 1, its text with the line end, whether bytes were replaced in it."""
        encoding = self._drop_mark()
        if encoding == "utf-8":
            for number, line in enumerate(self.stream, 1):
                yield number, *_decode(line, encoding)
        else:
            for number, text in enumerate(_wide_lines(self.stream, encoding), 1):
                yield number, text, "\ufffd" in text

    def bad(self, what: str, line: int = 0) -> None:
        """``ProblemHandler.bad`` of this input."""
        self.intake.bad(self.path, what, line)

    def replaced(self, line: int = 0) -> None:
        """``ProblemHandler.replaced`` of this input."""
        self.intake.replaced(self.path, line)

    def _drop_mark(self) -> str:
        """Move past a byte order mark and return the encoding it stands for."""
        encoding, length = encoding_of(self.stream.peek(4))
        self.stream.read(length)
        return encoding


NumberedDocument = tuple[int, Document]
"""A document and the line it starts on; 0 where the whole file is the document."""


def encoding_of(head: bytes) -> tuple[str, int]:
    """Encoding of a text that begins with ``head``, and the length of its byte order mark."""
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding, len(mark)
    return "utf-8", 0


def reason_of(error: Exception) -> str:
    """What one of UNREADABLE says, in words for a line."""
    system = error.strerror if isinstance(error, OSError) else None
    return str(system or error or type(error).__name__)


def _where(path: str, line: int) -> str:
    return f"{path}:{line}" if line else path


def _wide_lines(stream: BufferedReader, encoding: str) -> Iterator[str]:
    """Lines of a text whose line ends are more than a byte."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    rest = ""
    while data := stream.read(_CHUNK):
        *whole, rest = (rest + decoder.decode(data)).split("\n")
        yield from (f"{line}\n" for line in whole)
    if rest := rest + decoder.decode(b"", final=True):
        yield rest


def _decode(data: bytes, encoding: str) -> tuple[str, bool]:
    try:
        return data.decode(encoding), False
    except UnicodeDecodeError:
        return data.decode(encoding, errors="replace"), True
