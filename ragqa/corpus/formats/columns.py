"""Tables with the columns id, title and text: shared by Arrow files, Parquet files and data sets of the hub."""

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any

import pyarrow as pa

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument, describe_error

Table = tuple[pa.Schema, Iterable[Any]]
"""Schema of a table, and its rows in batches (pa.RecordBatch or pa.Table)."""
_COLUMNS = ("id", "title", "text")
_MAX_NAMES = 20
"""Names of columns that an error lists."""


def read_table(file: InputFile, open_table: Callable[[], Table]) -> Iterator[NumberedDocument]:
    """Yield the rows of a table as documents, numbered from 1; memory holds one batch.

    Without a column ``id`` the id is path and row, since a bare number would also stand for rows of other files. The
    title may be missing. Other columns are ignored.

    Args:
        file: where problems are reported.
        open_table: opens the table.

    Raises:
        BadInput: the table has no texts or cannot be read, and bad input is not skipped.
        BadLine: a row has no text or no id, or cannot be read, and bad input is not skipped.
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
    except (pa.ArrowException, OSError) as error:
        further = " further" if row else ""
        file.reject(f"cannot be read{further}: {' '.join(describe_error(error).split())}", row)


def select_columns(schema: pa.Schema) -> list[str]:
    """Return the names of the columns that need to be read."""
    return [name for name in _COLUMNS if name in schema.names]


def _find_problem(schema: pa.Schema) -> str:
    """Return why a table with this schema cannot be read as documents, or an empty string if it can."""
    if "text" not in schema.names:
        names = ", ".join(map(repr, schema.names[:_MAX_NAMES])) + (", …" if len(schema.names) > _MAX_NAMES else "")
        return f"no column 'text', only {names or 'no columns at all'}"
    for name in select_columns(schema):
        kind = schema.field(name).type
        if not (_is_text(kind) or (name == "id" and pa.types.is_integer(kind))):
            return f"the column '{name}' holds {kind}, not strings"
    return ""


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind))


def _read_batch(batch: Any, first: int, file: InputFile) -> Iterator[NumberedDocument]:
    has_ids = "id" in batch.schema.names
    values, has_replacements = _read_values(batch)
    for row, (identifier, title, text) in enumerate(zip(*values, strict=True), first):
        if has_replacements and "\ufffd" in f"{title}{text}":
            file.note_undecodable(row)
        if text is None:
            file.reject("a row without a text", row)
        elif identifier in (None, "") and has_ids:
            file.reject("a row without an id", row)
        else:
            yield row, Document(str(identifier) if has_ids else f"{file.path}:{row}", title or "", text, file.path)


def _read_values(batch: Any) -> tuple[list[Iterable[Any]], bool]:
    """Return the values of id, title and text (None for a missing column), and whether bytes were replaced."""
    columns = [batch.column(name) if name in batch.schema.names else None for name in _COLUMNS]
    try:
        return [repeat(None, batch.num_rows) if column is None else column.to_pylist() for column in columns], False
    except UnicodeDecodeError:  # Arrow does not check that its strings are valid UTF-8
        return [repeat(None, batch.num_rows) if column is None else _decode(column) for column in columns], True


def _decode(column: Any) -> list[Any]:
    if pa.types.is_integer(column.type):
        return list(column.to_pylist())
    return [
        value if value is None else value.decode(errors="replace") for value in column.cast(pa.binary()).to_pylist()
    ]
