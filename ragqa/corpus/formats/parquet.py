"""Parquet files, the form of data sets on the Hugging Face hub."""

from collections.abc import Iterator
from io import FileIO

import pyarrow as pa

from ragqa.corpus.formats import columns
from ragqa.corpus.formats.base import InputFile, NumberedDocument

_ROWS = 256
"""Rows of a batch."""
_BUFFER_BYTES = 1 << 20
"""Bytes of a column that are read at a time."""


def read(file: InputFile) -> Iterator[NumberedDocument]:
    """Yield each row of the file as a document; see ``columns.read_table``."""
    return columns.read_table(file, lambda: _open_table(file))


def _open_table(file: InputFile) -> columns.Table:
    from pyarrow.parquet import ParquetFile

    # Parquet's schema stands at the end of the file, which a stream out of an archive cannot seek to.
    if not isinstance(file.stream.raw, FileIO):
        raise pa.ArrowException("it is compressed or in an archive: unpack it first")
    # A row group may be a gigabyte, so that reading it ahead would fill the memory.
    table = ParquetFile(file.stream, pre_buffer=False, buffer_size=_BUFFER_BYTES)
    schema = table.schema_arrow
    return schema, table.iter_batches(_ROWS, columns=columns.select_columns(schema), use_threads=False)
