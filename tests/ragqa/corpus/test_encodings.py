"""Texts in any encoding are decoded: marked, declared, valid UTF-8 or guessed."""

from pathlib import Path

import pytest

from tests.helpers.documents import read, read_one, write

LATIN = [
    "café au lait",
    "Die Größe der Bäume überrascht Müller: 30 m³, 12 m².",
    "It’s £12 – “cheap”. ½ litre, ±5 %, 3¹ and ‘¿qué?’",
    "Smørrebrød på Færøerne.",
    "Perché la città è così? L’œuvre de Škoda a été achevée là où elle a commencé, près de l’évêché à Besançon.",
]
CENTRAL = [
    "Umowa została zawarta w Łodzi między Janem Wójcikiem a spółdzielnią.",
    "Smlouva byla uzavřena v Brně dne 3. září mezi panem Dvořákem a družstvem.",
    "Vľavo od cesty stál kôň, ktorý mal rád čerstvú trávu. Mesto leží pri rieke.",
]
OTHER = {
    "cp1251": "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "koi8_r": "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "cp1253": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια.",
    "shift_jis": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "gb18030": "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心。",
}


@pytest.mark.parametrize("text", LATIN)
def test_latin_text_that_is_not_utf_8_is_read_as_cp1252(tmp_path: Path, text: str) -> None:
    documents, report = read(write(tmp_path / "a.txt", text.encode("cp1252")))
    assert (documents[0].text, report.encodings, report.undecodable) == (text, {"cp1252": 1}, 0)


@pytest.mark.parametrize("text", CENTRAL)
def test_polish_czech_and_slovak_text_is_read_as_cp1250(tmp_path: Path, text: str) -> None:
    documents, report = read(write(tmp_path / "a.txt", text.encode("cp1250")))
    assert (documents[0].text, report.encodings) == (text, {"cp1250": 1})


@pytest.mark.parametrize(("encoding", "text"), OTHER.items())
def test_other_scripts_are_guessed(tmp_path: Path, encoding: str, text: str) -> None:
    documents, report = read(write(tmp_path / "a.log", text.encode(encoding)))
    assert (documents[0].text, report.encodings) == (text, {encoding: 1})


@pytest.mark.parametrize(
    ("declaration", "encoding"),
    [
        ("<meta charset='windows-1250'>", "cp1250"),
        ('<meta http-equiv="Content-Type" content="text/html; charset=iso-8859-2">', "iso8859-2"),
        ('<?xml version="1.0" encoding="cp1250"?>', "cp1250"),
        ("<meta charset=iso-8859-1>", "cp1252"),
        ("<meta charset=iso-2022-jp>", "iso2022_jp"),
        ("<meta charset=utf-16>", "utf-8"),  # it cannot be, since the declaration could be read
    ],
)
def test_a_declared_encoding_is_used(tmp_path: Path, declaration: str, encoding: str) -> None:
    text = {"cp1252": "“café”", "iso2022_jp": "自由", "utf-8": "café"}.get(encoding, "žluťoučký kůň")
    documents, report = read(write(tmp_path / "a.html", f"{declaration}<p>{text}".encode(encoding)))
    assert documents[0].text.endswith(text)
    assert report.encodings == ({encoding: 1} if encoding != "utf-8" else {})


@pytest.mark.parametrize("name", ["hex", "idna", "utf-7", "no-such", "rot13"])
def test_a_declared_encoding_that_is_none_is_ignored(tmp_path: Path, name: str) -> None:
    documents, report = read(write(tmp_path / "a.html", f"<meta charset={name}><p>caf".encode() + b"\xe9"))
    assert (documents[0].text, report.encodings) == ("café", {"cp1252": 1})
    assert read_one(tmp_path / "b.html", f"<meta charset={name}><p>cafe").text == "cafe"


def test_byte_order_marks_of_utf_32_are_known(tmp_path: Path) -> None:
    assert read_one(tmp_path / "a.txt", "größer".encode("utf-32")).text == "größer"


def test_rows_of_a_table_can_have_another_encoding(tmp_path: Path) -> None:
    rows = "Name;Ort\n" + "Ada;Hov\n" * 20_000 + "Müller;Zürich\nMüller;Köln\n"
    documents, report = read(write(tmp_path / "a.csv", rows.encode("cp1252")))
    assert documents[0].text.endswith("Name: Müller; Ort: Zürich\nName: Müller; Ort: Köln\n")
    assert (report.encodings, report.undecodable) == ({"cp1252": 1}, 0)


def test_the_summary_names_the_encodings_once(tmp_path: Path) -> None:
    for number, text in enumerate((*LATIN, OTHER["koi8_r"])):
        write(tmp_path / f"{number}.txt", text.encode("koi8_r" if text == OTHER["koi8_r"] else "cp1252"))
    assert "6 files were not UTF-8: read as cp1252, koi8_r" in read(tmp_path)[1].describe_problems()
