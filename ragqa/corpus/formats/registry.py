"""Which reader an input needs: by its suffix, and where that tells nothing by its first bytes."""

import bz2
import gzip
import lzma
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import BufferedReader
from pathlib import PurePath
from typing import Any, cast

from ragqa.corpus.formats import archive, arrow, dpr, html, jsonl, parquet, pdf, plain, wikiextractor
from ragqa.corpus.formats.base import Document, InputFile, NumberedDocument, encoding_of
from ragqa.corpus.formats.mediawiki import dump

BUFFER = 1 << 18
"""Bytes that are read from a file at a time."""
_HEAD = 8192
_SUFFIXES: dict[str, Callable[[InputFile], Iterator[NumberedDocument]]] = {
    ".txt": plain.read,
    ".md": plain.read,
    ".markdown": plain.read,
    ".html": html.read,
    ".htm": html.read,
    ".pdf": pdf.read,
    ".jsonl": jsonl.read,
    ".tsv": dpr.read,
    ".arrow": arrow.read,
    ".parquet": parquet.read,
}
_BINARY = (arrow.read, parquet.read)
_COMPRESSION: dict[str, Callable[[BufferedReader], object]] = {
    ".xz": lzma.open,
    ".gz": gzip.open,
    ".bz2": bz2.open,
}


def read_input(source: InputFile) -> Iterator[tuple[InputFile, int, Document]]:
    """The documents of an opened input, or of the members of an archive, with where they come from."""
    source = _decompressed(source)
    if _suffix(source) == ".tar":
        for member in archive.members(source):
            yield from read_input(member)
        return
    head = source.stream.peek(_HEAD)[:_HEAD]
    read = _reader(_suffix(source), head)
    if read is None:
        source.intake.not_text(source.path, _unknown(_suffix(source), head))
        return
    for line, document in read(source):
        yield source, line, document


def _reader(suffix: str, head: bytes) -> Callable[[InputFile], Iterator[NumberedDocument]] | None:
    known = _SUFFIXES.get(suffix)
    if known is pdf.read or (known is None and head.startswith(b"%PDF-")):
        return pdf.read
    if known in _BINARY:
        return known
    if _binary(head):
        return None
    start = head.removeprefix(BOM_UTF8).lstrip()
    if known in (plain.read, None) and start.startswith(wikiextractor.BEGINNING.encode()):
        return wikiextractor.read
    if known is None and dump.BEGINNING.match(start):  # .xml, and .xml-p1p41242 of a dump in parts
        return dump.read
    if suffix == "":
        return jsonl.read if start.startswith(b'{"') else plain.read
    return known


def _unknown(suffix: str, head: bytes) -> str:
    if _binary(head):
        return "binary"
    return "XML, but not a dump of a wiki (no <mediawiki>)" if suffix == ".xml" else "of no known type"


def _binary(head: bytes) -> bool:
    return b"\0" in head and encoding_of(head)[0] == "utf-8"


def _decompressed(source: InputFile) -> InputFile:
    expand = _COMPRESSION.get(_suffix(source))
    if expand is None:
        return source
    stream = BufferedReader(cast(Any, expand(source.stream)), BUFFER)
    return replace(source, name=PurePath(source.name).stem, stream=stream)


def _suffix(source: InputFile) -> str:
    return PurePath(source.name).suffix.lower()
