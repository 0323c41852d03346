"""Files of Word and PowerPoint 97, which LibreOffice wrote, and messages of Outlook."""

from pathlib import Path

from tests.helpers.compound import make_message
from tests.helpers.documents import read, read_one, write
from tests.helpers.fuzzing import OLD_SLIDES, OLD_WORD

SUBJECT, BODY, SENDER, SENDER_ADDRESS, HEADERS = 0x0037, 0x1000, 0x0C1A, 0x0C1F, 0x007D


def test_old_word_files_have_paragraphs_and_rows(tmp_path: Path) -> None:
    document = read_one(tmp_path / "a.doc", OLD_WORD.read_bytes())
    assert document.title == "Towers of the coast"
    assert document.text.split("\n\n") == [
        "Tower of Hov",
        "The tower was built in 1871, and its keeper is Tilda Brekke.",
        "Prices",
        "Visitor\tPrice",
        "Child\t6",
        "Adult\t23",
        "The größte tower is 41 metres high – “Skarvik”.",
        "",
    ]


def test_old_slides_are_read_once(tmp_path: Path) -> None:
    """The library repeats the text of all slides as a note. Both slides of this file have the same note."""
    text = read_one(tmp_path / "a.ppt", OLD_SLIDES.read_bytes()).text
    slides = ["Tower plans", "The tower opens on 4 June.", "Costs", "The lamp costs 31,000 euros – “too much”."]
    assert text.split("\n\n") == [*slides, "Speak slowly about Ole.", "Speak slowly about Ole.", ""]


def test_messages_have_sender_receivers_and_date(tmp_path: Path) -> None:
    texts = {
        SUBJECT: "Berth for the winter",
        BODY: "Your boat can stay in shed 7.\r\n\r\nTilda – “harbour”",
        SENDER: "Tilda Brekke",
        SENDER_ADDRESS: "tilda@hov.example",
        HEADERS: "Date: Fri, 01 Mar 2024 10:00:00 +0000\r\n",
    }
    document = read_one(tmp_path / "a.msg", make_message(texts, ["otto@hov.example"]))
    assert (document.title, document.date) == ("Berth for the winter", "2024-03-01")
    head, body = document.sections
    assert head.has_records and document.text[head.start : head.end].strip() == (
        'From: "Tilda Brekke" <tilda@hov.example>; To: otto@hov.example; Date: Fri, 01 Mar 2024 10:00:00 +0000'
    )
    assert document.text[body.start : body.end].strip() == "Your boat can stay in shed 7.\n\nTilda – “harbour”"


def test_a_message_without_sender_is_read(tmp_path: Path) -> None:
    document = read_one(tmp_path / "a.msg", make_message({SUBJECT: "Keys", BODY: "Under the mat."}))
    assert (document.title, document.text.strip()) == ("Keys", "Under the mat.")


def test_a_message_without_readable_text_is_noted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.msg", make_message({SUBJECT: "Keys", SENDER: "Tilda", SENDER_ADDRESS: "t@b.c"}))
    documents, report = read(path)
    assert [document.text.strip() for document in documents] == ['From: "Tilda" <t@b.c>']
    assert [note.removeprefix(f"{path}: ")[:37] for note in report.notes] == ["only the head of the message was read"]


def test_an_old_file_with_other_content_is_known_by_its_content(tmp_path: Path) -> None:
    assert "Tilda Brekke" in read_one(tmp_path / "a.ppt", OLD_WORD.read_bytes()).text
