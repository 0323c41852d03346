"""Stream of Arrow messages that checks their expanded sizes before Arrow allocates memory.

Source of the format: https://arrow.apache.org/docs/format/Columnar.html (encapsulated messages, compression) and
Message.fbs, from whose tables this module reads a few fields.
"""

import struct
from io import BytesIO

import pyarrow as pa

from ragqa.corpus.formats.base import InputFile
from ragqa.corpus.formats.limits import MAX_RECORD_BYTES, check_size

_CONTINUATION = b"\xff\xff\xff\xff"
_MESSAGE_TYPE, _MESSAGE_HEADER, _MESSAGE_BODY_LENGTH = 1, 2, 3
"""Numbers of fields of the table Message."""
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
"""Types of messages."""
_DICTIONARY_DATA, _BATCH_BUFFERS, _BATCH_COMPRESSION = 1, 2, 3
"""Numbers of fields: one of the table DictionaryBatch, two of the table RecordBatch."""


class MessageStream:
    """File object for ``pa.ipc.open_stream`` that spends a file's budget on expanded messages.

    Args:
        file: file whose stream begins with a message.
    """

    closed = False  # pa.PythonFile reads this attribute

    def __init__(self, file: InputFile) -> None:
        self._stream, self._budget = file.stream, file.budget
        self._head = BytesIO()
        self._body_left = 0

    def read(self, size: int) -> bytes:
        """Return at most ``size`` bytes of a message; empty bytes at the end of the stream.

        Raises:
            LimitError: a message expands to more than the budget of the file, or its head exceeds MAX_RECORD_BYTES.
            pa.ArrowException: a message is damaged.
        """
        if data := self._head.read(size):
            return data
        if self._body_left:
            data = self._stream.read(min(size, self._body_left))
            self._body_left -= len(data)
            return data
        try:
            self._read_message()
        except (struct.error, IndexError) as error:
            raise pa.ArrowInvalid("a message is damaged") from error
        return self._head.read(size)

    def _read_message(self) -> None:
        """Read the head of the next message, and its body if this is compressed."""
        head = self._stream.read(4)
        if head == _CONTINUATION:  # files from before 2019 have no continuation mark
            head += self._stream.read(4)
        length = int.from_bytes(head[-4:], "little", signed=True)
        if length > 0:
            check_size(length, MAX_RECORD_BYTES, "the head of a message")
            metadata = self._stream.read(length)
            head += metadata
            self._body_left, buffers = _parse_message(metadata)
            if buffers:
                body = self._stream.read(self._body_left)
                head, self._body_left = head + body, 0
                self._budget.spend(sum(_read_expanded_size(body, *buffer) for buffer in buffers))
        self._head = BytesIO(head)


def _parse_message(data: bytes) -> tuple[int, list[tuple[int, int]]]:
    """Return the body's length, and the offset and length of each compressed buffer in bytes."""
    message: int = _unpack("<I", data, 0)
    position = _find_field(data, message, _MESSAGE_BODY_LENGTH)
    length = _unpack("<q", data, position) if position else 0
    kind = _find_field(data, message, _MESSAGE_TYPE)
    kind = data[kind] if kind else 0
    if length < 0:
        raise pa.ArrowInvalid("a message has a negative length")
    if kind not in (_DICTIONARY_BATCH, _RECORD_BATCH):
        return length, []
    batch = _follow(data, _find_field(data, message, _MESSAGE_HEADER))
    if kind == _DICTIONARY_BATCH:
        batch = _follow(data, _find_field(data, batch, _DICTIONARY_DATA))
    buffers = _find_field(data, batch, _BATCH_BUFFERS)
    if not buffers or not _find_field(data, batch, _BATCH_COMPRESSION):
        return length, []
    start = _follow(data, buffers)
    end = start + 4 + 16 * _unpack("<I", data, start)
    if end > len(data):
        raise pa.ArrowInvalid("a message is damaged")
    return length, list(struct.iter_unpack("<qq", data[start + 4 : end]))


def _read_expanded_size(body: bytes, start: int, length: int) -> int:
    """Return the expanded size of a compressed buffer, which its first 8 bytes declare."""
    return max(length, _unpack("<q", body, start)) if length > 0 else 0


def _find_field(data: bytes, table: int, number: int) -> int:
    """Return the position of a field of a FlatBuffers table, or 0 if the table lacks it."""
    fields = table - _unpack("<i", data, table)
    if 4 + 2 * number >= _unpack("<H", data, fields):
        return 0
    offset = _unpack("<H", data, fields + 4 + 2 * number)
    return table + offset if offset else 0


def _follow(data: bytes, position: int) -> int:
    """Return the position to which the reference at ``position`` points."""
    return position + _unpack("<I", data, position)


def _unpack(form: str, data: bytes, position: int) -> int:
    if position < 0:  # Python would count from the end of the data
        raise IndexError(position)
    value: int = struct.unpack_from(form, data, position)[0]
    return value
