"""Table of the document formats, and the choice of a file's format.

To add a format, write a module with a function ``read``, and add an entry to ``FORMATS``; docs/architecture.md also has
the steps for Office files, light markup and containers. The suffix of the file name determines the format or, if the
suffix is unknown or belongs to several formats, the first bytes of the content.
"""

import bz2
import gzip
import lzma
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import PurePath
from typing import Any

from ragqa.corpus.formats import html, markdown, wikiextractor
from ragqa.corpus.formats.base import (
    READ_ERRORS,
    Document,
    InputFile,
    NumberedDocument,
    describe_error,
)
from ragqa.corpus.formats.containers.mail import MAILBOX, iter_mail, iter_mailbox
from ragqa.corpus.formats.containers.tar_archives import BUFFER_BYTES, iter_members
from ragqa.corpus.formats.containers.zip_archives import iter_zip_members
from ragqa.corpus.formats.encodings import detect_encoding
from ragqa.corpus.formats.limits import LimitedStream, LimitError
from ragqa.corpus.formats.mediawiki import dump
from ragqa.corpus.formats.office import parser as office
from ragqa.corpus.formats.tables import arrow, delimited, dpr, json_values, jsonl
from ragqa.corpus.formats.text import markup, notebook, plain

_HEAD_BYTES = 8192
_MARKDOWN, _PLAIN, _DELIMITED = (".md", ".markdown"), (".txt",), (".csv", ".tsv", ".tab")
_PLAIN_TEXT = (*_PLAIN, *_MARKDOWN)
_OPTIONAL_MARK = rb"(?:\xef\xbb\xbf)?\s*"  # a byte order mark and white space


@dataclass(frozen=True)
class Format:
    """Document format: its parser, and the suffixes and first bytes of its files."""

    read: Callable[[InputFile], Iterator[NumberedDocument]]
    """Parser of the documents of a file; see ``ragqa.corpus.formats.base``."""
    suffixes: tuple[str, ...] = ()
    """Suffixes of file names of this format."""
    is_binary: bool = False
    """True if the files are not text; other formats refuse files that are not text."""
    signature: re.Pattern[bytes] | None = None
    """Pattern of the first bytes; a match determines the format if no format has the file's suffix."""
    overrides: tuple[str, ...] = ()
    """Suffixes of other formats; for files with these suffixes, a match determines the format, too."""
    is_weak: bool = False
    """True if a match counts only for files without a suffix and for ``overrides``."""

    def matches(self, suffix: str, is_known_suffix: bool, head: bytes) -> bool:
        """Return True if the signature determines that a file has this format.

        Args:
            suffix: suffix of the file name, in lower case; empty if there is none.
            is_known_suffix: True if any format has this suffix.
            head: first bytes of the file.
        """
        if self.signature is None or not self.signature.match(head):
            return False
        is_undecided = not suffix if self.is_weak else not is_known_suffix
        return is_undecided or suffix in self.overrides


FORMATS = (
    Format(
        office.read, (*office.SUFFIXES, *office.IMAGE_SUFFIXES), is_binary=True, signature=re.compile(rb"%PDF-|\{\\rtf")
    ),
    Format(arrow.read_arrow, (".arrow",), is_binary=True),
    Format(arrow.read_parquet, (".parquet",), is_binary=True),
    Format(html.read, (".html", ".htm")),
    Format(dpr.read, signature=re.compile(_OPTIONAL_MARK + rb"id\ttext\ttitle\r?\n"), overrides=(*_DELIMITED, *_PLAIN)),
    Format(delimited.read, _DELIMITED),
    Format(json_values.read, (".json",)),
    Format(wikiextractor.read, signature=re.compile(_OPTIONAL_MARK + b'<doc id="'), overrides=_PLAIN_TEXT),
    # A dump has no fixed suffix: the names of its parts end in .xml-p1p41242 and the like.
    Format(dump.read, signature=re.compile(_OPTIONAL_MARK + rb"(?:<\?xml[^>]*>\s*)?<mediawiki[\s>]")),
    Format(jsonl.read, (".jsonl", ".ndjson"), signature=re.compile(_OPTIONAL_MARK + rb'\{"'), is_weak=True),
    Format(markdown.read, _MARKDOWN),
    Format(markup.read, markup.SUFFIXES),
    Format(notebook.read, (".ipynb",)),
    Format(plain.read, _PLAIN, signature=re.compile(b""), is_weak=True),
    Format(plain.read_lines, signature=re.compile(b"")),
)
"""All formats; if several signatures match, the first format is chosen."""
_BY_SUFFIX = {suffix: entry for entry in FORMATS for suffix in entry.suffixes}
_DECOMPRESSORS: dict[str, Callable[[BufferedReader], Any]] = {
    ".xz": lzma.open,
    ".gz": gzip.open,
    ".bz2": bz2.open,
}
_CONTAINERS: dict[str, Callable[[InputFile], Iterator[InputFile | Document]]] = {
    ".tar": iter_members,
    ".zip": iter_zip_members,
    ".eml": iter_mail,
    ".mbox": iter_mailbox,
}
_KINDS = {
    f".{suffix}": kind
    for kind, suffixes in (
        ("image", "png jpg jpeg gif webp bmp tif tiff heic avif ico svg psd ai eps raw"),
        ("sound", "mp3 wav flac ogg opus m4a aac wma"),
        ("video", "mp4 mkv mov avi webm wmv mpg mpeg m4v"),
        ("archive", "7z rar zst lz4 lzma br iso dmg cab deb rpm jar war apk whl"),
        ("font", "ttf otf woff woff2 eot"),
        ("program", "exe dll so dylib o a pyc class wasm bin"),
        ("database", "db sqlite sqlite3 mdb accdb"),
    )
    for suffix in suffixes.split()
}
"""Kinds of the files that are left out, by suffix; some images are read if ``InputFile.tesseract`` is set."""
_CONTROLS = bytes({*range(32), 127} - {*b"\b\t\n\r\f\x1b"})
_MAX_CONTROLS = 0.02
"""Maximum share of control characters in a text; their share in compressed data is a tenth."""
_MAX_DEPTH = 4
"""Maximum number of nested archives, because an archive can contain itself."""


def read_input(file: InputFile, depth: int = 0) -> Iterator[tuple[InputFile, int, Document]]:
    """Yield the documents of a file, or of all members of an archive.

    Each tuple has the file, the number as in ``NumberedDocument``, and the document. A file of an unknown format is
    left out, and counted in the report.

    Args:
        file: file, or member of an archive.
        depth: number of archives and mails that contain the file.

    Raises:
        BadInput, BadLine, MissingExtra: in strict mode, as for the parser of the format.
        tarfile.TarError, zipfile.BadZipFile: an archive is damaged or cut short.
        LimitError: a file exceeds a limit of ``ragqa.corpus.formats.limits``, or is in too many nested archives.
        OSError, EOFError, lzma.LZMAError, zlib.error: a compressed file is damaged or cut short.
    """
    file = _decompress(file)
    suffix = _get_suffix(file)
    head = file.stream.peek(_HEAD_BYTES)[:_HEAD_BYTES]
    iter_items = _CONTAINERS.get(suffix) or (iter_mailbox if not suffix and MAILBOX.match(head) else None)
    if iter_items:
        if depth == _MAX_DEPTH:
            raise LimitError(f"{file.path} is in more than {_MAX_DEPTH} archives or mails: unpack it first")
        for item in iter_items(file):
            if isinstance(item, Document):
                yield file, 0, item
                continue
            try:
                yield from read_input(item, depth + 1)
            except READ_ERRORS as error:
                if suffix == ".tar" or isinstance(error, LimitError):  # nothing more can be read
                    raise
                item.reject(f"cannot be read: {describe_error(error)}")
        return
    is_left_out = suffix in _KINDS and not (file.tesseract and suffix in office.IMAGE_SUFFIXES)
    document_format = None if is_left_out else _choose_format(suffix, head)
    if document_format is None:
        file.problems.report.leave_out(file.path, _KINDS.get(suffix, "binary file"))
        return
    for line, document in document_format.read(file):
        yield file, line, document


def _choose_format(suffix: str, head: bytes) -> Format | None:
    by_suffix = _BY_SUFFIX.get(suffix)
    if by_suffix and by_suffix.is_binary:
        return by_suffix
    is_text = not (_is_binary(head) if by_suffix else _is_unprintable(head))
    candidates = [entry for entry in FORMATS if entry.is_binary or is_text]
    for entry in candidates:
        if entry.matches(suffix, by_suffix is not None, head):
            return entry
    return by_suffix if by_suffix in candidates else None


def _is_binary(head: bytes) -> bool:
    return b"\0" in head and detect_encoding(head)[0] == "utf-8"


def _is_unprintable(head: bytes) -> bool:
    """Return True for zero bytes or many control characters without a byte order mark."""
    controls = len(head) - len(head.translate(None, _CONTROLS))
    return _is_binary(head) or (controls > _MAX_CONTROLS * len(head) and detect_encoding(head)[0] == "utf-8")


def _decompress(file: InputFile) -> InputFile:
    open_compressed = _DECOMPRESSORS.get(_get_suffix(file))
    if open_compressed is None:
        return file
    expanded: Any = LimitedStream(open_compressed(file.stream), file.budget)
    return replace(file, name=PurePath(file.name).stem, stream=BufferedReader(expanded, BUFFER_BYTES))


def _get_suffix(file: InputFile) -> str:
    return PurePath(file.name).suffix.lower()
