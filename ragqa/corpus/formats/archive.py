"""Members of tar archives, read as the archive streams by: nothing is unpacked to disk."""

import tarfile
from collections.abc import Iterator
from dataclasses import replace
from io import BufferedReader
from pathlib import PurePosixPath
from typing import BinaryIO, cast

from ragqa.corpus.formats.base import InputFile

_BLOCK_BYTES = 512
_CHUNK_BYTES = 1 << 16


def iter_members(file: InputFile) -> Iterator[InputFile]:
    """Yield the regular files of a tar archive that are not hidden; read each before asking for the next.

    Raises:
        tarfile.TarError: the archive is damaged or cut short. Errors of the decompression are passed on, too.
    """
    with tarfile.open(fileobj=file.stream, mode="r|") as tar:
        for member in tar:
            stream = tar.extractfile(member) if member.isreg() else None
            if stream is not None and not _is_hidden(member.name):
                name = PurePosixPath(member.name).name
                path = f"{file.path}/{member.name.removeprefix('./')}"
                yield replace(file, path=path, name=name, stream=cast(BufferedReader, stream))
            tar.members = []  # type: ignore[attr-defined]  # tarfile would keep every header in memory
        _check_end(cast(BinaryIO, tar.fileobj))


def _check_end(stream: BinaryIO) -> None:
    """Check that only zeros follow the last member: tarfile takes a damaged header for the end of the archive."""
    while rest := stream.read(_CHUNK_BYTES):
        if rest.count(0) != len(rest):
            raise tarfile.ReadError("damaged after its last readable member")
    if stream.tell() % _BLOCK_BYTES:
        raise tarfile.ReadError("cut short")


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in PurePosixPath(name).parts if part != "..")
