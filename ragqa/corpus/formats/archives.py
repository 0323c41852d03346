"""Members of tar archives, read as the archive streams by: nothing is unpacked to the disk."""

import posixpath
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BufferedReader, BytesIO
from pathlib import PurePosixPath
from typing import Any, BinaryIO, cast

from ragqa.corpus.formats.base import InputFile

BUFFER_BYTES = 1 << 18
"""Bytes that are read from a file at a time."""
_TAR_BLOCK_BYTES = 512
_MAX_HEADER_BYTES = 1 << 16
"""Longest extended header: it holds names, of at most 4 KiB on Linux, and attributes of the member."""
_MAX_READS_AT_END = 10
"""Reads at the end of an archive; a whole one needs three."""
_HEADER_TYPES = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_NAME_TYPES = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_RECORD = re.compile(rb"([1-9]\d{0,5}) [^=\n]+=")
_MANY_DIGITS = re.compile(rb"\d{200}")
_SPARSE, _NOT_SPARSE = "GNU.sparse.", "not.sparse."


def iter_members(file: InputFile) -> Iterator[InputFile]:
    """Yield the visible files of a tar archive; the caller reads each before the next.

    A member is named ``archive/path/in/it``; a path that leads out of the archive is cut to its part inside.

    Raises:
        tarfile.TarError: the archive is damaged or cut short, or has headers of an unreasonable size.
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
            tar.members = []  # type: ignore[attr-defined]  # tarfile would keep every header in memory
            # A name need not be UTF-8, and no path that is shown or cited may lead out of the archive.
            inside = member.name.encode("utf-8", "surrogateescape").decode(errors="replace")
            inside = posixpath.normpath(f"/{inside}").lstrip("/")
            if not member.isreg() or _is_hidden(inside):
                continue
            path = f"{file.path}/{inside}"
            if member.issparse() or any(name.startswith(_NOT_SPARSE) for name in member.pax_headers):
                # A hole of terabytes takes a few bytes.
                file.problems.note_not_text(path, "a sparse file: unpack the archive first")
                continue
            content = cast(BufferedReader, tar.extractfile(member))
            yield replace(file, path=path, name=PurePosixPath(inside).name, stream=content)
        _check_end(cast(BinaryIO, tar.fileobj))


class _CheckedMember(tarfile.TarInfo):
    """Header of a member, checked before ``tarfile`` reads what could take it quadratic time or memory."""

    def _proc_member(self, tar: Any) -> tarfile.TarInfo:  # the place that tarfile names for extensions
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
        # tarfile never ends on some maps of sparse files: it does not see these, and they are left out above.
        tar.fileobj = _Replay(header.replace(f" {_SPARSE}".encode(), f" {_NOT_SPARSE}".encode()), stream)
        try:
            return cast(tarfile.TarInfo, super()._proc_member(tar))  # type: ignore[misc]
        finally:
            tar.fileobj = stream


def _check_records(header: bytes) -> None:
    """Raise ReadError unless an extended header has the form ``LENGTH KEYWORD=VALUE`` + line end, repeated."""
    place = 0
    while place < len(header):
        record = _RECORD.match(header, place)
        end = place + int(record[1]) if record else 0
        if record is None or end <= record.end() or header[end - 1 : end] != b"\n":
            raise tarfile.ReadError("damaged: malformed extended header")
        place = end
    if _MANY_DIGITS.search(header):  # some versions of tarfile search them in quadratic time
        raise tarfile.ReadError("damaged: a number of 200 digits in an extended header")


class _EndingStream:
    """Stream that ends with an error, because tarfile reads on for years over a member that claims to be endless."""

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
    """Stream that first gives back bytes that were read already."""

    def __init__(self, data: bytes, stream: BinaryIO) -> None:
        self._data, self._stream = BytesIO(data), stream

    def read(self, size: int) -> bytes:
        return self._data.read(size) or self._stream.read(size)

    def tell(self) -> int:
        return self._stream.tell()


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Convert errors that tarfile raises on malformed headers to ReadError."""
    try:
        yield
    except (ValueError, RecursionError) as error:  # thousands of extended headers in a row
        raise tarfile.ReadError(f"damaged: malformed header ({error})") from error


def _check_end(archive: BinaryIO) -> None:
    """Raise ReadError if anything but zeros follows the last member."""
    # tarfile mistakes a damaged header for the end of the archive.
    while tail := archive.read(BUFFER_BYTES):
        if tail.count(0) != len(tail):
            raise tarfile.ReadError("damaged after its last readable member")
    if archive.tell() % _TAR_BLOCK_BYTES:
        raise tarfile.ReadError("cut short")


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))
