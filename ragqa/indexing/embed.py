"""Embed passages in shards with their own files, so that a build can continue after a kill.

    0000000000.npy     vectors of a shard, float16 [rows of the shard, width]
    0000000000.json    record of a finished shard (``ShardRecord``)

A batch of the encoder has passages of one shard only, so the vectors of a shard do not depend on other shards.
"""

import hashlib
import io
import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ragqa import artefacts
from ragqa.artefacts.sync import sync_file
from ragqa.corpus.store import PassageStore
from ragqa.errors import DamagedArtefact
from ragqa.retrieval.vectors.arrays import StackedVectors
from ragqa.retrieval.vectors.store import VectorsOnDisk
from ragqa.runtime.encoder import TextEncoder

PARTIAL = ".writing"
"""Folder for unfinished files, next to the files of the shards."""


@dataclass(frozen=True)
class EmbeddingShard:
    """Shard of a passage store: rows ``first`` to ``last`` (exclusive)."""

    first: int
    last: int

    @property
    def vectors_file(self) -> str:
        """Name of the file with the shard's vectors."""
        return f"{self.first:010d}.npy"

    @property
    def record_file(self) -> str:
        """Name of the file with the shard's record, which exists when the shard is finished."""
        return f"{self.first:010d}.json"


@dataclass(frozen=True)
class ShardRecord(EmbeddingShard):
    """Record of a finished shard."""

    encoder: str
    """Fingerprint of the encoder."""
    bytes: int
    """Size of the file of vectors, in bytes."""
    sha256: str
    """SHA-256 of the file of vectors, in hexadecimal."""
    device: str = ""
    """Processor or GPU that made the shard, if known."""


def split_into_shards(rows: int, size: int) -> list[EmbeddingShard]:
    """Return the shards of a store of ``rows`` rows; each shard but the last has ``size`` rows."""
    return [EmbeddingShard(first, min(first + size, rows)) for first in range(0, rows, size)]


@contextmanager
def prepare_shard_folder(folder: Path) -> Iterator[None]:
    """Create ``folder`` with an empty folder ``PARTIAL``; remove ``PARTIAL`` after the block.

    After the block, a worker that is still running cannot write files of shards, because ``embed_shard`` writes them to
    ``PARTIAL`` first.
    """
    remove_partial_files(folder)
    (folder / PARTIAL).mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        remove_partial_files(folder)


def remove_partial_files(folder: Path) -> None:
    """Remove the folder ``PARTIAL`` in ``folder``, even while other processes write to it."""
    # Rename first: a file that another process writes in the meantime would prevent the removal of the folder.
    partial, removed = folder / PARTIAL, folder / f"{PARTIAL}.gone"
    shutil.rmtree(removed, ignore_errors=True)
    with suppress(OSError):
        partial.rename(removed)
    shutil.rmtree(removed, ignore_errors=True)


def embed_shard(
    store: PassageStore,
    encoder: TextEncoder,
    folder: Path,
    shard: EmbeddingShard,
    *,
    device: str = "",
    on_done: Callable[[int], None] | None = None,
) -> ShardRecord:
    """Encode the passages of a shard, including deleted ones, and write the shard's files.

    Args:
        store: all passages.
        encoder: encoder of the passages.
        folder: folder of the shards, prepared by ``prepare_shard_folder``.
        shard: rows to encode.
        device: processor or GPU to name in the record.
        on_done: function called with the number of passages of the shard that are finished.

    Returns:
        The record of the shard.

    Raises:
        DamagedArtefact: a file of the passages is damaged.
        OSError: a file cannot be written.
    """
    texts = [passage.titled_text for passage in store.read_rows(shard.first, shard.last)]
    buffer = io.BytesIO()
    np.save(buffer, encoder.encode(texts, on_done).astype("<f2"))
    data = buffer.getvalue()
    checksum = hashlib.sha256(data).hexdigest()
    record = ShardRecord(shard.first, shard.last, encoder.fingerprint, len(data), checksum, device)
    write_shard_file(folder / shard.vectors_file, data)
    write_shard_record(folder, record)
    return record


def write_shard_record(folder: Path, record: ShardRecord) -> None:
    """Mark a shard in ``folder`` as finished; errors: as for ``write_shard_file``."""
    write_shard_file(folder / record.record_file, json.dumps(asdict(record)).encode())


def write_shard_file(file: Path, data: bytes) -> None:
    """Write a file of a shard in one step, by way of the folder ``PARTIAL``.

    Args:
        file: file to write, in a folder that ``prepare_shard_folder`` prepared.
        data: content of the file.

    Raises:
        OSError: the file cannot be written, for example because the block of ``prepare_shard_folder`` has ended.
    """
    # The temporary name is unique, since two workers can embed the same shard.
    temporary = file.parent / PARTIAL / f"{file.name}.{uuid.uuid4().hex}"
    temporary.write_bytes(data)
    sync_file(temporary)
    temporary.replace(file)


def read_shard_record(folder: Path, shard: EmbeddingShard, encoder: str) -> ShardRecord | None:
    """Return the record of a shard; None if the shard must be embedded.

    A shard must be embedded if it is not finished, or if its record is for other rows, another encoder or another file
    of vectors.

    Args:
        folder: folder of the shards.
        shard: rows of the shard.
        encoder: fingerprint of the encoder.
    """
    try:
        record = ShardRecord(**json.loads((folder / shard.record_file).read_text()))
        size = (folder / shard.vectors_file).stat().st_size
    except (OSError, ValueError, TypeError):
        return None
    is_finished = (record.first, record.last, record.encoder, record.bytes) == (shard.first, shard.last, encoder, size)
    return record if is_finished else None


def find_damaged_files(folder: Path, records: list[ShardRecord]) -> Iterator[Path]:
    """Yield the files of vectors that are missing or differ from their records' checksums.

    Args:
        folder: folder of the shards.
        records: records of the shards to check.
    """
    for record in records:
        file = folder / record.vectors_file
        try:
            if file.stat().st_size != record.bytes or artefacts.checksum(file) != record.sha256:
                yield file
        except OSError:
            yield file


def open_shards(folder: Path, rows: int) -> StackedVectors:
    """Open the vectors [rows, width] of all shards in ``folder``, which are read on demand.

    Args:
        folder: folder of the shards.
        rows: expected number of vectors.

    Raises:
        DamagedArtefact: the number of vectors is not ``rows``, or a file is damaged.
    """
    files = sorted(folder.glob("*.npy"))
    vectors = StackedVectors([VectorsOnDisk(file) for file in files]) if files else ()
    if len(vectors) != rows or not isinstance(vectors, StackedVectors):
        raise DamagedArtefact(f"{folder} holds {len(vectors)} vectors for {rows} passages: embed them again")
    return vectors
