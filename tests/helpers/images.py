"""Heads of image files; the last byte, a letter, stands for the pixels."""

import struct


def make_png(width: int = 800, height: int = 600, letter: str = "a") -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + letter.encode()


def make_jpeg(width: int, height: int) -> bytes:
    head = b"\xff\xd8" + b"\xff\xe0\0\x04ab" + b"\xff\xff\xc4\0\x03a"
    return head + struct.pack(">BBHBHH", 0xFF, 0xC2, 17, 8, height, width) + b"a"


def make_tiff(width: int, height: int, pages: int = 1, order: str = "<") -> bytes:
    data = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(f"{order}I", 8)
    for page in range(1, pages + 1):
        entries = struct.pack(f"{order}HHIIHHIHH", 256, 4, 1, width, 257, 3, 1, height, 0)
        following = len(data) + 30 if page < pages else 0
        data += struct.pack(f"{order}H", 2) + entries + struct.pack(f"{order}I", following)
    return data + b"t"


def make_webp(kind: bytes, width: int, height: int) -> bytes:
    size = {
        b"VP8X": b"\0\0\0\0" + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little"),
        b"VP8L": b"\x2f" + ((width - 1) | (height - 1) << 14).to_bytes(4, "little"),
        b"VP8 ": b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height),
    }[kind]
    return b"RIFF\0\0\0\0WEBP" + kind + b"\0\0\0\0" + size + b"b"
