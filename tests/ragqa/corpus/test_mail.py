"""Mails and mailboxes: who wrote, when, what, and what is attached."""

import tracemalloc
from email.message import EmailMessage
from pathlib import Path

import pytest

from ragqa.corpus.sources import read_documents
from tests.helpers.documents import make_zip, read, read_one, write


def make_mail(text: str = "The mill is broken.", subject: str = "Mill größer") -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"] = "Gisela Umbreit <umbreit@mill.example>", "Desmond <desmond@oven.example>"
    mail["Subject"], mail["Date"] = subject, "Thu, 11 Apr 2024 15:20:00 +0000"
    mail.set_content(text)
    return mail


HEAD = (
    "From: Gisela Umbreit <umbreit@mill.example>; To: Desmond <desmond@oven.example>; "
    "Date: Thu, 11 Apr 2024 15:20:00 +0000"
)


def test_a_mail_has_its_subject_sender_date_and_text(tmp_path: Path) -> None:
    document = read_one(tmp_path / "a.eml", make_mail("Größer als je.").as_bytes())
    head, body = document.list_sections()
    assert (document.title, document.date, document.id) == ("Mill größer", "2024-04-11", str(tmp_path / "a.eml"))
    assert document.text[head.start : head.end] == HEAD and head.has_records
    assert document.text[body.start : body.end].strip() == "Größer als je."


def test_plain_text_is_preferred_and_html_is_read_without_it(tmp_path: Path) -> None:
    mail = make_mail()
    mail.add_alternative("<h1>Mill</h1><p>Other words.", subtype="html")
    assert "Other" not in read_one(tmp_path / "a.eml", mail.as_bytes()).text
    mail = make_mail()
    mail.set_content("<p>Hello.<h2>Mill</h2><p>Other words.", subtype="html")
    document = read_one(tmp_path / "a.eml", mail.as_bytes())
    last = document.list_sections()[-1]
    assert (last.headings, document.text[last.start : last.end].strip()) == (("Mill",), "Other words.")


def test_all_texts_of_a_mail_are_read_that_are_not_forms_of_one(tmp_path: Path) -> None:
    mail = make_mail("The first part.")
    mail.make_mixed()
    for text, subtype in (("<p>The code is 77.", "html"), ("The end.", "plain")):
        part = EmailMessage()
        part.set_content(text, subtype=subtype)
        mail.attach(part)
    text = read_one(tmp_path / "a.eml", mail.as_bytes()).text
    assert [sentence in text for sentence in ("The first part.", "The code is 77.", "The end.")] == [True] * 3


def test_attachments_are_read_like_files(tmp_path: Path) -> None:
    inner = make_mail("Forwarded text.", "Inner")
    mail = make_mail()
    mail.add_attachment(b"Item,Count\nlamp,4\n", maintype="text", subtype="csv", filename="../größe.csv")
    mail.add_attachment(b"\x89PNG\0", maintype="image", subtype="png", filename="a.png")
    mail.add_attachment(make_zip({"b.txt": b"in a zip"}), maintype="application", subtype="zip", filename="c.zip")
    mail.add_attachment(inner)
    path = write(tmp_path / "a.eml", mail.as_bytes())
    documents, report = read(path)
    assert [d.path for d in documents] == [
        str(path),
        f"{path}/größe.csv",
        f"{path}/c.zip/b.txt",
        f"{path}/attachment 4.eml",
    ]
    assert documents[1].text == "Item: lamp; Count: 4\n" and "Forwarded text." in documents[3].text
    assert report.left_out_paths == {"image": [f"{path}/a.png"]}


def test_all_blocks_of_a_delivery_report_are_read(tmp_path: Path) -> None:
    lines = ["Subject: Undelivered", "Content-Type: multipart/report; boundary=x", "", "--x", "", "It failed.", "--x"]
    lines += ["Content-Type: message/delivery-status", "", "Reporting-MTA: dns; mill.example", "", "Action: failed", ""]
    path = write(tmp_path / "a.eml", "\n".join([*lines, "--x--", ""]).encode())
    assert read(path)[0][1].text.split() == ["Reporting-MTA:", "dns;", "mill.example", "Action:", "failed"]


@pytest.mark.parametrize("name", ["a.mbox", "Inbox"])
def test_each_mail_of_a_mailbox_is_a_document(tmp_path: Path, name: str) -> None:
    mails = [make_mail(f"Text {n}.\n\n>From the mill.", f"Mail {n}").as_bytes() for n in range(3)]
    content = b"".join(b"From ada@b.example Thu Apr 11 15:20:00 2024\n" + mail + b"\n" for mail in mails)
    path = write(tmp_path / name, content)
    documents, _ = read(path)
    assert [(d.id, d.path, d.title) for d in documents] == [
        (f"{path}#{n + 1}", str(path), f"Mail {n}") for n in range(3)
    ]
    assert documents[1].text.strip().endswith("Text 1.\n\nFrom the mill.")


def test_a_mailbox_is_not_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.mbox"
    with path.open("wb") as file:
        for number in range(200):
            mail = make_mail(f"{number} " + "word " * 10_000).as_bytes()
            file.write(b"From ada@b.example Thu Apr 11 15:20:00 2024\n" + mail + b"\n")
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_documents([path])) == 200
        assert tracemalloc.get_traced_memory()[1] < 3_000_000 < path.stat().st_size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("header", "title"),
    [
        (b"Subject: caf\xe9", "café"),
        ("Subject: größer".encode(), "größer"),
        (b"Subject: =?iso-8859-1?q?caf=E9?= au =?utf-8?b?bGFpdA==?=", "café au lait"),
        (b"Subject: =?no-such?q?caf=E9?=", "café"),
        (b"Subject: =?utf-8?b?a?=", "=?utf-8?b?a?="),
        (b"X: y", "a"),
    ],
)
def test_subjects_in_any_encoding_are_decoded(tmp_path: Path, header: bytes, title: str) -> None:
    assert read_one(tmp_path / "a.eml", header + b"\n\nText.").title == title


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ("Content-Type: text/plain; charset=hex", "Text."),
        ("Content-Transfer-Encoding: base64", "%%%% no base64"),
        ("Content-Type: multipart/mixed; boundary=x", "--x\n" * 3_000 + "Text."),
        ("Content-Type: message/rfc822", "Content-Type: message/rfc822\n\n" * 2_000),
        ("Content-Type: text/plain; name*0*=''%zz; name*1=" + "a" * 10_000, "Text."),
        ("Date: " + "9" * 5_000, "Text."),
    ],
)
def test_malformed_mails_do_no_harm(tmp_path: Path, headers: str, body: str) -> None:
    path = write(tmp_path / "a.eml", f"{headers}\n\n{body}")
    documents, report = read(path, write(tmp_path / "b.txt", "text"), strict=False)
    assert documents[-1].text == "text" and report.bad <= 1


def test_deeply_nested_parts_are_refused(tmp_path: Path) -> None:
    parts = "".join(f"Content-Type: multipart/mixed; boundary=b{n}\n\n--b{n}\n" for n in range(300))
    path = write(tmp_path / "a.eml", f"{parts}\n\n{'a line of text ' * 200_000}")
    assert read(path, strict=False)[1].notes == [f"{path}: not a mail that can be read: it has too many parts"]


def test_a_file_without_mails_is_reported(tmp_path: Path) -> None:
    _, report = read(write(tmp_path / "a.mbox", "no mail\n"), strict=False)
    assert report.notes == [f"{tmp_path}/a.mbox: not a mailbox: no line begins with 'From '"]
