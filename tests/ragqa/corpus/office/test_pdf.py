"""PDF: pages, headings, columns, tables, running heads, and words that a line end divides."""

from pathlib import Path

from ragqa.corpus.formats.base import Document
from ragqa.corpus.passages import make_passages, split_document
from ragqa.corpus.splitters import make_splitter
from ragqa.types import Passage
from tests.helpers.documents import read, read_one, write
from tests.helpers.pdf import Text, make_pdf

FILLER = ["Barley grows on the hill.", "Every ship needs a rope.", "The mill stands at the river."]


def set_lines(*lines: str, top: float = 700, left: float = 72, size: float = 11) -> list[Text]:
    """Return lines below each other."""
    return [(left, top - 14 * number, size, line) for number, line in enumerate(lines)]


def split(document: Document) -> list[Passage]:
    return list(make_passages(document, split_document(document, make_splitter("sentences"))))


def test_pages_are_numbered_and_larger_lines_are_headings(tmp_path: Path) -> None:
    first = [(72, 720, 20, "Oven manual"), (72, 690, 14, "Faults"), *set_lines(*FILLER, top=660)]
    second = [(72, 720, 14, "Cleaning"), *set_lines("Use a soft brush for it.", top=700)]
    document = read_one(tmp_path / "a.pdf", make_pdf([first, second]))
    assert (document.title, document.unit) == ("Oven manual", "page")
    assert [(p.headings, p.number, p.text) for p in split(document)] == [
        (("Faults",), 1, "\n".join(FILLER)),
        (("Cleaning",), 2, "Use a soft brush for it."),
    ]


def test_a_heading_of_two_lines_is_one_unless_a_number_begins_a_section(tmp_path: Path) -> None:
    lines = ["A boiler of the", "1920s and its use", "1 Installation", "1.2 Flue", "B. Faults"]
    head = set_lines(*lines, top=720, size=20)
    page = [(x, 720 - 22 * n, size, text) for n, (x, _, size, text) in enumerate(head)]
    document = read_one(tmp_path / "a.pdf", make_pdf([[*page, *set_lines(*FILLER, top=560)]]))
    assert document.text.split("\n\n")[:4] == [
        "A boiler of the 1920s and its use",
        "1 Installation",
        "1.2 Flue",
        "B. Faults",
    ]


def test_a_sentence_goes_on_over_the_end_of_a_page(tmp_path: Path) -> None:
    pages = [set_lines(*FILLER, "The bridge was opened by"), set_lines("the miller in 1902.", *FILLER)]
    document = read_one(tmp_path / "a.pdf", make_pdf(pages))
    (passage,) = split(document)
    assert "The bridge was opened by\fthe miller in 1902." in passage.text
    assert [passage.find_number(passage.text.index(word)) for word in ("opened", "miller")] == [1, 2]


def test_words_that_a_line_end_divides_are_joined(tmp_path: Path) -> None:
    lines = ("He kept the docu-", "ment in a well-", "known box.", "A well-known man.")
    text = read_one(tmp_path / "a.pdf", make_pdf([set_lines(*lines)])).text
    assert " ".join(text.split()) == "He kept the document in a well-known box. A well-known man."


def test_running_heads_and_page_numbers_are_left_out(tmp_path: Path) -> None:
    pages = []
    for number in range(1, 5):
        head = [(72.0, 760.0, 9.0, "The annual report"), (300.0, 30.0, 9.0, f"Mills and ships {number + 10}")]
        pages.append([*head, *set_lines(f"Mill {number} ground {number * 7} sacks.", *FILLER[:2])])
    text = read_one(tmp_path / "a.pdf", make_pdf(pages)).text
    assert "report" not in text and "ships" not in text
    assert all(f"Mill {number} ground {number * 7} sacks." in text for number in range(1, 5))


def test_lines_of_forms_that_differ_in_a_number_are_kept(tmp_path: Path) -> None:
    pages = [[(72.0, 760.0, 11.0, f"Net pay {pay}"), *set_lines(*FILLER)] for pay in (1410, 1385, 1702, 1650)]
    text = read_one(tmp_path / "a.pdf", make_pdf(pages)).text
    assert all(f"Net pay {pay}" in text for pay in (1410, 1385, 1702, 1650))


def test_columns_that_are_drawn_line_by_line_are_read_one_after_the_other(tmp_path: Path) -> None:
    left = [f"left line {word} of the story" for word in ("one", "two", "three", "four", "five", "six", "seven")]
    right = [line.replace("left", "right") for line in left]
    texts = [text for pair in zip(set_lines(*left), set_lines(*right, left=320), strict=True) for text in pair]
    assert read_one(tmp_path / "a.pdf", make_pdf([texts])).text.split("\n")[:14] == left + right


def test_tables_are_records(tmp_path: Path) -> None:
    rows = [("Item", "Price", "Stock"), ("Lamp", "12", "3"), ("Long rope", "7", "44")]
    cells = [(72 + 120 * x, 600 - 14 * y, 11, cell) for y, row in enumerate(rows) for x, cell in enumerate(row)]
    document = read_one(tmp_path / "a.pdf", make_pdf([[*set_lines(*FILLER), *cells]]))
    assert [p.text for p in split(document)][1:] == [
        "Item: Lamp; Price: 12; Stock: 3",
        "Item: Long rope; Price: 7; Stock: 44",
    ]


def test_the_title_is_that_of_the_metadata_or_of_the_file(tmp_path: Path) -> None:
    document = read_one(tmp_path / "a-b.pdf", make_pdf(["First page.", "Second page."], "On Waves"))
    assert (document.title, document.text) == ("On Waves", "First page.\n\n\fSecond page.\n\n")
    assert read_one(tmp_path / "a-b.pdf", make_pdf(["First page."])).title == "a b"
    assert read_one(tmp_path / "paper", make_pdf(["First page."])).text == "First page.\n\n"


def test_pdf_without_text_is_empty_and_noted(tmp_path: Path) -> None:
    documents, report = read(write(tmp_path / "scan.pdf", make_pdf([""])))
    assert (documents, report.empty) == ([], 1)
    assert report.notes == [f"{tmp_path}/scan.pdf: no text in it (scanned pages?)"]
