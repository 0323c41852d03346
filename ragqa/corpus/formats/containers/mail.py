"""Read mails with their attachments, from single files (``.eml``) and mailboxes (``mbox``).

A mailbox is read as a stream, so memory holds one mail. Python's ``mailbox`` would read the whole file first.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from email import message_from_bytes
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from functools import partial
from io import BufferedReader, BytesIO
from mimetypes import guess_extension
from typing import Any

from ragqa.corpus.formats.base import Document, InputFile, Section
from ragqa.corpus.formats.containers.tar_archives import make_member_path
from ragqa.corpus.formats.encodings import choose_encoding, decode, decode_declared
from ragqa.corpus.formats.front_matter import parse_date
from ragqa.corpus.formats.html import parse_html
from ragqa.corpus.formats.limits import MAX_RECORD_BYTES, check_size
from ragqa.corpus.formats.records import format_record

MAILBOX = re.compile(rb"From \S+ [^\n]{10,60}\d{4}[^\n]{0,10}\n[A-Za-z][\w-]*:")
"""Pattern of the first bytes of a mailbox; mailboxes often have no suffix."""
_FIELDS = ("From", "To", "Cc", "Date")
_MAX_FIELD_CHARACTERS = 5_000
"""Maximum number of characters that are read of a header field, which can have thousands of addresses."""
_BOUNDARY = re.compile(rb"boundary\s*=", re.IGNORECASE)
_MAX_WORK = 500_000_000
"""Maximum product of a mail's bytes and boundaries, because Python compares each line with all open boundaries."""
_MAX_LEVELS = 30
"""Maximum depth of nested parts; deeper parts are left out."""
MailItem = Document | InputFile
"""Document of a mail, or opened file of an attachment."""


def iter_mail(file: InputFile) -> Iterator[MailItem]:
    """Yield the mail in a file, and then its attachments, whose paths are ``FILE/NAME``.

    Raises:
        BadInput: in strict mode, the mail cannot be parsed.
        LimitError: the mail is longer than MAX_RECORD_BYTES, or the file expands too much.
    """
    data = file.stream.read(MAX_RECORD_BYTES + 1)
    check_size(len(data), MAX_RECORD_BYTES, "a mail")
    yield from _read_mail(data, file, file.path)


def iter_mailbox(file: InputFile) -> Iterator[MailItem]:
    """Yield each mail of a mailbox, followed by its attachments.

    The id of a mail is ``FILE#NUMBER``, with numbers from 1. The path of an attachment is ``FILE#NUMBER/NAME``.

    Raises:
        BadLine: in strict mode, a mail cannot be parsed or is longer than MAX_RECORD_BYTES; the message has its number.
        BadInput: in strict mode, the file is not a mailbox.
        LimitError: the file expands too much.
    """
    lines, size, number = list[bytes](), 0, 0
    is_after_blank = True
    for line in iter(partial(file.stream.readline, MAX_RECORD_BYTES), b""):
        if is_after_blank and line.startswith(b"From "):
            if number:
                yield from _finish_mail(lines, size, file, number)
            lines, size, number = [], 0, number + 1
        elif number:
            size += len(line)
            if size <= MAX_RECORD_BYTES:
                lines.append(line[1:] if line.startswith(b">From ") else line)
            else:
                lines.clear()
        is_after_blank = line in (b"\n", b"\r\n")
    if number:
        yield from _finish_mail(lines, size, file, number)
    else:
        file.reject("not a mailbox: no line begins with 'From '")


def _finish_mail(lines: list[bytes], size: int, file: InputFile, number: int) -> Iterator[MailItem]:
    if size > MAX_RECORD_BYTES:
        file.reject(f"mail {number} is longer than {MAX_RECORD_BYTES // 1_000_000} MB", number)
    else:
        yield from _read_mail(b"".join(lines), file, f"{file.path}#{number}", number)


def _read_mail(data: bytes, file: InputFile, identifier: str, number: int = 0) -> Iterator[MailItem]:
    try:
        if len(data) * len(_BOUNDARY.findall(data)) > _MAX_WORK:
            raise ValueError("it has too many parts")
        mail = message_from_bytes(data)
        parts = list(_iter_parts(mail))
    except (RecursionError, ValueError, LookupError, TypeError, AttributeError) as error:
        file.reject(f"not a mail that can be read: {error}", number)
        return
    document = _make_document(mail, [part for part in parts if _is_body(part)], file, identifier)
    yield document
    for place, part in enumerate((part for part in parts if not _is_body(part)), 1):
        name = make_member_path(_find_name(part, place)).replace("/", "_")
        stream: Any = BytesIO(_get_bytes(part))
        yield replace(file, path=f"{identifier}/{name}", name=name, stream=BufferedReader(stream), date=document.date)


def _iter_parts(part: Message, level: int = 0) -> Iterator[Message]:
    """Yield the parts of a mail that contain no further parts; a forwarded mail is one part.

    Of several versions of a text (``multipart/alternative``), only the plain ones are yielded, or the first one if none
    is plain. Attachments are always yielded.
    """
    if part.get_content_maintype() != "multipart" or not part.is_multipart():
        yield part
    elif level < _MAX_LEVELS:
        inner = [leaf for child in part.get_payload() for leaf in _iter_parts(child, level + 1)]  # type: ignore[arg-type]
        if part.get_content_subtype() == "alternative":
            bodies = [leaf for leaf in inner if _is_body(leaf)]
            chosen = [leaf for leaf in bodies if leaf.get_content_type() == "text/plain"] or bodies[:1]
            inner = [leaf for leaf in inner if leaf in chosen or not _is_body(leaf)]
        yield from inner


def _is_body(part: Message) -> bool:
    is_text = part.get_content_type() in ("text/plain", "text/html")
    return is_text and not part.get_filename() and part.get_content_disposition() != "attachment"


def _make_document(mail: Message, bodies: list[Message], file: InputFile, identifier: str) -> Document:
    head = format_record(_FIELDS, [_get_field(mail, name) for name in _FIELDS])
    text = f"{head}\n\n" if head else ""
    sections = [Section(0, len(head), has_records=True)] * bool(head)
    for body in bodies:
        content = decode_declared(_get_bytes(body), str(body.get_content_charset() or ""))
        if body.get_content_type() == "text/html":
            page = parse_html(content, file)
            content, inner = page.text, page.sections
        else:
            inner = (Section(0, len(content)),)
        shift = len(text)
        sections += [replace(part, start=part.start + shift, end=part.end + shift) for part in inner]
        text += f"{content}\n"
    title = _get_field(mail, "Subject") or file.make_title()
    return Document(identifier, title, text, file.path, tuple(sections), date=parse_date(_get_field(mail, "Date")))


def _get_bytes(part: Message) -> bytes:
    """Return the content of a part; for a mail or a report, its source; empty if damaged."""
    payload: Any = part.get_payload(decode=True)
    if isinstance(payload, bytes):
        return payload
    inner: Any = part.get_payload()
    try:
        return b"".join(block.as_bytes() for block in inner) if isinstance(inner, list) else b""
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):  # damaged mails raise all of these
        return b""


def _get_field(mail: Message, name: str) -> str:
    """Return a decoded header field in one line; empty if the mail does not have the field."""
    raw = next((value for key, value in mail.raw_items() if key.lower() == name.lower()), "")
    data = str(raw)[:_MAX_FIELD_CHARACTERS].encode("utf-8", "surrogateescape")
    text, _ = decode(data, choose_encoding(data))
    try:
        pieces = [
            piece if isinstance(piece, str) else decode_declared(piece, charset or "")
            for piece, charset in decode_header(text)
        ]
    except (HeaderParseError, ValueError):
        pieces = [text]
    return " ".join("".join(pieces).split())


def _find_name(part: Message, place: int) -> str:
    kind = part.get_content_type()
    suffix = ".eml" if kind == "message/rfc822" else guess_extension(kind) or ""
    try:
        name = str(part.get_filename() or "")
    except (ValueError, LookupError, TypeError, AttributeError):
        name = ""
    name = " ".join(name.split())[-200:]
    return name if "." in name else f"{name or f'attachment {place}'}{suffix}"
