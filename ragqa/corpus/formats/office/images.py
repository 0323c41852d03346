"""Recognize the text of images, whose sizes are checked before any library decodes them."""

import struct
from collections.abc import Iterator
from dataclasses import replace

from ragqa.corpus.formats.office.content import Content, UnreadableFile
from ragqa.corpus.formats.office.ocr import MAX_PIXELS, TextRecognizer
from ragqa.corpus.formats.office.pages import build_content, make_page

_MAX_PAGES = 1_000
"""Maximum number of pages of a TIFF."""
_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
_TIFF = {b"II*\0": "<", b"MM\0*": ">"}
"""First bytes of a TIFF, and the byte order of its numbers in the notation of ``struct``."""
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
"""Markers of the JPEG segments that contain the size (start of frame)."""
_WIDTH, _HEIGHT, _SHORT = 256, 257, 3
"""TIFF's tags for width and height, and its type for numbers of two bytes."""


def is_image(data: bytes) -> bool:
    """Return True if the bytes of a file begin like a PNG, JPEG, TIFF or WebP image."""
    return data.startswith((_PNG, _JPEG, *_TIFF)) or _is_webp(data)


def read_image(data: bytes, recognizer: TextRecognizer) -> Content:
    """Return the text in an image; a TIFF of several pages has the unit ``page``.

    Args:
        data: bytes of the file.
        recognizer: text recognition for the image.

    Raises:
        UnreadableFile: the image is damaged or too large, or its text cannot be recognized.
    """
    try:
        sizes = list(_iter_sizes(data))
    except (struct.error, IndexError) as error:  # the file is cut short
        raise UnreadableFile("damaged") from error
    for width, height in sizes:
        if not 0 < width * height <= MAX_PIXELS:
            raise UnreadableFile(f"{width} x {height} pixels: at most {MAX_PIXELS // 1_000_000} million can be read")
    text = recognizer.recognize(data, pages=len(sizes))
    content = build_content([make_page(page) for page in text.removesuffix("\f").split("\f")])
    return content if len(sizes) > 1 else replace(content, unit="")


def _iter_sizes(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the width and height in pixels of each page of an image."""
    if data.startswith(_PNG):
        yield struct.unpack_from(">II", data, 16)
    elif data.startswith(_JPEG):
        yield _measure_jpeg(data)
    elif _is_webp(data):
        yield _measure_webp(data)
    elif order := _TIFF.get(data[:4]):
        yield from _measure_tiff(data, order)
    else:
        raise UnreadableFile("not an image that can be read")


def _measure_jpeg(data: bytes) -> tuple[int, int]:
    place = 2
    while data[place] == 0xFF:
        marker = data[place + 1]
        if marker == 0xFF:  # fill bytes can precede a marker
            place += 1
            continue
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, place + 5)
            return width, height
        place += 2 + struct.unpack_from(">H", data, place + 2)[0]
    raise UnreadableFile("damaged")


def _is_webp(data: bytes) -> bool:
    return data[:4] == b"RIFF" and data[8:12] == b"WEBP"


def _measure_webp(data: bytes) -> tuple[int, int]:
    kind = data[12:16]
    if kind == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack_from("<HH", data, 26)
    return width & 0x3FFF, height & 0x3FFF


def _measure_tiff(data: bytes, order: str) -> Iterator[tuple[int, int]]:
    (place,) = struct.unpack_from(f"{order}I", data, 4)
    for _ in range(_MAX_PAGES):
        (count,) = struct.unpack_from(f"{order}H", data, place)
        values = {}
        for start in range(place + 2, place + 2 + 12 * count, 12):
            tag, kind = struct.unpack_from(f"{order}HH", data, start)
            values[tag] = struct.unpack_from(f"{order}{'H' if kind == _SHORT else 'I'}", data, start + 8)[0]
        yield values.get(_WIDTH, 0), values.get(_HEIGHT, 0)
        (place,) = struct.unpack_from(f"{order}I", data, place + 2 + 12 * count)
        if not place:
            return
    raise UnreadableFile(f"it has more than {_MAX_PAGES:,} pages")
