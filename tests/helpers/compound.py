"""Writer of compound files ([MS-CFB], version 3) and of messages of Outlook ([MS-OXMSG])."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

_SECTOR, _SMALL_SECTOR, _SMALL = 512, 64, 4096
_END, _FREE, _TABLE = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFD
_TEXT = 0x001F
"""Type of a property of a message: UTF-16."""


def make_compound(streams: Mapping[str, bytes]) -> bytes:
    """Return a compound file with streams of less than 4,096 bytes.

    Args:
        streams: contents by name; ``FOLDER/NAME`` is a stream of a folder in the root.
    """
    assert all(len(content) < _SMALL for content in streams.values())
    folders = {name.partition("/")[0] for name in streams if "/" in name}
    names = [*folders, *streams]
    families = {parent: _sort(name for name in names if name.rpartition("/")[0] == parent) for parent in ("", *folders)}
    order = [name for family in families.values() for name in family]
    place = {name: number for number, name in enumerate(order, 1)} | {None: _FREE}
    following = {
        name: after for family in families.values() for name, after in zip(family, [*family[1:], None], strict=True)
    }
    small, small_table, entries = b"", list[int](), list[bytes]()
    for name in order:
        content = _pad(streams.get(name, b""), _SMALL_SECTOR)
        first, count = len(small_table), len(content) // _SMALL_SECTOR
        small_table += [*range(first + 1, first + count), _END] if count else []
        small += content
        kind, child = (1, place[families[name][0]]) if name in folders else (2, _FREE)
        size, start = len(streams.get(name, b"")), first if count else (0 if kind == 1 else _END)
        entries.append(_make_entry(name.rpartition("/")[2], kind, place[following[name]], child, start, size))
    parts = [_pad(struct.pack(f"<{len(small_table)}I", *small_table), _SECTOR, b"\xff"), _pad(small, _SECTOR)]
    counts = [len(part) // _SECTOR for part in parts]
    parts.append(_pad(_make_entry("Root Entry", 5, _FREE, 1, 1 + counts[0], len(small)) + b"".join(entries), _SECTOR))
    counts.append(len(parts[-1]) // _SECTOR)
    starts = [1, 1 + counts[0], 1 + counts[0] + counts[1]]
    chains = ([*range(start + 1, start + count), _END] for start, count in zip(starts, counts, strict=True) if count)
    table = [_TABLE, *chain.from_iterable(chains)]
    assert len(table) <= _SECTOR // 4
    header = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16) + struct.pack("<HHHHH6x", 0x3E, 3, 0xFFFE, 9, 6)
    header += struct.pack("<9I", 0, 1, starts[2], 0, _SMALL, starts[0], counts[0], _END, 0)
    header += struct.pack("<109I", 0, *[_FREE] * 108)
    return b"".join([header, _pad(struct.pack(f"<{len(table)}I", *table), _SECTOR, b"\xff"), *parts])


def make_message(texts: Mapping[int, str], receivers: Sequence[str] = ()) -> bytes:
    """Return a message of Outlook with texts by the numbers of their properties, such as 0x0037, the subject."""
    streams = _make_properties("", texts, bytes(32))
    for number, address in enumerate(receivers):
        folder, kind = f"__recip_version1.0_#{number:08X}/", struct.pack("<8xHHIII", 3, 0x0C15, 6, 1, 0)
        streams |= _make_properties(folder, {0x3001: address, 0x39FE: address}, kind)
    return make_compound(streams)


def _make_properties(folder: str, texts: Mapping[int, str], table: bytes) -> dict[str, bytes]:
    """Return the streams of texts and the table that lists them after other properties."""
    streams = dict[str, bytes]()
    for number, text in texts.items():
        streams[f"{folder}__substg1.0_{number:04X}{_TEXT:04X}"] = content = text.encode("utf-16-le")
        table += struct.pack("<HHIII", _TEXT, number, 6, len(content) + 2, 0)
    return {**streams, f"{folder}__properties_version1.0": table}


def _sort(names: Iterable[str]) -> list[str]:
    """Return names in the order of a directory."""
    return sorted(names, key=lambda name: (len(name), name.upper()))


def _make_entry(name: str, kind: int, right: int, child: int, start: int, size: int) -> bytes:
    text = name.encode("utf-16-le")
    entry = text.ljust(64, b"\0") + struct.pack("<HBB3I", len(text) + 2, kind, 1, _FREE, right, child)
    return entry + bytes(36) + struct.pack("<IQ", start, size)


def _pad(content: bytes, size: int, filler: bytes = b"\0") -> bytes:
    return content + filler * (-len(content) % size)
