"""Find the encoding of a text by its byte order mark, its declaration or its bytes."""

import codecs
import re

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark is its beginning
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_DECLARATION = re.compile(
    rb"<\?xml[^>]*encoding=[\"']([\w.:-]+)|<meta[^>]+charset=[\"']?([\w.:-]+)|coding[:=]\s*([\w.-]+)"
)
_DECLARATION_BYTES = 2048
_SAMPLE_BYTES = 16_384
_GUESSES = ["cp1251", "koi8_r", "cp1253", "cp1255", "cp1256", "shift_jis", "euc_jp", "gb18030", "big5", "euc_kr"]
"""Encodings to guess among: scripts other than Latin, because a short Latin text does not reveal its encoding."""
_FALLBACK = "cp1252"
# In cp1252, these bytes are symbols inside a word, or rare letters; in cp1250, they are Polish ł and ą, Czech š and ž.
_CENTRAL_LETTERS = re.compile(
    rb"(?<=[A-Za-z\xc0-\xff])[\xa3\xa5\xaf\xb3\xb9\xbe\xbf\x8f\x9d\x9f]+(?=[a-z\xdf-\xff])|[\x8a\x8e\x9a\x9d\x9e]"
)
_CENTRAL_SHARE = 1 / 20
"""Minimum number of Central European letters in a text of cp1250, as a share of its bytes outside ASCII."""
_WESTERN_LETTERS = re.compile(rb"[\xc0\xc5\xe0\xe3\xe5]")
"""Bytes of À, Å, à, ã and å in cp1252; in cp1250 they are rare letters."""
_NOT_ASCII = re.compile(rb"[\x80-\xff]+")
_SHORT_RUN = 2
"""Maximum number of successive bytes outside ASCII in most words of Latin script; other scripts have longer runs."""


def detect_encoding(head: bytes) -> tuple[str, int]:
    """Detect the encoding of a text by its byte order mark.

    Args:
        head: first bytes of the text, at least four if it has them.

    Returns:
        The encoding, and the size of the mark in bytes; UTF-8 and 0 for a text without a mark.
    """
    for mark, encoding in _BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return encoding, len(mark)
    return "utf-8", 0


def decode(data: bytes, encoding: str) -> tuple[str, bool]:
    """Return the decoded text, and True if undecodable bytes were replaced by U+FFFD."""
    try:
        return data.decode(encoding), False
    except UnicodeDecodeError:
        return data.decode(encoding, errors="replace"), True


def choose_encoding(data: bytes) -> str:
    """Return the encoding of a text without a byte order mark.

    For bytes in ASCII, the result is the declared seven-bit encoding, such as ISO-2022-JP, or else UTF-8. For other
    bytes, it is UTF-8 if at most half of the characters outside ASCII are invalid; else the declared encoding if it has
    eight bits and can decode the bytes; else a guess. Windows-1252 stands for a declared ISO-8859-1 or ASCII.
    """
    if data.isascii():
        return _find_declared(data, seven_bits=True) or "utf-8"
    text, is_replaced = decode(data, "utf-8")
    if not is_replaced or 2 * text.count("\ufffd") <= len(text) - len(text.encode("ascii", "ignore")):
        return "utf-8"
    return _find_declared(data, seven_bits=False) or _guess_encoding(data)


def decode_declared(data: bytes, name: str) -> str:
    """Decode bytes by the declared encoding if it fits, else by that of ``choose_encoding``.

    Bytes that the chosen encoding cannot decode are replaced by U+FFFD.

    Args:
        data: bytes of a text.
        name: declared name of the encoding; it can be unknown or empty.
    """
    try:
        return data.decode(_find_codec(name))
    except (LookupError, ValueError):
        return decode(data, choose_encoding(data))[0]


def _find_codec(name: str) -> str:
    """Return the name of Python's codec for a text encoding; raise LookupError without one."""
    codec = codecs.lookup(name.encode("ascii", "replace").decode())
    is_of_texts = getattr(codec, "_is_text_encoding", True)
    if not is_of_texts or codec.name in ("idna", "punycode", "unicode_escape", "undefined"):
        raise LookupError(name)
    # As in browsers, texts declared as ISO-8859-1 or ASCII are read as Windows-1252.
    return _FALLBACK if codec.name in ("iso8859-1", "ascii") else codec.name


def _find_declared(data: bytes, *, seven_bits: bool) -> str:
    """Return the encoding that a text declares; an empty string if it is not usable.

    UTF-8, UTF-16, UTF-32 and encodings that cannot decode the text are not usable. With ``seven_bits``, only encodings
    of seven bits are usable; without it, only others.
    """
    match = _DECLARATION.search(data[:_DECLARATION_BYTES])
    if not match:
        return ""
    try:
        name = _find_codec((match[1] or match[2] or match[3]).decode("ascii"))
        if name.startswith("utf") or seven_bits != name.startswith(("iso2022", "hz")):
            return ""
        data.decode(name)
    except (LookupError, ValueError):  # unknown, an encoding of bytes, or not the encoding of the text
        return ""
    return name


def _guess_encoding(data: bytes) -> str:
    from charset_normalizer import from_bytes

    first = _NOT_ASCII.search(data)
    start = max(0, first.start() - 100) if first else 0
    sample = data[start : start + _SAMPLE_BYTES]
    runs = [len(run) for run in _NOT_ASCII.findall(sample)]
    if 2 * sum(run for run in runs if run > _SHORT_RUN) < sum(runs):
        central, western = len(_CENTRAL_LETTERS.findall(sample)), len(_WESTERN_LETTERS.findall(sample))
        return "cp1250" if central > western and central >= _CENTRAL_SHARE * sum(runs) else _FALLBACK
    best = from_bytes(sample, cp_isolation=[*_GUESSES, _FALLBACK]).best()
    return best.encoding if best else _FALLBACK
