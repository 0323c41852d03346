"""Helpers for tests that read documents: files to write, and what is read from them."""

import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path

from ragqa.corpus.hub import is_hub_name
from ragqa.corpus.sources import CorpusReport, Document, count_input_bytes, read_documents


def read(*paths: Path, strict: bool = True, ocr: bool = False) -> tuple[list[Document], CorpusReport]:
    """Read documents; return them and the report, which must count them and all bytes of their files."""
    report = CorpusReport()
    documents = list(read_documents(paths, strict=strict, ocr=ocr, report=report))
    # A document without a date has the date of its file, which these tests do not expect.
    today = date.today().isoformat()
    documents = [replace(document, date="") if document.date == today else document for document in documents]
    assert report.documents == len(documents)
    if not any(map(is_hub_name, paths)):  # for a data set of the hub, characters are counted
        assert report.bytes_read == count_input_bytes(paths)
    return documents, report


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read_one(path: Path, content: str | bytes) -> Document:
    documents, report = read(write(path, content))
    assert len(documents) == 1
    assert report == CorpusReport(documents=1, bytes_read=path.stat().st_size)
    return documents[0]


def to_json_lines(*records: object) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def make_article(identifier: str, title: str, body: str) -> str:
    return f'<doc id="{identifier}" url="http://w?curid={identifier}" title="{title}">\n{title}\n\n{body}\n</doc>\n'


def make_tar(members: dict[str, bytes], mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def make_zip(members: Mapping[str, str | bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()
