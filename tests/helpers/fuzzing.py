"""Mutations of good documents, and processes that read them.

A mutation is made from its target and number, so that a failure can be repeated. A process that crashes or hangs is
started again behind the mutation that ended it.
"""

import bz2
import gzip
import json
import lzma
import os
import random
import resource
import signal
import subprocess
import sys
import traceback
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from email.message import EmailMessage
from functools import cache
from io import BytesIO
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory

import pyarrow as pa

from ragqa.corpus.formats import html, markdown, wikiextractor
from ragqa.corpus.formats.mediawiki import dump
from ragqa.corpus.formats.office import parser as office
from ragqa.corpus.formats.tables import arrow, delimited, dpr, json_values, jsonl
from ragqa.corpus.formats.text import markup, notebook, plain
from ragqa.corpus.sources import read_documents
from tests.helpers.binary_workbook import make_binary_workbook
from tests.helpers.compound import make_message
from tests.helpers.documents import make_article, make_tar, make_zip, to_json_lines
from tests.helpers.images import make_jpeg, make_png, make_tiff, make_webp
from tests.helpers.office import (
    make_book,
    make_open_document,
    make_open_table,
    make_paragraph,
    make_row,
    make_slides,
    make_word,
    make_word_table,
    make_workbook,
)
from tests.helpers.pdf import make_pdf
from tests.helpers.tables import write_arrow_file, write_arrow_stream, write_parquet

_DATA = Path(__file__).parents[1] / "data"
OLD_WORKBOOK, OLD_WORD, OLD_SLIDES = _DATA / "towers.xls", _DATA / "towers.doc", _DATA / "towers.ppt"
"""Files of Office 97; no package that ragqa uses writes such files."""
CPU_SECONDS = 10.0
"""CPU time after which a mutation counts as one that hangs; a good file takes a few milliseconds."""
MEMORY_BYTES = 4 << 30
"""Address space of the process: far more than it needs, and not enough to harm the machine."""
_SENTENCES = [f"Tower {n} of the coast – größer als 東京 – was built in {1800 + n} by Ada Holm." for n in range(40)]
_ROWS = {"id": [str(n) for n in range(40)], "title": ["Tower", None] * 20, "text": _SENTENCES}
_PAGE = "<page><title>Tower {0}</title><ns>0</ns><id>{0}</id><revision><text>{1}</text></revision></page>"
_WIKITEXT = (
    "== History ==\n'''{0}''' {{{{Infobox|a=b}}}} [[Coast|the coast]]&lt;ref&gt;x&lt;/ref&gt;\n* item\n{{|\n|-\n|a\n|}}"
)

_MARKDOWN = "---\ntitle: Towers\ntags: [a, b]\ndate: 2024-05-01\n---\n# Towers\n\nOld\n---\n" + "".join(
    f"## Tower {n}\n{text}\n\n| Name | Year |\n|:--|--:|\n| **Tower** {n} | {1800 + n} |\n\n```\n# code\n```\n"
    for n, text in enumerate(_SENTENCES)
)


@dataclass(frozen=True)
class Target:
    """Reader of a format, and good files for it."""

    read: Callable[..., object] | str
    """Function ``read`` of the format, or the suffix of a container."""
    name: str
    """File name."""
    make: Callable[[], bytes]
    """Function that makes the content of a good file."""


def _save(write: Callable[..., Path], **options: object) -> bytes:
    with TemporaryDirectory() as folder:
        return write(Path(folder) / "table", _ROWS, **options).read_bytes()


def _make_compressed_arrow() -> bytes:
    table, sink = pa.table({**_ROWS, "title": pa.array(_ROWS["title"]).dictionary_encode()}), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table, max_chunksize=15)
    return sink.getvalue().to_pybytes()


def _make_html() -> bytes:
    rows = "".join(f"<tr><td class='a>b'>{text}</td><td>&eacute;&#233;</td></tr>" for text in _SENTENCES)
    rows = f"<tr><th>Text<th colspan=2>Sign</tr>{rows}"
    meta = "<meta name='date' content='2024-05-01'>"
    head = f"<!DOCTYPE html><html><head>{meta}<title>Towers</title><script>if (a < b) x();</script></head>"
    body = f"<!-- menu --><nav>Menu</nav><h1>Coast</h1><table>{rows}</table><pre> a\n b</pre>"
    return f"{head}<body>{body}</body></html>".encode()


def _make_dump() -> bytes:
    pages = "".join(_PAGE.format(n, _WIKITEXT.format(text)) for n, text in enumerate(_SENTENCES[:8]))
    site = "<siteinfo><namespaces><namespace key='6'>Datei</namespace></namespaces></siteinfo>"
    return f'<mediawiki xml:lang="en">{site}{pages}</mediawiki>'.encode()


def _make_archive() -> bytes:
    members = {"a.jsonl": _make_json_lines(), "b/c.html": _make_html(), "d.md.gz": gzip.compress(b"# Title\n\nText.")}
    return make_tar({**members, "x" * 120 + "é.txt": b"A long name."})


def _make_mail() -> bytes:
    mail = EmailMessage()
    mail["Subject"], mail["From"], mail["Date"] = "Tower größer", "Ada <ada@b.c>", "Thu, 11 Apr 2024 15:20:00 +0000"
    mail.set_content("\n".join(_SENTENCES[:8]))
    mail.add_alternative(_make_html().decode(), subtype="html")
    mail.add_attachment(_make_table(), maintype="text", subtype="csv", filename="größe.csv")
    return mail.as_bytes()


def _make_zip() -> bytes:
    return make_zip({"a.jsonl": _make_json_lines(), "b/c.html": _make_html(), "d.zip": make_zip({"e.txt": b"Tower."})})


def _make_json_lines() -> bytes:
    records = [{"id": str(n), "title": "Tower", "text": text} for n, text in enumerate(_SENTENCES)]
    return to_json_lines(*records).encode()


def _make_pdf() -> bytes:
    return make_pdf([text.encode("ascii", "ignore").decode() for text in _SENTENCES[:5]])


def _make_rows() -> list[list[str]]:
    return [["Tower", "Year"], *([text, str(1800 + number)] for number, text in enumerate(_SENTENCES))]


def _make_word() -> bytes:
    body = make_paragraph("Towers", "T") + "".join(make_paragraph(text) for text in _SENTENCES)
    return make_word(body + make_paragraph("Table", "H1") + make_word_table(_make_rows()), notes="A note.")


def _make_slides() -> bytes:
    return make_slides([(f"Tower {n}", [text]) for n, text in enumerate(_SENTENCES[:8])], notes="A note.")


def _make_workbook() -> bytes:
    rows = "".join(make_row(n, text, n / 4, date(2024, 3, 1)) for n, text in enumerate(_SENTENCES, 2))
    rows = rows.replace('<c r="B', '<c s="2" r="B')
    return make_workbook({"Towers": make_row(1, "Tower", "Height", "Day") + rows, "Empty": ""}, ['#,##0.0 "m"'])


def _make_open_text() -> bytes:
    lines = "".join(f"<text:p>{text}<text:s/></text:p>" for text in _SENTENCES)
    return make_open_document("text", f"<text:h>Towers</text:h>{lines}{make_open_table(_make_rows())}")


def _make_open_slides() -> bytes:
    frame = "<draw:frame><draw:text-box><text:p>{}</text:p></draw:text-box></draw:frame>"
    slides = (f"<draw:page>{frame.format('Tower')}{frame.format(text)}</draw:page>" for text in _SENTENCES)
    return make_open_document("presentation", "".join(slides))


def _make_book() -> bytes:
    chapters = {f"c{n}": f"<h1>Tower {n}</h1><p>{text}</p>" for n, text in enumerate(_SENTENCES[:8])}
    return make_book(chapters)


def _make_rich_text() -> bytes:
    lines = (text.encode("ascii", "ignore").decode() for text in _SENTENCES)
    return "".join(
        (r"{\rtf1\ansi{\fonttbl{\f0 Times;}}{\b Towers}\par ", *(rf"{line}\par " for line in lines), "}")
    ).encode()


def _make_passages() -> bytes:
    rows = (f'{n}\t"{text}"\tTower\n' for n, text in enumerate(_SENTENCES))
    return f"id\ttext\ttitle\n{''.join(rows)}".encode()


def _make_table() -> bytes:
    rows = (f'{n};"{text}, ""tall"";\nand old";{1800 + n}\n' for n, text in enumerate(_SENTENCES))
    return f"Towers;;\nNumber;Text;Built\n{''.join(rows)}".encode()


def _make_markup(heading: str) -> str:
    return "\\title{Towers}\n\\begin{document}\n" + "".join(f"{heading.format('Coast')}{text}\n" for text in _SENTENCES)


def _make_notebook() -> bytes:
    outputs = [{"text": ["1\n"]}, {"data": {"text/plain": "2"}}]
    cells = [
        {"cell_type": kind, "source": [f"# Tower {n}\n", text], "outputs": outputs}
        for n, text in enumerate(_SENTENCES)
        for kind in ("markdown", "code")
    ]
    return json.dumps({"cells": cells, "nbformat": 4}).encode()


def _make_json() -> bytes:
    towers = [{"name": f"Tower {n}", "text": text, "rooms": [n, 2]} for n, text in enumerate(_SENTENCES)]
    return json.dumps({"coast": "North", "towers": towers, "walls": [[{"a": {"b": None}}, True, 1.5e300]]}).encode()


def _make_articles() -> bytes:
    return "".join(make_article(str(n), "Tower &amp; sea", text) for n, text in enumerate(_SENTENCES)).encode()


_TEXT = "\n\n".join(["# Towers", *_SENTENCES])
TARGETS = {
    "pdf": Target(office.read, "a.pdf", _make_pdf),
    "word": Target(office.read, "a.docx", _make_word),
    "slides": Target(office.read, "a.pptx", _make_slides),
    "workbook": Target(office.read, "a.xlsx", _make_workbook),
    "workbook-old": Target(office.read, "a.xls", lambda: OLD_WORKBOOK.read_bytes()),
    "workbook-binary": Target(office.read, "a.xlsb", lambda: make_binary_workbook("Towers", _make_rows())),
    "word-old": Target(office.read, "a.doc", lambda: OLD_WORD.read_bytes()),
    "slides-old": Target(office.read, "a.ppt", lambda: OLD_SLIDES.read_bytes()),
    "message": Target(office.read, "a.msg", lambda: make_message({0x37: "Tower", 0x1000: _TEXT[:1500]}, ["a@b.c"])),
    "open-text": Target(office.read, "a.odt", _make_open_text),
    "open-slides": Target(office.read, "a.odp", _make_open_slides),
    "open-sheet": Target(
        office.read, "a.ods", lambda: make_open_document("spreadsheet", make_open_table(_make_rows(), "S"))
    ),
    "book": Target(office.read, "a.epub", _make_book),
    "rich-text": Target(office.read, "a.rtf", _make_rich_text),
    "png": Target(office.read, "a.png", lambda: make_png(800, 600)),
    "jpeg": Target(office.read, "a.jpg", lambda: make_jpeg(800, 600)),
    "tiff": Target(office.read, "a.tif", lambda: make_tiff(800, 600, 3)),
    "webp": Target(office.read, "a.webp", lambda: make_webp(b"VP8X", 800, 600)),
    "arrow": Target(arrow.read_arrow, "a.arrow", lambda: _save(write_arrow_stream, rows=15)),
    "arrow-file": Target(arrow.read_arrow, "a.arrow", lambda: _save(write_arrow_file)),
    "arrow-compressed": Target(arrow.read_arrow, "a.arrow", _make_compressed_arrow),
    "parquet": Target(arrow.read_parquet, "a.parquet", lambda: _save(write_parquet)),
    "parquet-plain": Target(
        arrow.read_parquet, "a.parquet", lambda: _save(write_parquet, use_dictionary=False, compression="zstd")
    ),
    "html": Target(html.read, "a.html", _make_html),
    "dpr": Target(dpr.read, "a.tsv", _make_passages),
    "wikiextractor": Target(wikiextractor.read, "wiki_00", _make_articles),
    "dump": Target(dump.read, "a.xml", _make_dump),
    "jsonl": Target(jsonl.read, "a.jsonl", _make_json_lines),
    "csv": Target(delimited.read, "a.csv", _make_table),
    "json": Target(json_values.read, "a.json", _make_json),
    "lines": Target(plain.read_lines, "a.log", lambda: "\n".join(_SENTENCES).encode()),
    "rst": Target(markup.read, "a.rst", lambda: _make_markup("{0}\n=====\n").encode()),
    "org": Target(markup.read, "a.org", lambda: _make_markup("* {0}\n#+begin_src\n* x\n#+end_src\n").encode()),
    "adoc": Target(markup.read, "a.adoc", lambda: _make_markup("== {0}\n----\n= x\n----\n").encode()),
    "tex": Target(markup.read, "a.tex", lambda: _make_markup("\\section*[x]{{{0} \\emph{{a}}}}\n% no\n").encode()),
    "notebook": Target(notebook.read, "a.ipynb", _make_notebook),
    "markdown": Target(markdown.read, "a.md", lambda: _MARKDOWN.encode()),
    "plain": Target(plain.read, "a.txt", lambda: _TEXT.encode()),
    "plain-utf-16": Target(plain.read, "a.txt", lambda: _TEXT.encode("utf-16")),
    "tar": Target(".tar", "a.tar", _make_archive),
    "zip": Target(".zip", "a.zip", _make_zip),
    "mail": Target(".eml", "a.eml", _make_mail),
    "mailbox": Target(".mbox", "a.mbox", lambda: b"".join(b"From a@b.c\n" + _make_mail() + b"\n" for _ in range(2))),
    "gz": Target(".gz", "a.jsonl.gz", lambda: gzip.compress(_make_json_lines())),
    "bz2": Target(".bz2", "a.xml.bz2", lambda: bz2.compress(_make_dump())),
    "xz": Target(".xz", "a.tar.xz", lambda: lzma.compress(_make_archive())),
}
"""Targets by name; each format and each container has one or more."""
_PACKAGES = ("word", "slides", "workbook", "workbook-binary", "open-text", "open-slides", "open-sheet", "book")
"""Targets that are ZIP archives; every second mutation is one of a member."""
_INSIDE: dict[str, tuple[Callable[[], bytes], Callable[[bytes], bytes]]] = {
    "gz": (_make_json_lines, gzip.compress),
    "bz2": (_make_dump, bz2.compress),
    "xz": (_make_archive, lzma.compress),
}
"""Content of compressed targets; every second mutation is one of it, because most of a stream end it at once."""


@cache
def make_good(name: str) -> bytes:
    """Return the content of a good file of a target."""
    return TARGETS[name].make()


def mutate(name: str, number: int) -> bytes:
    """Return mutation ``number`` of the good file of a target."""
    rng = random.Random(f"{name} {number}")
    if name in _INSIDE and number % 2:
        make, compress = _INSIDE[name]
        return compress(_mutate(make(), rng))
    if name in _PACKAGES and number % 2:
        with zipfile.ZipFile(BytesIO(make_good(name))) as archive:
            members = {member: archive.read(member) for member in archive.namelist()}
        member = rng.choice(sorted(members))
        return make_zip({**members, member: _mutate(members[member], rng)})
    return _mutate(make_good(name), rng)


def _mutate(content: bytes, rng: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4))):
        start = rng.randrange(len(data) + 1)
        end = min(len(data), start + rng.choice((1, 2, 8, 100, len(data))))
        kind = rng.randrange(7)
        if kind == 0:  # flipped bits
            for place in range(start, min(end, start + 8)):
                data[place] ^= 1 << rng.randrange(8)
        elif kind == 1:  # a cut
            del data[start:end]
        elif kind == 2:  # an inserted run
            unit = rng.choice(
                (b"\0", b"\xff", b"<", b"[", b'"', b"{{", b"\n", b"<!--", bytes(data[start : start + 9]) or b" ")
            )
            data[start:start] = unit * rng.choice((1, 10, 1_000, 5_000))
        elif kind == 3:  # a chunk again
            data[start:start] = data[start:end] * rng.choice((1, 3, 20))
        elif kind == 4:  # a chunk of another format
            other = make_good(rng.choice(sorted(TARGETS)))
            place = rng.randrange(len(other))
            data[start:end] = other[place : place + rng.choice((8, 100, len(other)))]
        elif kind == 5:  # an extreme number
            size = rng.choice((1, 2, 4, 8))
            number = rng.choice((0, 1, -1, 2**31 - 1, 2**62, -(2**63), 200_000, rng.getrandbits(64)))
            data[start : start + size] = (number % 2 ** (8 * size)).to_bytes(size, rng.choice(("little", "big")))
        else:  # the end first
            data[:] = data[start:] + data[:start]
    return bytes(data)


def needs_ocr(name: str) -> bool:
    """Return True if the files of a target are images."""
    return PurePath(TARGETS[name].name).suffix in office.IMAGE_SUFFIXES


def install_tesseract(folder: Path) -> str:
    """Write a command ``tesseract`` that finds the same word in all images; return a PATH that begins with it."""
    command = folder / "bin" / "tesseract"
    command.parent.mkdir(exist_ok=True)
    command.write_text("#!/bin/sh\ncat > /dev/null\necho Tower\n")
    command.chmod(0o755)
    return f"{command.parent}:{os.environ['PATH']}"


PROGRAM = """
import sys
from pathlib import Path
from tests.helpers import fuzzing
fuzzing.main(Path(sys.argv[1]), *map(int, sys.argv[2:5]), sys.argv[5:])
"""


@dataclass
class Outcome:
    """Result of reading many mutations."""

    mutations: int = 0
    failures: list[str] = field(default_factory=list)
    """Crashes, hangs and errors other than those that the report of the documents counts."""
    memory_ratio: float = 0.0
    """Largest memory of a process, as a multiple of its memory after it read the good files."""


def run(names: Sequence[str], first: int, last: int, folder: Path, program: str = PROGRAM) -> Outcome:
    """Read mutations ``first`` to ``last`` (exclusive) of some targets in processes that run ``program``."""
    outcome, remaining, start = Outcome(), list(names), first
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": install_tesseract(folder)}
    while remaining:
        arguments = [str(folder), str(start), str(first), str(last), *remaining]
        command = [sys.executable, "-c", program, *arguments]
        process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        lines = [json.loads(line) for line in process.stdout.splitlines()]
        outcome.failures += [line["failure"] for line in lines if "failure" in line]
        outcome.memory_ratio = max([outcome.memory_ratio, *(line["ratio"] for line in lines if "ratio" in line)])
        outcome.mutations += sum(line["mutations"] for line in lines if "mutations" in line)
        if not process.returncode:
            break
        assert (folder / "place").exists(), process.stderr  # it ended before the first mutation
        place = json.loads((folder / "place").read_text())
        what = signal.Signals(-process.returncode).name if process.returncode < 0 else process.stderr[-500:]
        outcome.failures.append(f"{place['name']} {place['number']}: {what}")
        outcome.mutations += place["done"] + 1
        remaining, start = remaining[remaining.index(place["name"]) :], place["number"] + 1
    return outcome


def main(folder: Path, start: int, first: int, last: int, names: Sequence[str]) -> None:
    """Read mutations in this process: of the first target from ``start``, of the others from ``first``.

    It prints a JSON line for each failure, and at last one for all. A hang ends the process with SIGPROF.
    """
    for name in TARGETS:  # all, because mutations take parts of other formats
        for _ in _read(folder, name, make_good(name)):
            pass
    _read_text(folder)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    done = 0
    for name in names:
        for number in range(start if name == names[0] else first, last):
            (folder / "place").write_text(json.dumps({"name": name, "number": number, "done": done}))
            content = mutate(name, number)
            signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
            try:
                for text in _read(folder, name, content):
                    text.encode()  # what the index does first
            except BaseException:
                print(json.dumps({"failure": f"{name} {number}: {traceback.format_exc()[-1500:]}"}), flush=True)
            signal.setitimer(signal.ITIMER_PROF, 0)
            done += 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"mutations": done, "ratio": peak / before}))


def _read(folder: Path, name: str, content: bytes) -> Iterator[str]:
    path = folder / TARGETS[name].name
    path.write_bytes(content)
    for document in read_documents([path], ocr=needs_ocr(name)):
        yield f"{document.id}{document.title}{document.path}{document.text}"


def _read_text(folder: Path) -> None:
    """Read a text of one MB, so that the memory of small files is not compared with nothing."""
    path = folder / "b.txt"
    path.write_text("word " * 200_000)
    for _ in read_documents([path]):
        pass
