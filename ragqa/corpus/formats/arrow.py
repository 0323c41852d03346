"""Arrow files: the stream format, which ``Dataset.save_to_disk`` of ``datasets`` writes, and the file format."""

from collections.abc import Iterator

import pyarrow as pa

from ragqa.corpus.formats import columns
from ragqa.corpus.formats.base import InputFile, NumberedDocument

_FILE_FORMAT = b"ARROW1\0\0"


def read(source: InputFile) -> Iterator[NumberedDocument]:
    """The rows of the file in their order, each a document; see ``columns.records``."""
    return columns.records(source, lambda: _opened(source))


def _opened(source: InputFile) -> columns.Table:
    if source.stream.peek(len(_FILE_FORMAT)).startswith(_FILE_FORMAT):
        source.stream.read(len(_FILE_FORMAT))  # what follows, up to the table of contents, is a stream
    reader = pa.ipc.open_stream(source.stream)
    return reader.schema, reader
