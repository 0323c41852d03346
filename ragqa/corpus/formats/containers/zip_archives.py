"""Read the members of zip archives without unpacking the archives to the disk."""

import os
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from io import BufferedReader, BytesIO, FileIO
from pathlib import PurePosixPath
from typing import Any, BinaryIO

from ragqa.corpus.formats.base import InputFile
from ragqa.corpus.formats.containers.tar_archives import BUFFER_BYTES, is_hidden, make_member_path
from ragqa.corpus.formats.limits import MAX_RECORD_BYTES, LimitedStream, LimitError, check_size

_MAX_DIRECTORY_BYTES = 16 << 20
"""Maximum size in bytes of an archive's list of members: about 150,000 members, each of which takes 1 KB of memory."""
_SIZE_OF_DIRECTORY = 5
"""Index of the size of this list in the end record that ``zipfile`` reads."""
_MALFORMED = (ValueError, OverflowError, RuntimeError, NotImplementedError, struct.error)
"""Errors, besides BadZipFile, that ``zipfile`` raises on malformed archives and unknown compressions."""


def iter_zip_members(file: InputFile) -> Iterator[InputFile]:
    """Yield the visible files of a zip archive; encrypted ones are left out and counted.

    The path of a member is ``ARCHIVE/PATH``; parts of PATH that lead out of the archive are removed.

    Raises:
        BadInput: in strict mode, a member cannot be opened.
        zipfile.BadZipFile: the archive is damaged.
        LimitError: the archive has too many members, or is in another archive and longer than MAX_RECORD_BYTES.
    """
    with _open(file) as archive:
        for info in archive.infolist():
            inside = make_member_path(info.filename)
            if info.is_dir() or is_hidden(inside) or inside.startswith("__MACOSX/"):
                continue
            path = f"{file.path}/{inside}"
            if info.flag_bits & 1:
                file.problems.report.leave_out(path, "encrypted file in an archive")
                continue
            try:
                content: Any = LimitedStream(archive.open(info), file.budget)  # type: ignore[arg-type]
            except (*_MALFORMED, zipfile.BadZipFile) as error:
                file.problems.reject(path, f"cannot be read: {error}")
                continue
            name, stream = PurePosixPath(inside).name, BufferedReader(content, BUFFER_BYTES)
            yield replace(file, path=path, name=name, stream=stream, date=_format_date(info) or file.date)


def _format_date(info: zipfile.ZipInfo) -> str:
    year, month, day = info.date_time[:3]  # for a member without a date, zip stores the year 1980
    try:
        return date(year, month, day).isoformat() if year > 1980 else ""
    except ValueError:
        return ""


def _open(file: InputFile) -> zipfile.ZipFile:
    if isinstance(file.stream.raw, FileIO):
        stream: BinaryIO = file.stream
        file.budget.count_whole(os.fstat(file.stream.fileno()).st_size)
    else:  # a stream out of another archive cannot seek to the list of members at its end
        data = file.stream.read(MAX_RECORD_BYTES + 1)
        check_size(len(data), MAX_RECORD_BYTES, "an archive in an archive")
        stream = BytesIO(data)
    try:
        end = zipfile._EndRecData(stream)  # type: ignore[attr-defined]  # ZipFile would read a list of any size
        if end and end[_SIZE_OF_DIRECTORY] > _MAX_DIRECTORY_BYTES:
            raise LimitError("it has too many members: unpack it first")
        return zipfile.ZipFile(stream)
    except _MALFORMED as error:
        raise zipfile.BadZipFile(f"damaged: {error}") from error
