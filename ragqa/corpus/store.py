"""Store passages on disk, in memory-mapped Arrow files that open in milliseconds."""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc

from ragqa.artefacts import checksum, npy
from ragqa.corpus.formats.base import Document
from ragqa.corpus.passages import make_passages
from ragqa.errors import ArtefactError, DamagedArtefact
from ragqa.types import Passage

# Plain strings, not dictionaries: dictionaries would save 6 to 8 % of the space, but a file needs them before its first
# row, and reading would not be faster.
SCHEMA = pa.schema(
    [
        ("document", pa.string()),
        ("title", pa.string()),
        ("path", pa.string()),
        ("start", pa.int32()),
        ("end", pa.int32()),
        ("text", pa.string()),
        ("headings", pa.string()),
        ("unit", pa.string()),
        ("number", pa.int32()),
        ("sheet", pa.string()),
        ("tags", pa.string()),
        ("date", pa.string()),
    ]
)
_LISTS = ("headings", "tags")
"""Columns of lists, stored as strings joined by line breaks, because even empty lists of Arrow take space."""
_PASSAGE_FIELDS = [field.name for field in fields(Passage) if field.name != "id"]
DELETED = "deleted.npy"
"""Name of the file with the sorted rows (int64) of deleted passages."""
_BATCH = 1000
"""Number of rows in a batch; only the last batch of a file can have fewer."""
_BATCH_CHARACTERS = 32 << 20
"""Number of characters in a batch after which its file ends, because Arrow limits a column to 2 GiB."""
_CACHED_BATCHES = 256


class PassageWriter:
    """Context manager that writes passages into ``folder/00000.arrow`` and so on.

    A file has a temporary name until it is complete. If the block ends with an exception, the incomplete file is
    deleted.

    Args:
        folder: folder of the files; it is created if it is missing.
        rows_per_file: maximum number of passages in a file.
        first_file: number of the first file to write; None to begin with 0 in a folder without passages.

    Raises:
        ArtefactError: the folder holds passages, and ``first_file`` is None.
    """

    def __init__(self, folder: Path, *, rows_per_file: int = 50_000, first_file: int | None = None) -> None:
        self.rows = 0
        """Number of passages written so far."""
        self._folder, self._rows_per_file, self._files = folder, rows_per_file, first_file or 0
        self._pending: list[Passage] = []
        self._pending_characters = self._rows_in_file = 0
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        folder.mkdir(parents=True, exist_ok=True)
        if first_file is None and any(folder.glob("*.arrow")):
            raise ArtefactError(f"{folder} holds passages already: write into an empty folder")

    def __enter__(self) -> "PassageWriter":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._finish_file()
        elif self._writer is not None:
            self._writer.close()
            self._temporary_file.unlink()

    def add_document(self, document: Document, spans: Iterable[tuple[int, int]]) -> int:
        """Append the passages of a document; return their number. Arguments: see ``make_passages``."""
        before = self.rows
        for passage in make_passages(document, spans):
            self.add_passage(passage)
        return self.rows - before

    def add_passage(self, passage: Passage) -> None:
        """Append a passage at the next row, whose number replaces the passage's id."""
        self._pending.append(passage)
        self._pending_characters += len(passage.text)
        self.rows += 1
        self._rows_in_file += 1
        if self._rows_in_file == self._rows_per_file or self._pending_characters > _BATCH_CHARACTERS:
            self._finish_file()
        elif len(self._pending) == _BATCH:
            self._write_batch()

    @property
    def _temporary_file(self) -> Path:
        return self._folder / f".{_format_file_name(self._files)}.writing"

    def _write_batch(self) -> None:
        if not self._pending:
            return
        if self._writer is None:
            self._writer = pa.ipc.new_file(str(self._temporary_file), SCHEMA)
        columns = [
            ["\n".join(getattr(p, name)) if name in _LISTS else getattr(p, name) for p in self._pending]
            for name in SCHEMA.names
        ]
        self._writer.write_batch(pa.record_batch(columns, schema=SCHEMA))
        self._pending.clear()
        self._pending_characters = 0

    def _finish_file(self) -> None:
        self._write_batch()
        if self._writer is None:
            return
        self._writer.close()
        self._writer, self._rows_in_file = None, 0
        self._temporary_file.rename(self._folder / _format_file_name(self._files))
        self._files += 1


class PassageStore:
    """Passages of an index by row number, read from disk on demand.

    A deleted passage keeps its row, so the row numbers of the other passages never change. If a file is damaged, a
    method that reads it raises DamagedArtefact.
    """

    def __init__(self, files: Sequence["_PassageFile"], deleted: npt.NDArray[np.int64] | None = None) -> None:
        self._files = files
        self.deleted = np.empty(0, np.int64) if deleted is None else deleted
        """Sorted rows of the deleted passages, int64; a search never returns them."""
        self._first_rows = list(accumulate((file.rows for file in files), initial=0))
        self._columns = lru_cache(_CACHED_BATCHES)(
            lambda file, batch: _read_columns(files[file], files[file].reader, batch)
        )

    @classmethod
    def open(cls, folder: Path) -> "PassageStore":
        """Open the passages in ``folder`` by memory mapping, which takes milliseconds.

        Raises:
            ArtefactError: ``folder`` does not exist.
            DamagedArtefact: a file is missing or damaged.
        """
        if not folder.is_dir():
            raise ArtefactError(f"{folder} is not a folder of passages: build the index again")
        paths = sorted(folder.glob("*.arrow"))
        for number, path in enumerate(paths):
            if path.name != _format_file_name(number):
                raise DamagedArtefact(f"{folder / _format_file_name(number)} is missing: build the index again")
        store = cls([_open_file(path) for path in paths], _read_deleted(folder / DELETED))
        if len(store.deleted) and not 0 <= store.deleted[0] <= store.deleted[-1] < len(store):
            raise DamagedArtefact(f"{folder / DELETED} names rows that do not exist; build the index again")
        return store

    def __len__(self) -> int:
        """Return the number of rows, including deleted rows."""
        return self._first_rows[-1]

    @property
    def live_count(self) -> int:
        """Number of passages that are not deleted."""
        return len(self) - len(self.deleted)

    def get_live_rows(self, ranks: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the rows (int64) of live passages, in the shape of ``ranks``.

        Args:
            ranks: numbers from 0 to ``live_count`` - 1, which count only the live passages, in row order.
        """
        live_before = self.deleted - np.arange(len(self.deleted))
        return np.asarray(ranks, np.int64) + np.searchsorted(live_before, ranks, side="right")

    @property
    def last_file(self) -> tuple[int, int]:
        """Number and first row of the last file; -1 and 0 if there is no file."""
        return len(self._files) - 1, self._first_rows[-2] if self._files else 0

    def find_rows(self, values: Iterable[str], column: str = "document") -> npt.NDArray[np.int64]:
        """Return the sorted rows of the live passages whose value in a column is in ``values``.

        Args:
            values: values to find; values that no passage has are ignored.
            column: column of strings in ``SCHEMA``, by default the ids of documents; ``headings`` and ``tags`` are
                joined by line breaks.

        Returns:
            [N] int64 rows.
        """
        import pyarrow.compute as pc  # importing this takes as long as answering a question

        names = pa.array(sorted(values), pa.string())
        rows = [
            first + np.flatnonzero(pc.is_in(chunks, names).to_numpy(zero_copy_only=False))
            for first, chunks in zip(self._first_rows, self._iter_column(column), strict=False)
        ]
        return np.setdiff1d(np.concatenate(rows) if rows else self.deleted[:0], self.deleted)

    def find_matching_rows(self, tests: Mapping[str, Callable[[str], bool]]) -> npt.NDArray[np.int64]:
        """Return the sorted rows [N] of all live passages whose columns pass all tests.

        Args:
            tests: for each column (of strings), a function that returns True if a value passes. It is called once for
                each distinct value in a file.
        """
        rows = [np.empty(0, np.int64)]
        for first, file, *columns in zip(self._first_rows, self._files, *map(self._iter_column, tests), strict=False):
            passes = np.ones(file.rows, bool)
            for test, column in zip(tests.values(), columns, strict=True):
                encoded = column.combine_chunks().dictionary_encode()
                is_wanted = np.array([test(value) for value in encoded.dictionary.to_pylist()], bool)
                passes &= is_wanted[encoded.indices.to_numpy()]
            rows.append(first + np.flatnonzero(passes))
        return np.setdiff1d(np.concatenate(rows), self.deleted)

    def find_starts(self, columns: Iterable[str]) -> npt.NDArray[np.int64]:
        """Return the first row, and all rows where one of ``columns`` differs from the row before.

        Deleted rows count, too.
        """
        import pyarrow.compute as pc

        is_start = np.zeros(len(self), bool)
        for name in columns:
            last = None
            for first, file, chunks in zip(self._first_rows, self._files, self._iter_column(name), strict=False):
                values = chunks.combine_chunks()
                changes = pc.not_equal(values.slice(1), values.slice(0, file.rows - 1))
                is_start[first + 1 : first + file.rows] |= changes.to_numpy(zero_copy_only=False)
                is_start[first] |= values[0].as_py() != last
                last = values[-1].as_py()
        return np.flatnonzero(is_start)

    def list_values(self, column: str) -> set[str]:
        """Return the distinct values of a column of strings in the live passages."""
        values = set[str]()
        for first, file, chunks in zip(self._first_rows, self._files, self._iter_column(column), strict=False):
            is_live = np.isin(np.arange(first, first + file.rows), self.deleted, assume_unique=True, invert=True)
            values.update((chunks if is_live.all() else chunks.filter(pa.array(is_live))).unique().to_pylist())
        return values

    def _iter_column(self, name: str) -> Iterator[pa.ChunkedArray]:
        """Yield the values of a column of strings, file by file."""
        number = _PASSAGE_FIELDS.index(name)
        for file in self._files:
            columns = (
                _read_columns(file, file.reader, batch)[number] for batch in range(file.reader.num_record_batches)
            )
            yield pa.chunked_array(columns, pa.string())

    def __getitem__(self, row: int) -> Passage:
        """Return the passage at a row from 0 to ``len(self)`` - 1; raise IndexError for other rows."""
        if not 0 <= row < len(self):
            raise IndexError(f"there is no row {row} among {len(self)} passages")
        file, batch, position = self._locate(row)
        with _report_bad_text(self._files[file].path):
            return _make_passage(int(row), *(column[position].as_py() for column in self._columns(file, batch)))

    def get(self, rows: Sequence[int]) -> list[Passage]:
        """Return the passages of ``rows`` in the same order; raise IndexError for an unknown row."""
        return [self[row] for row in rows]

    def iter_batches(self, first: int = 0, size: int = 1000) -> Iterator[list[Passage]]:
        """Yield the live passages from row ``first`` on, in lists of 1 to ``size`` passages."""
        columns = self._open_unmapped()
        for start in range(first, len(self), size):
            batch = self._slice(start, min(start + size, len(self)), columns)
            deleted = set(self.deleted[slice(*np.searchsorted(self.deleted, (start, start + size)))].tolist())
            if live := [passage for passage in batch if passage.id not in deleted] if deleted else batch:
                yield live

    def compute_fingerprint(self, known: Mapping[str, str] | None = None) -> str:
        """Return the SHA-256, in hexadecimal, of all files' checksums and the deleted rows.

        Args:
            known: SHA-256 of files that need not be read, in hexadecimal, by file name.
        """
        digest = hashlib.sha256()
        for file in self._files:
            digest.update(bytes.fromhex((known or {}).get(file.path.name) or checksum(file.path)))
        digest.update(self.deleted.astype("<i8").tobytes())
        return digest.hexdigest()

    def read_rows(self, first: int, last: int) -> list[Passage]:
        """Return the passages of rows ``first`` to ``last`` (exclusive), including deleted ones."""
        return self._slice(first, last, self._open_unmapped())

    def _slice(self, start: int, end: int, columns: Callable[[int, int], list[pa.Array]]) -> list[Passage]:
        passages: list[Passage] = []
        while start < end:
            file, batch, position = self._locate(start)
            with _report_bad_text(self._files[file].path):
                values = [column.slice(position, end - start).to_pylist() for column in columns(file, batch)]
            rows = range(start, start + len(values[0]))
            passages.extend(map(_make_passage, rows, *values))
            start = rows.stop
        return passages

    def _open_unmapped(self) -> Callable[[int, int], list[pa.Array]]:
        """Return a function that reads the columns of a batch by file and batch number, for scans."""
        # Scans do not use memory mapping, because mapped pages count as memory of the process.
        reader = lru_cache(1)(lambda file: pa.ipc.open_file(pa.OSFile(str(self._files[file].path))))
        return lru_cache(1)(lambda file, batch: _read_columns(self._files[file], reader(file), batch))

    def _locate(self, row: int) -> tuple[int, int, int]:
        """Return the file of a row, its batch in the file, and its position in the batch."""
        file = bisect_right(self._first_rows, row) - 1
        return file, *divmod(row - self._first_rows[file], self._files[file].rows_per_batch)


def _make_passage(row: int, *values: Any) -> Passage:
    columns = dict(zip(_PASSAGE_FIELDS, values, strict=True))
    lists = {name: tuple(columns[name].split("\n")) if columns[name] else () for name in _LISTS}
    return Passage(row, **{**columns, **lists})


class _PassageFile(NamedTuple):
    """Opened Arrow file of passages."""

    path: Path
    reader: Any  # pa.ipc.RecordBatchFileReader
    rows: int
    rows_per_batch: int
    """Number of rows in each batch except the last, which can have fewer."""


def _read_columns(file: _PassageFile, reader: Any, batch: int) -> list[pa.Array]:
    """Return the columns of a batch in the order of ``_PASSAGE_FIELDS``, after checking them."""
    try:
        columns = reader.get_batch(batch)
        # Arrow does not check offsets: a wrong offset would expose memory of the process or crash it. The check skips
        # UTF-8, so it takes 0.03 ms instead of 1.7 ms for 1,000 passages.
        for column in columns.columns:
            (column.view(pa.binary()) if pa.types.is_string(column.type) else column).validate(full=True)
            if column.null_count:
                raise pa.ArrowInvalid("a field is missing")
        if batch < reader.num_record_batches - 1 and columns.num_rows != file.rows_per_batch:
            raise pa.ArrowInvalid(f"its batch {batch} has {columns.num_rows} rows, not {file.rows_per_batch}")
    except (pa.ArrowException, OSError) as error:
        raise DamagedArtefact(f"{file.path} is damaged ({error}): build the index again") from error
    return [columns.column(name) for name in _PASSAGE_FIELDS]


@contextmanager
def _report_bad_text(path: Path) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise DamagedArtefact(f"{path} is damaged (a text is not UTF-8): build the index again") from error


def _open_file(path: Path) -> _PassageFile:
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        last = reader.num_record_batches - 1
        rows_per_batch, rest = reader.get_batch(0).num_rows, reader.get_batch(last).num_rows
        if not (0 < rest <= rows_per_batch):
            raise ValueError(f"its last batch has {rest} rows, its first {rows_per_batch}")
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DamagedArtefact(f"{path} is not whole ({error}): build the index again") from error
    if not reader.schema.equals(SCHEMA):
        raise DamagedArtefact(
            f"{path} does not have the columns of passages of this version of ragqa: build the index again"
        )
    return _PassageFile(path, reader, last * rows_per_batch + rest, rows_per_batch)


def _read_deleted(file: Path) -> npt.NDArray[np.int64] | None:
    try:
        rows = npy.load_array(file) if file.exists() else None
        if rows is not None and (rows.ndim != 1 or rows.dtype != np.int64 or np.any(rows[1:] <= rows[:-1])):
            raise ValueError("its rows are not ascending whole numbers")
        return rows
    except (OSError, ValueError, EOFError) as error:
        raise DamagedArtefact(f"{file} is damaged: {error}; build the index again") from error


def _format_file_name(number: int) -> str:
    return f"{number:05d}.arrow"
