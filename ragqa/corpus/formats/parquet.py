"""Parquet files, the form of data sets on the Hugging Face hub."""

from collections.abc import Iterator
from io import FileIO

import pyarrow as pa

from ragqa.corpus.formats import columns
from ragqa.corpus.formats.base import InputFile, NumberedDocument

_ROWS = 256
"""Of a batch."""
_BUFFER = 1 << 20
"""Bytes of a column that are read at a time."""


def read(source: InputFile) -> Iterator[NumberedDocument]:
    """The rows of the file in their order, each a document; see ``columns.records``."""
    return columns.records(source, lambda: _opened(source))


def _opened(source: InputFile) -> columns.Table:
    from pyarrow.parquet import ParquetFile

    # what its columns are stands at the end
    if not isinstance(source.stream.raw, FileIO):
        raise pa.ArrowException("it is compressed or in an archive: unpack it first")
    # a whole row group may be a gigabyte: not read ahead
    file = ParquetFile(source.stream, pre_buffer=False, buffer_size=_BUFFER)
    schema = file.schema_arrow
    return schema, file.iter_batches(_ROWS, columns=columns.wanted(schema), use_threads=False)
