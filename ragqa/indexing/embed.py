"""Passages to vectors, a shard of rows a file: what is whole is never made twice.

    0000000000.npy     float16 [rows of the shard, D]
    0000000000.json    first and last row, checksum, encoder: written last, so a shard without it is not there

A shard is encoded at once, by one encoder, and so comes out the same whoever makes it and when: batches are
cut within the shard, never across shards or by who happens to be free.
"""

import hashlib
import io
import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ragqa import artefacts
from ragqa.corpus.store import PassageStore
from ragqa.errors import DamagedArtefact
from ragqa.retrieval.vectors.arrays import StackedVectors
from ragqa.retrieval.vectors.store import VectorsOnDisk
from ragqa.runtime.encoder import TextEncoder

PARTIAL = ".writing"
"""Folder, among the shards while they are made, of the files that are not whole yet."""


@dataclass(frozen=True)
class EmbeddingShard:
    """Rows ``first … last`` (exclusive) of a passage store."""

    first: int
    last: int

    @property
    def vectors(self) -> str:
        """Name of the file of its vectors."""
        return f"{self.first:010d}.npy"

    @property
    def record(self) -> str:
        """Name of the file that says that it is whole."""
        return f"{self.first:010d}.json"


@dataclass(frozen=True)
class ShardRecord:
    """What a finished shard is."""

    first: int
    last: int
    encoder: str
    """Fingerprint of the encoder that made it."""
    bytes: int
    sha256: str
    device: str = ""
    """Processor or GPU that it was made on, where that was said."""


def split_into_shards(rows: int, size: int) -> list[EmbeddingShard]:
    """The shards of a store of ``rows``, of ``size`` rows each but the last."""
    return [EmbeddingShard(first, min(first + size, rows)) for first in range(0, rows, size)]


@contextmanager
def prepare_shard_folder(folder: Path) -> Iterator[None]:
    """Make ``folder`` ready for ``embed_shard``; nothing half written is in it afterwards.

    A worker that outlives its job finds no place to write any more, and so cannot litter what is finished.
    """
    remove_partial_files(folder)
    (folder / PARTIAL).mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        remove_partial_files(folder)


def remove_partial_files(folder: Path) -> None:
    """Remove what is half written in ``folder``, whoever is still at it.

    Renamed first: what another process writes meanwhile would keep the folder from being removed.
    """
    aside, gone = folder / PARTIAL, folder / f"{PARTIAL}.gone"
    shutil.rmtree(gone, ignore_errors=True)
    with suppress(OSError):
        aside.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def embed_shard(
    store: PassageStore, encoder: TextEncoder, folder: Path, shard: EmbeddingShard, *, device: str = ""
) -> ShardRecord:
    """Encode title and text of the rows of ``shard`` and write its files into ``folder``, a ``prepare_shard_folder``.

    Deleted rows have a vector, too, so that rows and vectors count the same.
    """
    texts = [passage.titled for passage in store.read_rows(shard.first, shard.last)]
    buffer = io.BytesIO()
    np.save(buffer, encoder.encode(texts).astype("<f2"))
    data = buffer.getvalue()
    checksum = hashlib.sha256(data).hexdigest()
    record = ShardRecord(shard.first, shard.last, encoder.fingerprint, len(data), checksum, device)
    _write(folder / shard.vectors, data)
    _write(folder / shard.record, json.dumps(asdict(record)).encode())
    return record


def _write(file: Path, data: bytes) -> None:
    aside = file.parent / PARTIAL / f"{file.name}.{uuid.uuid4().hex}"  # two workers may be at the same shard
    aside.write_bytes(data)
    aside.replace(file)


def read_shard_record(folder: Path, shard: EmbeddingShard, encoder: str) -> ShardRecord | None:
    """The record of a shard that is there with all its bytes, made by this encoder; None where it is to be made."""
    try:
        record = ShardRecord(**json.loads((folder / shard.record).read_text()))
        size = (folder / shard.vectors).stat().st_size
    except (OSError, ValueError, TypeError):
        return None
    whole = (record.first, record.last, record.encoder, record.bytes) == (shard.first, shard.last, encoder, size)
    return record if whole else None


def find_damaged_files(folder: Path, records: list[ShardRecord]) -> Iterator[Path]:
    """Files whose bytes are not those that were written: reads them all."""
    for record in records:
        file = folder / EmbeddingShard(record.first, record.last).vectors
        try:
            if file.stat().st_size != record.bytes or artefacts.checksum(file) != record.sha256:
                yield file
        except OSError:
            yield file


def open_shards(folder: Path, rows: int) -> StackedVectors:
    """The vectors [rows, D] of all shards in ``folder``, which stay on disk.

    Raises:
        DamagedArtefact: they are not as many as there are rows.
    """
    files = sorted(folder.glob("*.npy"))
    found = StackedVectors([VectorsOnDisk(file) for file in files]) if files else ()
    if len(found) != rows or not isinstance(found, StackedVectors):
        raise DamagedArtefact(f"{folder} holds {len(found)} vectors for {rows} passages: embed them again")
    return found
