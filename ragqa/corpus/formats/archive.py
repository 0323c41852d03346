"""Members of tar archives, read as the archive streams by: nothing is unpacked to disk."""

import tarfile
from collections.abc import Iterator
from dataclasses import replace
from io import BufferedReader
from pathlib import PurePosixPath
from typing import BinaryIO, cast

from ragqa.corpus.formats.base import InputFile

_BLOCK = 512
_CHUNK = 1 << 16


def members(source: InputFile) -> Iterator[InputFile]:
    """The regular files of a tar archive in its order, hidden ones left out; each must be read in its turn.

    Raises tarfile.TarError, or what the decompression raises, on an archive that is damaged or cut short.
    """
    with tarfile.open(fileobj=source.stream, mode="r|") as tar:
        for member in tar:
            stream = tar.extractfile(member) if member.isreg() else None
            if stream is not None and not _hidden(member.name):
                name = PurePosixPath(member.name).name
                path = f"{source.path}/{member.name.removeprefix('./')}"
                yield replace(source, path=path, name=name, stream=cast(BufferedReader, stream))
            tar.members = []  # type: ignore[attr-defined]  # it keeps every header it has seen
        _check_end(cast(BinaryIO, tar.fileobj))


def _check_end(stream: BinaryIO) -> None:
    """Read what follows the last member: tarfile takes a damaged header for the end of the archive."""
    while rest := stream.read(_CHUNK):
        if rest.count(0) != len(rest):
            raise tarfile.ReadError("damaged after its last readable member")
    if stream.tell() % _BLOCK:
        raise tarfile.ReadError("cut short")


def _hidden(name: str) -> bool:
    return any(part.startswith(".") for part in PurePosixPath(name).parts if part != "..")
