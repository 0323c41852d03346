"""Passages on disk: Arrow files, memory-mapped, so that millions of them take no memory and open at once."""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc

from ragqa.artefacts import checksum, npy
from ragqa.corpus.formats.base import Document
from ragqa.errors import ArtefactError, DamagedArtefact
from ragqa.types import Passage

# Plain strings: dictionaries would save 6 to 8 % of the space, but must be known before a file's first row is
# written, and rows would be read no faster.
SCHEMA = pa.schema(
    [
        ("document", pa.string()),
        ("title", pa.string()),
        ("path", pa.string()),
        ("start", pa.int32()),
        ("end", pa.int32()),
        ("text", pa.string()),
    ]
)
_PASSAGE_FIELDS = ("document", "title", "text", "path", "start", "end")
DELETED = "deleted.npy"
"""Int64, sorted: rows that updates deleted."""
_BATCH = 1000
# A batch of extraordinarily long passages is written early: strings of a batch are limited to 2 GiB.
_BATCH_CHARACTERS = 32 << 20
_CACHED_BATCHES = 256


class PassageWriter:
    """Writes ``folder/00000.arrow`` and so on, each file aside and then renamed.

    A context manager: left with an exception it drops the file it was writing. Raises ArtefactError where
    there are passages already, unless it is told the number of the ``first_file`` that it is to write.
    """

    def __init__(self, folder: Path, *, rows_per_file: int = 50_000, first_file: int | None = None) -> None:
        self.rows = 0
        """Passages that were added."""
        self._folder = folder
        self._rows_per_file = rows_per_file
        self._pending: list[tuple[str, str, str, int, int, str]] = []
        self._pending_characters = 0
        self._rows_in_file = 0
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._folder.mkdir(parents=True, exist_ok=True)
        self._files = first_file or 0
        if first_file is None and any(self._folder.glob("*.arrow")):
            raise ArtefactError(f"{self._folder} holds passages already: write into an empty folder")

    def __enter__(self) -> "PassageWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._write_batch()
            self._finish_file()
        elif self._writer is not None:
            self._writer.close()
            self._aside.unlink()

    def add_document(self, document: Document, spans: Iterable[tuple[int, int]]) -> int:
        """Append the passages ``document.text[start:end]`` and return how many they are."""
        before = self.rows
        for start, end in spans:
            self._append((document.id, document.title, document.path, start, end, document.text[start:end]))
        return self.rows - before

    def add_passage(self, passage: Passage) -> None:
        """Append a passage of another store."""
        self._append((passage.document, passage.title, passage.path, passage.start, passage.end, passage.text))

    def _append(self, row: tuple[str, str, str, int, int, str]) -> None:
        self._pending.append(row)
        self._pending_characters += len(row[-1])
        self.rows += 1
        self._rows_in_file += 1
        full = self._rows_in_file == self._rows_per_file or self._pending_characters > _BATCH_CHARACTERS
        if full or len(self._pending) == _BATCH:
            self._write_batch()
        if full:
            self._finish_file()

    @property
    def _aside(self) -> Path:
        return self._folder / f".{_file_name(self._files)}.writing"

    def _write_batch(self) -> None:
        if not self._pending:
            return
        if self._writer is None:
            self._writer = pa.ipc.new_file(str(self._aside), SCHEMA)
        columns = [list(column) for column in zip(*self._pending, strict=True)]
        self._writer.write_batch(pa.record_batch(columns, schema=SCHEMA))
        self._pending.clear()
        self._pending_characters = 0

    def _finish_file(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        self._writer = None
        self._aside.rename(self._folder / _file_name(self._files))
        self._files += 1
        self._rows_in_file = 0


class PassageStore:
    """The passages that a PassageWriter wrote, by row; only what is asked for is read from disk.

    Rows that an update deleted keep their place, so that no other row changes its number.
    """

    def __init__(self, files: Sequence["_File"], deleted: npt.NDArray[np.int64] | None = None) -> None:
        self._files = files
        self.deleted = np.empty(0, np.int64) if deleted is None else deleted
        """Rows, sorted, that no search may return."""
        self._first_rows = list(accumulate((file.rows for file in files), initial=0))
        self._columns = lru_cache(_CACHED_BATCHES)(self._read_columns)

    @classmethod
    def open(cls, folder: Path) -> "PassageStore":
        """Map the files of ``folder`` into memory; takes a few milliseconds whatever their size.

        Raises ArtefactError where there is no such folder and DamagedArtefact naming a file that is
        missing or not whole.
        """
        if not folder.is_dir():
            raise ArtefactError(f"{folder} is not a folder of passages: build the index again")
        paths = sorted(folder.glob("*.arrow"))
        for number, path in enumerate(paths):
            if path.name != _file_name(number):
                raise DamagedArtefact(f"{folder / _file_name(number)} is missing: build the index again")
        return cls([_open_file(path) for path in paths], _read_deleted(folder / DELETED))

    def __len__(self) -> int:
        """Rows, the deleted ones included."""
        return self._first_rows[-1]

    @property
    def live_count(self) -> int:
        """Passages that a search may return."""
        return len(self) - len(self.deleted)

    def live_rows(self, ranks: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Rows of the passages with these ranks, 0 … live - 1, among those that are not deleted."""
        live_before = self.deleted - np.arange(len(self.deleted))
        return np.asarray(ranks, np.int64) + np.searchsorted(live_before, ranks, side="right")

    @property
    def last_file(self) -> tuple[int, int]:
        """Number and first row of the last file; -1 and 0 where there is none."""
        return len(self._files) - 1, self._first_rows[-2] if self._files else 0

    def find_rows(self, documents: Iterable[str]) -> npt.NDArray[np.int64]:
        """The rows, sorted, of all passages of these documents, but for those that are deleted."""
        import pyarrow.compute as pc  # takes as long to load as a question to answer

        wanted = pa.array(sorted(documents), pa.string())
        found = []
        for first, file in zip(self._first_rows, self._files, strict=False):
            column = file.reader.read_all().column("document")
            found.append(first + np.flatnonzero(pc.is_in(column, wanted).to_numpy(zero_copy_only=False)))
        return np.setdiff1d(np.concatenate(found) if found else self.deleted[:0], self.deleted)

    def __getitem__(self, row: int) -> Passage:
        """The passage of a row, 0 … len - 1; IndexError outside."""
        if not 0 <= row < len(self):
            raise IndexError(f"there is no row {row} among {len(self)} passages")
        file, batch, at = self._place(row)
        return Passage(int(row), *(column[at].as_py() for column in self._columns(file, batch)))

    def get(self, rows: Sequence[int]) -> list[Passage]:
        """The passages of these rows, in their order; IndexError outside."""
        return [self[row] for row in rows]

    def iter_batches(self, first: int = 0, size: int = 1000) -> Iterator[list[Passage]]:
        """All passages from row ``first`` that are not deleted, those of ``size`` rows at a time; no batch is empty."""
        columns = self._unmapped()
        for start in range(first, len(self), size):
            batch = self._slice(start, min(start + size, len(self)), columns)
            gone = set(self.deleted[slice(*np.searchsorted(self.deleted, (start, start + size)))].tolist())
            if left := [passage for passage in batch if passage.id not in gone] if gone else batch:
                yield left

    def fingerprint(self, known: Mapping[str, str] | None = None) -> str:
        """SHA-256, in hexadecimal, over the contents of the files in their order, and over what is deleted.

        Reads all files but those whose SHA-256 is ``known`` by their names.
        """
        digest = hashlib.sha256()
        for file in self._files:
            digest.update(bytes.fromhex((known or {}).get(file.path.name) or checksum(file.path)))
        digest.update(self.deleted.astype("<i8").tobytes())
        return digest.hexdigest()

    def read_rows(self, first: int, last: int) -> list[Passage]:
        """The passages of rows ``first … last``, the deleted ones included: for those who go through all of them."""
        return self._slice(first, last, self._unmapped())

    def _slice(self, start: int, end: int, columns: Callable[[int, int], list[pa.Array]]) -> list[Passage]:
        passages: list[Passage] = []
        while start < end:
            file, batch, at = self._place(start)
            values = [column.slice(at, end - start).to_pylist() for column in columns(file, batch)]
            rows = range(start, start + len(values[0]))
            passages.extend(map(Passage, rows, *values))
            start = rows.stop
        return passages

    def _unmapped(self) -> Callable[[int, int], list[pa.Array]]:
        """Reads columns as ``_columns`` does, but maps nothing: mapped pages would count as this process's memory."""
        reader = lru_cache(1)(lambda file: pa.ipc.open_file(pa.OSFile(str(self._files[file].path))))
        return lru_cache(1)(lambda file, batch: _columns(self._files[file].path, reader(file), batch))

    def _place(self, row: int) -> tuple[int, int, int]:
        """File, batch of the file, and row of the batch."""
        file = bisect_right(self._first_rows, row) - 1
        return file, *divmod(row - self._first_rows[file], self._files[file].rows_per_batch)

    def _read_columns(self, file: int, batch: int) -> list[pa.Array]:
        return _columns(self._files[file].path, self._files[file].reader, batch)


def _columns(path: Path, reader: Any, batch: int) -> list[pa.Array]:
    """Columns of a batch in the order of Passage's fields."""
    try:
        read = reader.get_batch(batch)
    except pa.ArrowException as error:
        raise DamagedArtefact(f"{path} is damaged ({error}): build the index again") from error
    return [read.column(name) for name in _PASSAGE_FIELDS]


@dataclass(frozen=True)
class _File:
    """An opened file: all its batches have as many rows as the first, except for the last."""

    path: Path
    reader: Any  # pa.ipc.RecordBatchFileReader
    rows: int
    rows_per_batch: int


def _open_file(path: Path) -> _File:
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        last = reader.num_record_batches - 1
        rows_per_batch, rest = reader.get_batch(0).num_rows, reader.get_batch(last).num_rows
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DamagedArtefact(f"{path} is not whole ({error}): build the index again") from error
    if not reader.schema.equals(SCHEMA):
        raise DamagedArtefact(f"{path} does not have the columns of passages: build the index again")
    return _File(path, reader, last * rows_per_batch + rest, rows_per_batch)


def _read_deleted(file: Path) -> npt.NDArray[np.int64] | None:
    try:
        return npy.load_array(file) if file.exists() else None
    except (OSError, ValueError, EOFError) as error:
        raise DamagedArtefact(f"{file} is damaged: {error}; make the index again") from error


def _file_name(number: int) -> str:
    return f"{number:05d}.arrow"
