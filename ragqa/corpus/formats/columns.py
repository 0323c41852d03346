"""Tables with the columns id, title and text, as documents: what Arrow files, Parquet files and the hub share."""

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any

import pyarrow as pa

from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument, reason_of

Table = tuple[pa.Schema, Iterable[Any]]
"""The schema of a table and its rows in batches (pa.RecordBatch or pa.Table)."""
_COLUMNS = ("id", "title", "text")
_SHOWN_NAMES = 20


def records(source: InputFile, opened: Callable[[], Table]) -> Iterator[NumberedDocument]:
    """The rows of a table in their order, numbered from 1, in the memory of a batch.

    Without a column id, path and row are the id: a number alone would stand for a row of any other file, too.
    Without a title there is none. Other columns are ignored.
    Raises BadInput on a table without texts or that cannot be read, and BadLine where that shows later and on a
    row without text or id, unless bad input is skipped.
    """
    row = 0
    try:
        schema, batches = opened()
        if what := _problem(schema):
            source.bad(what)
            return
        for batch in batches:
            yield from _documents(batch, row + 1, source)
            row += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        further = " further" if row else ""
        source.bad(f"cannot be read{further}: {' '.join(reason_of(error).split())}", row)


def wanted(schema: pa.Schema) -> list[str]:
    """Those of the columns that need to be read."""
    return [name for name in _COLUMNS if name in schema.names]


def _problem(schema: pa.Schema) -> str:
    """Why a table with this schema cannot be read as documents; nothing if it can."""
    if "text" not in schema.names:
        there = ", ".join(map(repr, schema.names[:_SHOWN_NAMES])) + (", …" if len(schema.names) > _SHOWN_NAMES else "")
        return f"no column 'text', only {there or 'no columns at all'}"
    for name in wanted(schema):
        kind = schema.field(name).type
        if not (_is_text(kind) or (name == "id" and pa.types.is_integer(kind))):
            return f"the column '{name}' holds {kind}, not strings"
    return ""


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind))


def _documents(batch: Any, first: int, source: InputFile) -> Iterator[NumberedDocument]:
    numbered = "id" not in batch.schema.names
    values, mended = _values(batch)
    for row, (identifier, title, text) in enumerate(zip(*values, strict=True), first):
        if mended and "\ufffd" in f"{title}{text}":
            source.replaced(row)
        if text is None:
            source.bad("a row without a text", row)
        elif identifier in (None, "") and not numbered:
            source.bad("a row without an id", row)
        else:
            yield row, Document(f"{source.path}:{row}" if numbered else str(identifier), title or "", text, source.path)


def _values(batch: Any) -> tuple[list[Iterable[Any]], bool]:
    """The values of id, title and text, None where there is no such column; whether bytes were replaced in them."""
    there = [batch.column(name) if name in batch.schema.names else None for name in _COLUMNS]
    try:
        return [repeat(None, batch.num_rows) if column is None else column.to_pylist() for column in there], False
    except UnicodeDecodeError:  # Arrow does not check that what it calls strings is UTF-8
        return [repeat(None, batch.num_rows) if column is None else _mended(column) for column in there], True


def _mended(column: Any) -> list[Any]:
    if pa.types.is_integer(column.type):
        return list(column.to_pylist())
    return [
        value if value is None else value.decode(errors="replace") for value in column.cast(pa.binary()).to_pylist()
    ]
