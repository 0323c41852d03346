"""Read the expanded sizes of a Parquet file's pages before Arrow allocates memory for them.

Source of the format: https://parquet.apache.org/docs/file-format (page headers, in Thrift's compact protocol).
"""

from io import BufferedReader
from typing import Any

import pyarrow as pa

from ragqa.corpus.formats.limits import FREE_BYTES, MAX_RATIO, LimitError

_HEAD_BYTES = 1 << 13
_MAX_HEADER_BYTES = 16 << 20
"""Maximum length of a page header in bytes; Arrow has the same limit."""
_MAX_PADDING = 100
"""Maximum number of extra bytes that old writers include in the size of a column (PARQUET-816)."""
_MAX_DEPTH = 8
"""Maximum number of nested structs and lists in a header; the format has three."""
_UNCOMPRESSED, _COMPRESSED = 2, 3
"""Numbers of two fields of a page header: the uncompressed and the compressed size."""
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS = (4, 5, 6)
"""Numbers of Thrift's types; ``_INTEGERS`` are integers of 16, 32 and 64 bits."""


def find_largest_page(stream: BufferedReader, group: Any, names: list[str]) -> int:
    """Return the uncompressed size in bytes of the largest page of some columns.

    Args:
        stream: content of the file; its position changes.
        group: metadata of a row group (pa.parquet.RowGroupMetaData).
        names: names of the columns.

    Raises:
        LimitError: a page expands to more than FREE_BYTES, and to more than MAX_RATIO times its size.
        pa.ArrowException: a page is damaged.
    """
    largest = 0
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema not in names:
            continue
        dictionary = column.dictionary_page_offset
        place = min(column.data_page_offset, dictionary) if dictionary else column.data_page_offset
        end = place + column.total_compressed_size
        while place < end:
            try:
                place, compressed, uncompressed = _read_header(stream, place)
            except IndexError:
                if end - place <= _MAX_PADDING:  # padding, not a page
                    break
                raise pa.ArrowInvalid("the header of a page is damaged") from None
            if uncompressed > max(FREE_BYTES, MAX_RATIO * compressed):
                raise LimitError(f"a page expands to more than {MAX_RATIO} times its size, as only a hostile page does")
            place += compressed
            largest = max(largest, uncompressed)
    return largest


def _read_header(stream: BufferedReader, place: int) -> tuple[int, int, int]:
    """Return the end of a page header, and the compressed and uncompressed size of the page.

    All three are in bytes. A malformed header raises IndexError.
    """
    size = _HEAD_BYTES
    while True:
        stream.seek(max(place, 0))
        data = stream.read(size)
        try:
            parser = _CompactParser(data)
            fields = parser.read_struct()
            break
        except IndexError:  # the header can be longer, because it has strings as statistics
            if len(data) < size or size >= _MAX_HEADER_BYTES:
                raise
            size *= 16
    compressed, uncompressed = fields.get(_COMPRESSED, -1), fields.get(_UNCOMPRESSED, -1)
    if compressed < 0 or uncompressed < 0:
        raise IndexError(place)
    return place + parser.place, compressed, uncompressed


class _CompactParser:
    """Parser of structs in Thrift's compact protocol; a malformed struct raises IndexError."""

    def __init__(self, data: bytes) -> None:
        self._data, self.place = data, 0

    def read_struct(self, depth: int = 0) -> dict[int, int]:
        """Return the integer fields of a struct by number; skip its other fields."""
        integers, number = {}, 0
        while (head := self._read_byte()) != _STOP:
            number = number + (head >> 4) if head >> 4 else self._read_integer()
            value = self._read_value(head & 15, depth)
            if value is not None:
                integers[number] = value
        return integers

    def _read_value(self, kind: int, depth: int) -> int | None:
        if kind in _INTEGERS:
            return self._read_integer()
        if kind == _STRUCT and depth < _MAX_DEPTH:
            self.read_struct(depth + 1)
        elif kind in (_LIST, _SET) and depth < _MAX_DEPTH:
            head = self._read_byte()
            size = head >> 4 if head >> 4 < 15 else self._read_varint()
            for _ in range(size):
                self._read_value(_BYTE if head & 15 in (_TRUE, _FALSE) else head & 15, depth + 1)
        elif kind == _BINARY:
            self._skip(self._read_varint())
        elif kind in (_BYTE, _DOUBLE):
            self._skip(1 if kind == _BYTE else 8)
        elif kind not in (_TRUE, _FALSE):
            raise IndexError(kind)
        return None

    def _skip(self, size: int) -> None:
        self.place += size
        if self.place > len(self._data):
            raise IndexError(self.place)

    def _read_byte(self) -> int:
        self.place += 1
        return self._data[self.place - 1]

    def _read_varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._read_byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise IndexError(shift)

    def _read_integer(self) -> int:
        value = self._read_varint()
        return (value >> 1) ^ -(value & 1)
