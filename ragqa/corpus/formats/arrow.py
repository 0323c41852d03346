"""Arrow files: the stream format, which ``Dataset.save_to_disk`` of ``datasets`` writes, and the file format."""

from collections.abc import Iterator

import pyarrow as pa

from ragqa.corpus.formats import columns
from ragqa.corpus.formats.base import InputFile, NumberedDocument

_FILE_MAGIC = b"ARROW1\0\0"


def read(file: InputFile) -> Iterator[NumberedDocument]:
    """Yield each row of the file as a document; see ``columns.read_table``."""
    return columns.read_table(file, lambda: _open_table(file))


def _open_table(file: InputFile) -> columns.Table:
    if file.stream.peek(len(_FILE_MAGIC)).startswith(_FILE_MAGIC):
        # The file format is a stream between its magic bytes and its footer: so it is read without seeking.
        file.stream.read(len(_FILE_MAGIC))
    reader = pa.ipc.open_stream(file.stream)
    return reader.schema, reader
