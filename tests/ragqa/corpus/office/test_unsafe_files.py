"""Office files and PDF that are encrypted, damaged or hostile: one line each, and the next file is read."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ragqa.corpus.formats.limits import FREE_BYTES
from ragqa.corpus.formats.office import package, process
from ragqa.corpus.sources import read_documents
from ragqa.errors import BadInput
from tests.helpers.documents import make_zip, read, read_one, write
from tests.helpers.fuzzing import TARGETS, install_tesseract, make_good
from tests.helpers.office import make_open_document, make_paragraph, make_row, make_word, make_workbook
from tests.helpers.pdf import make_pdf

DATA = Path(__file__).parents[3] / "data" / "pdf"
COMPOUND = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def fails_with(path: Path, content: bytes, problem: str) -> None:
    """Check that a file is a one-line error, and that the rest of its folder is read without it."""
    with pytest.raises(BadInput, match=f"cannot be read: {problem}") as error:
        read(write(path, content))
    assert str(error.value).startswith(str(path)) and "\n" not in str(error.value)
    write(path.parent / "zzz.docx", make_word(make_paragraph("The rest.")))
    documents, report = read(path.parent, strict=False)
    assert (documents[-1].text.strip(), report.bad_files) == ("The rest.", 1)


def mark_encrypted(content: bytes) -> bytes:
    """Return a ZIP archive whose members claim to be encrypted."""
    data = bytearray(content)
    place = data.find(b"PK\x01\x02")
    while place >= 0:
        data[place + 8] |= 1
        place = data.find(b"PK\x01\x02", place + 1)
    return bytes(data)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("a.pdf", (DATA / "password.pdf").read_bytes),
        ("a.docx", lambda: COMPOUND + "EncryptedPackage".encode("utf-16-le")),
        ("a.odt", lambda: make_open_document("text", "", manifest="<m><encryption-data/></m>")),
        ("b.docx", lambda: mark_encrypted(make_word(""))),
    ],
)
def test_an_encrypted_file_is_left_out_with_the_reason(tmp_path: Path, name: str, make: Callable[[], bytes]) -> None:
    fails_with(tmp_path / name, make(), "encrypted")
    kind = "encrypted PDF" if name.endswith(".pdf") else "encrypted Office file"
    assert read(tmp_path, strict=False)[1].left_out == {kind: 1}


def test_a_pdf_with_an_empty_password_is_read(tmp_path: Path) -> None:
    assert read_one(tmp_path / "a.pdf", (DATA / "empty-password.pdf").read_bytes()).text.strip() == "Secret."


@pytest.mark.parametrize("name", ["word", "slides", "workbook", "open-text", "open-sheet", "book"])
def test_a_file_that_is_cut_short_is_left_out(tmp_path: Path, name: str) -> None:
    content = make_good(name)
    fails_with(tmp_path / TARGETS[name].name, content[: len(content) // 2], "damaged")


def test_a_file_that_is_not_what_its_name_says_is_left_out(tmp_path: Path) -> None:
    fails_with(tmp_path / "a.docx", b"<html>Sign in</html>", "its content is text, not what its suffix says")
    fails_with(tmp_path / "b" / "a.xlsx", make_zip({"a.txt": "text"}), "an archive of an unknown kind")
    fails_with(tmp_path / "c" / "a.doc", COMPOUND + b"\0" * 512, "an Office file of an unknown kind")
    fails_with(tmp_path / "d" / "a.pdf", b"\0\1", "its content does not fit its suffix")


def test_an_office_file_without_content_is_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "a.docx").write_bytes(b"")
    (tmp_path / "b.pdf").write_bytes(b"\n")
    documents, report = read(tmp_path, strict=False)
    assert (documents, report.left_out, report.notes) == ([], {"empty file": 2}, [])


def test_a_package_that_expands_too_much_is_left_out(tmp_path: Path) -> None:
    bomb = make_zip({"word/document.xml": bytes(FREE_BYTES + (50 << 20))})
    fails_with(tmp_path / "a.docx", bomb, "it expands to more than 200 times its size")


def test_a_package_with_too_many_members_is_left_out(tmp_path: Path) -> None:
    members = {str(number): "" for number in range(package.MAX_MEMBERS + 1)}
    fails_with(tmp_path / "a.docx", make_zip(members), "it has more than 20,000 members")


def test_entities_do_not_expand(tmp_path: Path) -> None:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 20}">' for n in range(1, 9))
    document = f'<!DOCTYPE d [<!ENTITY e0 "spam spam ">{entities}]><d><body><p><t>&e8;</t></p></body></d>'
    fails_with(tmp_path / "a.docx", make_zip({"word/document.xml": document}), "its part word/document.xml is dam")
    secret = write(tmp_path / "secret", "hidden words")
    document = f'<!DOCTYPE d [<!ENTITY e SYSTEM "file://{secret}">]><d><body><p><t>a&e;</t></p></body></d>'
    fails_with(tmp_path / "b" / "a.docx", make_zip({"word/document.xml": document}), "its part word/document.xml")


@pytest.mark.parametrize("depth", [10, 100])
def test_content_in_too_many_containers_is_noted(tmp_path: Path, depth: int) -> None:
    content = "<w:sdt><w:sdtContent>" * depth + make_paragraph("Deep.") + "</w:sdtContent></w:sdt>" * depth
    write(tmp_path / "a.docx", make_word(make_paragraph("Word.") + content))
    sections = "<text:section>" * depth + "<text:p>Deep.</text:p>" + "</text:section>" * depth
    write(tmp_path / "b.odt", make_open_document("text", "<text:p>Open.</text:p>" + sections))
    documents, report = read(tmp_path)
    is_read = depth < 50
    assert [(document.text[:4], "Deep." in document.text) for document in documents] == [
        ("Word", is_read),
        ("Open", is_read),
    ]
    problem = "content in more than 50 tables or text boxes within each other was left out"
    assert report.notes == ([] if is_read else [f"{tmp_path}/{name}: {problem}" for name in ("a.docx", "b.odt")])


def test_a_crash_costs_one_file(tmp_path: Path) -> None:
    """The library makes room for all cells up to the last one: 17 thousand million."""
    rows = make_row(1, "a") + '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'
    fails_with(tmp_path / "a.xlsx", make_workbook({"S": rows}), r"(its parser crashed|it needs more than|damaged)")


def test_a_file_may_take_only_some_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "FREE_SECONDS", 1.0)
    monkeypatch.setattr(process, "SECONDS_PER_MEGABYTE", 0.0)
    content = make_pdf([") Tj (word " * 20_000], copies=300)
    fails_with(tmp_path / "a.pdf", content, "it takes more than 1 seconds")


def test_modules_in_the_working_directory_are_not_run(tmp_path: Path) -> None:
    """The process that extracts text starts where the user's files are."""
    write(tmp_path / "json.py", "open('run', 'w')")
    write(tmp_path / "docs" / "a.docx", make_word(make_paragraph("Text.")))
    program = (
        "from pathlib import Path\nfrom ragqa.corpus.sources import read_documents\n"
        "print([d.text.strip() for d in read_documents([Path('docs')])])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    result = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert (result.stdout.strip(), (tmp_path / "run").exists()) == ("['Text.']", False)


FORBID_SOCKETS = """
import os, sys

def forbid(event, arguments):
    if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.connect", "socket.sendto"):
        print("no network:", event, arguments, file=sys.stderr, flush=True)
        os._exit(99)

sys.addaudithook(forbid)
"""
"""Module that Python imports at its start, also in the process that extracts text; it forbids the network."""


def test_no_format_needs_the_network(tmp_path: Path) -> None:
    """Linux forbids the network to libraries that are not Python, too, if it allows network namespaces."""
    for name, target in TARGETS.items():
        write(tmp_path / "docs" / f"{name}-{target.name}", make_good(name))
    write(tmp_path / "forbid" / "sitecustomize.py", FORBID_SOCKETS)
    program = "from ragqa.cli.main import main; main()"
    command = [sys.executable, "-c", program, "index", "docs", "--out", "i", "--ocr", "--json"]
    paths = [str(tmp_path / "forbid"), *filter(None, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PATH": install_tesseract(tmp_path)}
    connect = [sys.executable, "-c", "import socket; socket.create_connection(('127.0.0.1', 9))"]
    assert subprocess.run(connect, env=environment, check=False, capture_output=True).returncode == 99
    if shutil.which("unshare") and not subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode:
        command = ["unshare", "-rn", *command]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["left_out"].keys() - {"duplicate file"}, report["bad"]) == (set(), 0)
    assert report["documents"] >= len(TARGETS) - report["duplicates"]


def test_a_file_that_takes_long_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "WAIT_SECONDS", 0.01)
    process.EXTRACTOR.close()  # its start takes a tenth of a second
    path = write(tmp_path / "a.docx", make_word(make_paragraph("Text.")))
    waits = list[tuple[str, float]]()
    documents = list(read_documents([path], on_wait=lambda path, seconds: waits.append((path, seconds))))
    assert [document.text.strip() for document in documents] == ["Text."]
    assert len(waits) > 1 and {path for path, _ in waits} == {str(path)}
    assert [seconds for _, seconds in waits] == sorted(seconds for _, seconds in waits)
