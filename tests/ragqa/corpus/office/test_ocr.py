"""OCR: images and scanned pages are read by the command ``tesseract``, for which a script stands here."""

import random
import sys
from pathlib import Path

import pytest
from conftest import run

from ragqa.corpus.formats.office import ocr
from ragqa.corpus.formats.office.content import UnreadableFile
from ragqa.corpus.formats.office.images import read_image
from ragqa.corpus.formats.office.ocr import TextRecognizer
from ragqa.corpus.formats.office.pages import build_content, make_page
from ragqa.errors import BadInput
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.indexing.sync import build_or_sync_index, sync_index
from ragqa.indexing.update import UpdateReport
from tests.helpers.documents import make_zip, read, write
from tests.helpers.images import make_jpeg, make_png, make_tiff, make_webp
from tests.helpers.pdf import make_pdf

SCRIPT = """import sys
data = sys.stdin.buffer.read()
expected = ["--dpi", "200"] if data.startswith(b"P5 1700 2200 255") else []
assert sys.argv[1:] == ["stdin", "stdout", *expected]
print({"a": "The mill has a water-\\n\\nwheel, which was built by", "b": "Ada Holm in 1871.", "n": " \\n",
       "t": "First page.\\n\\fSecond page."}[chr(data[-1])], end="\\n\\f")
"""
"""A ``tesseract`` whose answer depends on the last byte, which is a pixel of a scanned page."""


@pytest.fixture
def tesseract(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    return install(SCRIPT, tmp_path_factory.mktemp("bin"), monkeypatch)


def install(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a script on PATH, and nothing else, under the name ``tesseract``."""
    command = write(folder / "tesseract", f"#!{sys.executable} -SE\n{script}")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return command


def make_scan(pixel: str) -> str:
    """Return a page for ``make_pdf`` that is an image of one colour."""
    return f") Tj ET q 612 0 0 792 0 0 cm BI /W 1 /H 1 /CS /G /BPC 8 ID {pixel} EI Q BT () Tj ("


IMAGES = {
    "a.png": make_png,
    "a.JPG": make_jpeg,
    "a.tif": make_tiff,
    "b.tiff": lambda width, height: make_tiff(width, height, 2, ">"),
    "a.webp": lambda width, height: make_webp(b"VP8X", width, height),
    "b.webp": lambda width, height: make_webp(b"VP8L", width, height),
    "c.webp": lambda width, height: make_webp(b"VP8 ", width, height),
}


@pytest.mark.usefixtures("tesseract")
def test_images_are_read_if_ocr_asks_for_it(tmp_path: Path) -> None:
    write(tmp_path / "old-mill.png", make_png(letter="b"))
    write(tmp_path / "scan.tiff", make_tiff(800, 600, 2))
    write(tmp_path / "z.zip", make_zip({"inside.jpg": make_jpeg(80, 60)}))
    assert read(tmp_path)[1].left_out == {"image": 3}
    documents, report = read(tmp_path, ocr=True)
    assert [(document.title, document.unit, document.text) for document in documents] == [
        ("old mill", "", "Ada Holm in 1871.\n\n"),
        ("scan", "page", "First page.\n\n\fSecond page.\n\n"),
        ("inside", "", "The mill has a waterwheel, which was built by\n\n"),
    ]
    assert report.left_out == {}


@pytest.mark.usefixtures("tesseract")
def test_an_image_without_text_is_left_out(tmp_path: Path) -> None:
    documents, report = read(write(tmp_path / "photo.png", make_png(letter="n")), ocr=True)
    assert (documents, report.left_out, report.notes) == ([], {"image": 1}, [])


@pytest.mark.usefixtures("tesseract")
def test_scanned_pages_stand_between_the_others(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pdf", make_pdf(["A page with text.", make_scan("a"), make_scan("b")]))
    documents, report = read(path)
    assert documents[0].text.strip("\n\f") == "A page with text."
    assert report.notes == [f"{path}: no text on 2 of 3 pages (scanned?): --ocr reads them"]
    (document,), report = read(path, ocr=True)
    assert document.text == (
        "A page with text.\n\n\fThe mill has a waterwheel, which was built by\fAda Holm in 1871.\n\n"
    )
    assert (document.unit, report.notes) == ("page", [])


def test_running_heads_of_scanned_pages_are_left_out() -> None:
    texts = ["The old wheel was", "built again by", "three masons."]
    pages = [make_page(f"Annals of the mill\n\n{text}\n\n{number}\n") for number, text in enumerate(texts, 11)]
    assert build_content(pages).text == "The old wheel was\fbuilt again by\fthree masons.\n\n"


def test_a_problem_with_a_scanned_page_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install("import sys\nsys.exit('first line\\nno English data\\n')", tmp_path / "bin", monkeypatch)
    path = write(tmp_path / "a.pdf", make_pdf(["A page with text.", make_scan("a")]))
    documents, report = read(path, ocr=True)
    assert [document.text.strip() for document in documents] == ["A page with text."]
    assert report.notes == [f"{path}: no text on 1 of 2 pages was read: Tesseract fails: no English data"]
    with pytest.raises(BadInput, match=r"a\.png: cannot be read: Tesseract fails: no English data"):
        read(write(tmp_path / "a.png", make_png()), ocr=True)


@pytest.mark.parametrize("name", IMAGES)
def test_the_size_of_an_image_is_checked_before_it_is_decoded(tmp_path: Path, tesseract: Path, name: str) -> None:
    width, height = 16_000, 16_000
    good, bomb = IMAGES[name](160, 60), IMAGES[name](width, height)
    assert read(write(tmp_path / name, good), ocr=True)[0]
    tesseract.write_text("")  # it would fail otherwise than with the size
    with pytest.raises(BadInput, match="cannot be read: 16000 x 16000 pixels: at most 100 million can be read"):
        read(write(tmp_path / name, bomb), ocr=True)


@pytest.mark.parametrize("name", IMAGES)
def test_damaged_images_are_unreadable_or_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TextRecognizer, "recognize", lambda *arguments, **options: "text")
    good, choice, outcomes = IMAGES[name](160, 60), random.Random(0), set[str]()
    for number in range(1000):
        data = bytearray(good)
        for _ in range(choice.randint(1, 4)):
            data[choice.randrange(4, len(data))] = choice.choice((0, 1, 255, choice.randrange(256)))
        try:
            outcomes.add(read_image(bytes(data[: len(data) - number % 9]), TextRecognizer("")).text)
        except UnreadableFile as error:
            outcomes.add(str(error)[-8:])
    assert {"text\n\n", " be read"} <= outcomes


def test_tesseract_may_take_only_some_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = install("import time\ntime.sleep(60)", tmp_path, monkeypatch)
    monkeypatch.setattr(ocr, "PAGE_SECONDS", 0.2)
    with pytest.raises(UnreadableFile, match="Tesseract takes more than 0 seconds"):
        TextRecognizer(str(command)).recognize(b"")
    monkeypatch.setattr(ocr, "FILE_SECONDS", 0.0)
    with pytest.raises(UnreadableFile, match="Tesseract needs more than 0 seconds for the file"):
        TextRecognizer(str(command)).recognize(b"")


def test_without_tesseract_ocr_is_an_error_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    write(tmp_path / "docs" / "a.txt", "Some text.")
    out = tmp_path / "i"
    status, _, error = run("index", str(tmp_path / "docs"), "--ocr", "--out", str(out), capsys=capsys)
    assert status == 2 and "install Tesseract" in error and len(error.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["docs"]


@pytest.mark.usefixtures("tesseract")
def test_an_index_that_was_made_with_ocr_syncs_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docs, index, config = tmp_path / "docs", tmp_path / "i", IndexConfig(retriever="bm25", ocr=True)
    write(docs / "a.png", make_png())
    assert build_index([docs], index, config).documents == 1
    write(docs / "b.png", make_png(letter="b"))
    assert sync_index(index).added == 1
    write(docs / "c.tif", make_tiff(80, 60))
    report = build_or_sync_index([docs], index, config)
    assert isinstance(report, UpdateReport) and (report.added, report.deleted) == (1, 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    write(docs / "d.txt", "Some text.")
    with pytest.raises(BadInput, match="install Tesseract"):
        sync_index(index)
    reasons = list[str]()
    plain = IndexConfig(retriever="bm25")
    assert build_or_sync_index([docs], index, plain, on_choice=reasons.append).documents == 1  # type: ignore[union-attr]
    assert reasons == [f"{index} is built again: other settings than before (ocr)"]
