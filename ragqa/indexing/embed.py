"""Embedding of passages in shards, each a file, so that no finished shard is made again.

    0000000000.npy     float16 [rows of the shard, D]
    0000000000.json    first and last row, checksum, encoder; written last: a shard without it is unfinished

Batches of an encoder never cross shards. So the vectors of a shard do not depend on the worker that makes it.
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
"""Folder of unfinished files, next to the shards while they are made."""


@dataclass(frozen=True)
class EmbeddingShard:
    """Shard of a passage store: rows ``first`` to ``last`` (exclusive)."""

    first: int
    last: int

    @property
    def vectors_file(self) -> str:
        """Name of the file with the vectors."""
        return f"{self.first:010d}.npy"

    @property
    def record_file(self) -> str:
        """Name of the file with the record, which exists once the shard is finished."""
        return f"{self.first:010d}.json"


@dataclass(frozen=True)
class ShardRecord(EmbeddingShard):
    """Record of a finished shard."""

    encoder: str
    """Fingerprint of the encoder."""
    bytes: int
    """Size of the file of vectors."""
    sha256: str
    """SHA-256 of the file of vectors, in hexadecimal."""
    device: str = ""
    """Processor or GPU that made the shard, if known."""


def split_into_shards(rows: int, size: int) -> list[EmbeddingShard]:
    """Return the shards of a store of ``rows`` rows, each of ``size`` rows but the last."""
    return [EmbeddingShard(first, min(first + size, rows)) for first in range(0, rows, size)]


@contextmanager
def prepare_shard_folder(folder: Path) -> Iterator[None]:
    """Prepare ``folder`` for ``embed_shard``, and remove unfinished files afterwards.

    A worker that outlives its job then has no folder to write to, and leaves no files among the finished ones.
    """
    remove_partial_files(folder)
    (folder / PARTIAL).mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        remove_partial_files(folder)


def remove_partial_files(folder: Path) -> None:
    """Remove the unfinished files in ``folder``, even while other processes write them."""
    # Renamed first, since a file that another process writes meanwhile would keep the folder from being removed.
    partial, removed = folder / PARTIAL, folder / f"{PARTIAL}.gone"
    shutil.rmtree(removed, ignore_errors=True)
    with suppress(OSError):
        partial.rename(removed)
    shutil.rmtree(removed, ignore_errors=True)


def embed_shard(
    store: PassageStore, encoder: TextEncoder, folder: Path, shard: EmbeddingShard, *, device: str = ""
) -> ShardRecord:
    """Encode the rows of a shard, deleted ones among them, and write its files.

    Args:
        store: the passages.
        encoder: encoder of passages.
        folder: folder of the files, within ``prepare_shard_folder``.
        shard: rows to encode.
        device: processor or GPU to name in the record.
    """
    texts = [passage.titled_text for passage in store.read_rows(shard.first, shard.last)]
    buffer = io.BytesIO()
    np.save(buffer, encoder.encode(texts).astype("<f2"))
    data = buffer.getvalue()
    checksum = hashlib.sha256(data).hexdigest()
    record = ShardRecord(shard.first, shard.last, encoder.fingerprint, len(data), checksum, device)
    write_shard_file(folder / shard.vectors_file, data)
    write_shard_record(folder, record)
    return record


def write_shard_record(folder: Path, record: ShardRecord) -> None:
    """Write the record of a shard whose vectors are in ``folder``, which makes it finished."""
    write_shard_file(folder / record.record_file, json.dumps(asdict(record)).encode())


def write_shard_file(file: Path, data: bytes) -> None:
    """Write a file next to the shards in one step, within ``prepare_shard_folder``."""
    # The temporary name is unique, since two workers may make the same shard.
    temporary = file.parent / PARTIAL / f"{file.name}.{uuid.uuid4().hex}"
    temporary.write_bytes(data)
    temporary.replace(file)


def read_shard_record(folder: Path, shard: EmbeddingShard, encoder: str) -> ShardRecord | None:
    """Return the record of a finished shard made by this encoder, or None if it is unfinished."""
    try:
        record = ShardRecord(**json.loads((folder / shard.record_file).read_text()))
        size = (folder / shard.vectors_file).stat().st_size
    except (OSError, ValueError, TypeError):
        return None
    is_finished = (record.first, record.last, record.encoder, record.bytes) == (shard.first, shard.last, encoder, size)
    return record if is_finished else None


def find_damaged_files(folder: Path, records: list[ShardRecord]) -> Iterator[Path]:
    """Yield the files whose content differs from its checksum; all of them are read."""
    for record in records:
        file = folder / record.vectors_file
        try:
            if file.stat().st_size != record.bytes or artefacts.checksum(file) != record.sha256:
                yield file
        except OSError:
            yield file


def open_shards(folder: Path, rows: int) -> StackedVectors:
    """Open the vectors [rows, D] of all shards in ``folder``, which stay on disk.

    Raises:
        DamagedArtefact: the number of vectors is not ``rows``.
    """
    files = sorted(folder.glob("*.npy"))
    vectors = StackedVectors([VectorsOnDisk(file) for file in files]) if files else ()
    if len(vectors) != rows or not isinstance(vectors, StackedVectors):
        raise DamagedArtefact(f"{folder} holds {len(vectors)} vectors for {rows} passages: embed them again")
    return vectors
