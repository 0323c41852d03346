"""Read the members of tar archives without unpacking the archives to the disk."""

import posixpath
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from io import BufferedReader, BytesIO
from pathlib import PurePosixPath
from typing import Any, BinaryIO, cast

from ragqa.corpus.formats.base import InputFile
from ragqa.corpus.formats.limits import MAX_RECORD_BYTES, LimitError

BUFFER_BYTES = 1 << 18
"""Size of the read buffer of a file in bytes."""
_TAR_BLOCK_BYTES = 512
_MAX_HEADER_BYTES = 1 << 16
"""Maximum size of an extended header in bytes; it has names (on Linux up to 4 KiB) and attributes."""
_MAX_READS_AT_END = 10
"""Maximum number of reads after the end of an archive; tarfile needs three for a complete archive."""
_HEADER_TYPES = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_NAME_TYPES = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_RECORD = re.compile(rb"([1-9]\d{0,5}) [^=\n]+=")
_MANY_DIGITS = re.compile(rb"\d{200}")
_SPARSE, _NOT_SPARSE = "GNU.sparse.", "not.sparse."


def iter_members(file: InputFile) -> Iterator[InputFile]:
    """Yield the visible files of a tar archive; each must be read before the next one.

    Links and sparse files are left out; the report counts the sparse files. The path of a member is ``ARCHIVE/PATH``;
    parts of PATH that lead out of the archive are removed.

    Raises:
        tarfile.TarError: the archive is damaged or cut short, or has headers of an unreasonable size.
        LimitError: more than MAX_RECORD_BYTES of zeros follow the last member, or the archive expands too much.
    """
    with _convert_errors():
        stream: Any = _EndingStream(file.stream)
        tar = tarfile.open(fileobj=stream, mode="r|", tarinfo=_CheckedMember)  # noqa: SIM115
    with tar:
        while True:
            with _convert_errors():
                member = tar.next()
            if member is None:
                break
            tar.members = []  # type: ignore[attr-defined]  # otherwise tarfile keeps every header in memory
            # Names need not be UTF-8; tarfile represents other bytes by surrogates.
            inside = member.name.encode("utf-8", "surrogateescape").decode(errors="replace")
            inside = make_member_path(inside)
            if not member.isreg() or is_hidden(inside):
                continue
            path = f"{file.path}/{inside}"
            if member.issparse() or any(name.startswith(_NOT_SPARSE) for name in member.pax_headers):
                # A few bytes of a sparse file can stand for terabytes of zeros.
                file.problems.report.leave_out(path, "sparse file in an archive")
                continue
            content = cast(BufferedReader, tar.extractfile(member))
            name, changed = PurePosixPath(inside).name, format_date(member.mtime) or file.date
            yield replace(file, path=path, name=name, stream=content, date=changed)
        _check_end(cast(BinaryIO, tar.fileobj))


def format_date(seconds: float) -> str:
    """Return the local date of a time as YYYY-MM-DD; an empty string for an invalid time.

    Args:
        seconds: time in seconds since 1970; invalid if it is not positive, or too large for a date.
    """
    try:
        return date.fromtimestamp(seconds).isoformat() if seconds > 0 else ""
    except (ValueError, OverflowError, OSError):
        return ""


class _CheckedMember(tarfile.TarInfo):
    """Header of a member of a tar archive that is checked before ``tarfile`` reads it.

    For some malformed headers, ``tarfile`` would need quadratic time or too much memory.
    """

    def _proc_member(self, tar: Any) -> tarfile.TarInfo:  # tarfile documents this method for subclasses
        if self.size < 0:
            raise tarfile.ReadError("damaged: a member of negative size")
        if self.type not in _HEADER_TYPES + _NAME_TYPES:
            return cast(tarfile.TarInfo, super()._proc_member(tar))  # type: ignore[misc]
        if self.size > _MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header is longer than {_MAX_HEADER_BYTES} bytes")
        if self.type in _NAME_TYPES:
            return cast(tarfile.TarInfo, super()._proc_member(tar))  # type: ignore[misc]
        stream = tar.fileobj
        header = stream.read(-(-self.size // _TAR_BLOCK_BYTES) * _TAR_BLOCK_BYTES)
        _check_records(header[: self.size])
        # tarfile never finishes some maps of sparse files. So the maps are renamed, and iter_members leaves these
        # files out.
        tar.fileobj = _Replay(header.replace(f" {_SPARSE}".encode(), f" {_NOT_SPARSE}".encode()), stream)
        try:
            return cast(tarfile.TarInfo, super()._proc_member(tar))  # type: ignore[misc]
        finally:
            tar.fileobj = stream


def _check_records(header: bytes) -> None:
    """Raise ReadError if an extended header is malformed, or has a number of 200 digits.

    Such a header consists of records ``LENGTH KEYWORD=VALUE``; LENGTH counts all bytes of a record, with the line end.
    """
    place = 0
    while place < len(header):
        record = _RECORD.match(header, place)
        end = place + int(record[1]) if record else 0
        if record is None or end <= record.end() or header[end - 1 : end] != b"\n":
            raise tarfile.ReadError("damaged: malformed extended header")
        place = end
    if _MANY_DIGITS.search(header):  # some versions of tarfile need quadratic time for many digits
        raise tarfile.ReadError("damaged: a number of 200 digits in an extended header")


class _EndingStream:
    """Stream that raises ReadError after ten reads at its end.

    Without the error, ``tarfile`` would try for years to read a huge member that is missing.
    """

    def __init__(self, stream: BufferedReader) -> None:
        self._stream, self._reads_at_end = stream, 0

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if not data:
            self._reads_at_end += 1
            if self._reads_at_end > _MAX_READS_AT_END:
                raise tarfile.ReadError("cut short")
        return data


class _Replay:
    """Stream that returns ``data``, which was already read from ``stream``, and then the rest."""

    def __init__(self, data: bytes, stream: BinaryIO) -> None:
        self._data, self._stream = BytesIO(data), stream

    def read(self, size: int) -> bytes:
        return self._data.read(size) or self._stream.read(size)

    def tell(self) -> int:
        return self._stream.tell()


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Convert other errors that tarfile raises on malformed headers to ReadError."""
    try:
        yield
    except (ValueError, RecursionError) as error:  # RecursionError: thousands of extended headers in a row
        raise tarfile.ReadError(f"damaged: malformed header ({error})") from error


def _check_end(archive: BinaryIO) -> None:
    """Check that a tar archive ends in whole blocks, with at most MAX_RECORD_BYTES of zeros."""
    # tarfile mistakes a damaged header for the end of the archive.
    end = archive.tell()
    while tail := archive.read(BUFFER_BYTES):
        if tail.count(0) != len(tail):
            raise tarfile.ReadError("damaged after its last readable member")
        if archive.tell() - end > MAX_RECORD_BYTES:
            raise LimitError(f"more than {MAX_RECORD_BYTES // 1_000_000} MB of zeros follow its last member")
    if archive.tell() % _TAR_BLOCK_BYTES:
        raise tarfile.ReadError("cut short")


def make_member_path(name: str) -> str:
    """Return the name of an archive member as a relative path that stays in the archive."""
    return posixpath.normpath(f"/{name}").lstrip("/")


def is_hidden(path: str) -> bool:
    """Return True if a part of a path begins with a dot, so that the file is hidden."""
    return any(part.startswith(".") for part in path.split("/"))
