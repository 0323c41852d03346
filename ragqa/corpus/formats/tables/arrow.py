"""Read Arrow files, Parquet files and data sets of the hub with columns id, title and text."""

import os
from collections.abc import Callable, Iterable, Iterator
from io import FileIO
from itertools import chain
from typing import Any

import pyarrow as pa

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument, describe_error
from ragqa.corpus.formats.tables.arrow_messages import MessageStream
from ragqa.corpus.formats.tables.parquet_pages import find_largest_page

Table = tuple[pa.Schema, Iterable[Any]]
"""Schema of a table, and the batches of its rows (pa.RecordBatch or pa.Table)."""
BATCH_ROWS = 256
"""Maximum number of rows in a batch of Parquet or of a data set of the hub."""
_BATCH_BYTES = 256 << 20
"""Maximum size of a batch of Parquet in bytes; with pages of the usual 1 MB, a batch can have BATCH_ROWS rows."""
_ROW_BYTES = 64
"""Size in memory of a row without its text, in bytes; even a row of nulls has this size."""
_MIN_ROW_BYTES = 16
"""Minimum size of a row with an id and a text in Arrow's buffers, in bytes."""
_COLUMNS = ("id", "title", "text")
_MAX_NAMES = 20
"""Maximum number of column names in an error message."""
_ARROW_MAGIC = b"ARROW1\0\0"
_BUFFER_BYTES = 1 << 20
"""Number of bytes of a Parquet column that are read at a time."""


def read_arrow(file: InputFile) -> Iterator[NumberedDocument]:
    """Yield the rows of an Arrow file, or of a stream that ``datasets`` saved, as documents.

    Raises:
        BadInput, BadLine: as for ``read_table``, which also describes the columns.
    """
    return read_table(file, lambda: _open_arrow(file))


def read_parquet(file: InputFile) -> Iterator[NumberedDocument]:
    """Yield the rows of a Parquet file as documents.

    Raises:
        BadInput, BadLine: as for ``read_table``, which also describes the columns.
    """
    return read_table(file, lambda: _open_parquet(file))


def read_table(file: InputFile, open_table: Callable[[], Table]) -> Iterator[NumberedDocument]:
    """Yield the rows of a table as documents, numbered from 1; memory holds one batch.

    The column ``text`` is required. Without a column ``id``, ids are ``FILE:ROW``. Without a column ``title``, titles
    are empty. Other columns are ignored.

    Args:
        file: file or data set, for the documents and the report.
        open_table: function that opens the table.

    Raises:
        BadInput: in strict mode, the columns do not fit, or the table cannot be read or expands too much.
        BadLine: in strict mode, a row has no text or no id, or the rows after it cannot be read.
    """
    row = 0
    try:
        schema, batches = open_table()
        if problem := _find_problem(schema):
            file.reject(problem)
            return
        for batch in batches:
            yield from _read_batch(batch, row + 1, file)
            row += batch.num_rows
    except (pa.ArrowException, OSError, MemoryError, UnicodeDecodeError) as error:  # names of columns can be bad UTF-8
        further = " further" if row else ""
        file.reject(f"cannot be read{further}: {' '.join(describe_error(error).split())}", row)


def _open_arrow(file: InputFile) -> Table:
    if file.stream.peek(len(_ARROW_MAGIC)).startswith(_ARROW_MAGIC):
        # The file format is a stream between magic bytes and a footer, so it can be read without seeking.
        file.stream.read(len(_ARROW_MAGIC))
    reader = pa.ipc.open_stream(pa.PythonFile(MessageStream(file), "r"))
    return reader.schema, reader


def _open_parquet(file: InputFile) -> Table:
    from pyarrow.parquet import ParquetFile

    # Parquet has its schema at the end of the file, and a stream out of an archive cannot seek.
    if not isinstance(file.stream.raw, FileIO):
        raise pa.ArrowException("it is compressed or in an archive: unpack it first")
    file.budget.count_whole(os.fstat(file.stream.fileno()).st_size)
    # A row group can have a gigabyte, so reading ahead would fill the memory.
    table = ParquetFile(file.stream, pre_buffer=False, buffer_size=_BUFFER_BYTES)
    return table.schema_arrow, _iter_parquet(table, file)


def _iter_parquet(table: Any, file: InputFile) -> Iterator[pa.RecordBatch]:
    names = [name for name in _COLUMNS if name in table.schema_arrow.names]
    for group in range(table.num_row_groups):
        # Each row of a batch can have the longest string of a page, which the page holds once.
        largest = find_largest_page(file.stream, table.metadata.row_group(group), names)
        rows = max(1, min(BATCH_ROWS, _BATCH_BYTES // (largest + 1)))
        for batch in table.iter_batches(rows, row_groups=[group], columns=names, use_threads=False):
            file.budget.spend(batch.nbytes)
            yield batch


def _find_problem(schema: pa.Schema) -> str:
    """Return the reason why rows of a schema are not documents; an empty string if they are."""
    if "text" not in schema.names:
        names = ", ".join(map(repr, schema.names[:_MAX_NAMES])) + (", …" if len(schema.names) > _MAX_NAMES else "")
        return f"no column 'text', only {names or 'no columns at all'}"
    for name in _COLUMNS:
        if schema.names.count(name) > 1:
            return f"several columns '{name}'"
        kind = schema.field(name).type if name in schema.names else pa.null()
        if not (_is_text(kind) or (name == "id" and pa.types.is_integer(kind))):
            return f"the column '{name}' holds {kind}, not strings"
    return ""


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind))


def _read_batch(batch: Any, first: int, file: InputFile) -> Iterator[NumberedDocument]:
    has_ids = "id" in batch.schema.names
    # Rows of nulls take no space in a file, and rows can share a string of a dictionary, so both are counted here.
    size = batch.get_total_buffer_size()  # nbytes would follow offsets that are not checked yet
    file.budget.spend(max(0, _ROW_BYTES * (batch.num_rows - size // _MIN_ROW_BYTES)))
    columns, is_replaced = zip(*(_read_column(batch, name) for name in _COLUMNS), strict=True)
    characters = sum(len(value) for column in columns[1:] for value in column if value)
    file.budget.spend(max(0, characters - size))
    for row, (identifier, title, text) in enumerate(zip(*columns, strict=True), first):
        if any(is_replaced) and "\ufffd" in f"{title}{text}":
            file.note_undecodable(row)
        if text is None:
            file.reject("a row without a text", row)
        elif identifier in (None, "") and has_ids:
            file.reject("a row without an id", row)
        else:
            yield row, Document(str(identifier) if has_ids else f"{file.path}:{row}", title or "", text, file.path)


def _read_column(batch: Any, name: str) -> tuple[list[Any], bool]:
    """Return the values of a column (None if it is missing), and True if bytes were replaced."""
    if name not in batch.schema.names:
        return [None] * batch.num_rows, False
    column = batch.column(name)
    # A batch of a data set of the hub is a table, with several arrays in a column.
    parts = [_read_array(part) for part in (column.chunks if isinstance(column, pa.ChunkedArray) else [column])]
    return list(chain.from_iterable(values for values, _ in parts)), any(is_replaced for _, is_replaced in parts)


def _read_array(array: pa.Array) -> tuple[list[Any], bool]:
    """Return the values of an array, and True if undecodable bytes were replaced."""
    if pa.types.is_dictionary(array.type):
        # Rows share the strings of the dictionary; with a copy for each row, the data could grow a million times.
        values, is_replaced = _read_array(array.dictionary)
        array.indices.validate(full=True)
        pa.DictionaryArray.from_arrays(array.indices, pa.nulls(len(values)), safe=True)  # checks the range of indices
        return [None if index is None else values[index] for index in array.indices.to_pylist()], is_replaced
    # Arrow follows any offset, even out of the file's data, so all offsets are checked first. Strings are checked as
    # bytes, because strings that are not UTF-8 are repaired below.
    as_bytes = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}.get(array.type)
    checked = array if as_bytes is None else array.view(as_bytes)
    checked.validate(full=True)
    try:
        return array.to_pylist(), False
    except UnicodeDecodeError:  # Arrow does not check that its strings are valid UTF-8
        return [value if value is None else value.decode(errors="replace") for value in checked.to_pylist()], True
