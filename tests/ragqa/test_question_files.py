"""Question files: JSON lines, DPR's tables and SQuAD."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragqa.corpus.sources import Document, read_documents
from ragqa.question_files import SquadParagraph, SquadQuestion, read_squad, write_documents
from ragqa.types import Question
from tests.helpers.question_files import (
    GOOD,
    GOOD_TSV,
    SQUAD,
    compressions,
    make_paragraph,
    make_squad,
    make_squad_question,
    read_all,
    read_one,
    write_compressed,
    write_file,
)


def test_field_names_of_qed_are_read(tmp_path: Path) -> None:
    make_squad_question = {
        "example_id": 7,
        "question_text": "who?",
        "answer_text": ["Ada"],
        "paragraph_text": "Ada .",
        "title_text": "A",
    }
    assert read_one(tmp_path / "q.jsonl", json.dumps(make_squad_question)) == Question(
        "who?", ("Ada",), "7", passages=("Ada .",)
    )


@compressions
def test_json_lines_are_read(tmp_path: Path, compression: str) -> None:
    rows = '{"question": "who?", "answers": ["Ada", "Ada Holm"]}\n{"question": "où ?", "answers": ["Orléans"]}\n'
    path = write_compressed(tmp_path / "q.jsonl", rows, compression)
    assert read_all(path) == [Question("who?", ("Ada", "Ada Holm"), "1"), Question("où ?", ("Orléans",), "2")]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"answers": ["Ada", "Bo"]}, Question("who?", ("Ada", "Bo"), "1")),
        ({"answer": ["Ada", "Bo"]}, Question("who?", ("Ada", "Bo"), "1")),  # NQ-open
        ({"answers": "Ada"}, Question("who?", ("Ada",), "1")),
        ({"answer": "Ada"}, Question("who?", ("Ada",), "1")),
        ({"answers": []}, Question("who?", (), "1")),
        ({"answers": ["Ada", "Ada"]}, Question("who?", ("Ada", "Ada"), "1")),
        ({"answers": ["Ada"], "answer": ["Bo"]}, Question("who?", ("Ada",), "1")),
        ({"answers": ["Ada"], "id": "q-7"}, Question("who?", ("Ada",), "q-7")),
        ({"answers": ["Ada"], "id": 7}, Question("who?", ("Ada",), "7")),
        ({"answers": ["Ada"], "id": 0}, Question("who?", ("Ada",), "0")),
        ({"answers": ["Ada"], "id": None}, Question("who?", ("Ada",), "1")),
        ({"answers": ["Ada"], "documents": ["a.txt", "b"]}, Question("who?", ("Ada",), "1", documents=("a.txt", "b"))),
        ({"answers": ["Ada"], "documents": "a.txt"}, Question("who?", ("Ada",), "1", documents=("a.txt",))),
        ({"answers": ["Ada"], "passages": ["Ada did."]}, Question("who?", ("Ada",), "1", passages=("Ada did.",))),
        ({"answers": ["Ada"], "passages": "Ada did."}, Question("who?", ("Ada",), "1", passages=("Ada did.",))),
        ({"answers": ["Ada"], "url": "x", "page": 3}, Question("who?", ("Ada",), "1")),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_fields_of_a_json_line_are_read(tmp_path: Path, fields: dict[str, Any], expected: Question) -> None:
    assert read_one(tmp_path / "q.jsonl", json.dumps({"question": "who?", **fields})) == expected


def test_blank_lines_are_skipped_but_numbered(tmp_path: Path) -> None:
    path = write_file(tmp_path / "q.jsonl", f"\n  \t\n{GOOD}\r\n\n{GOOD}\n\n")
    assert [question.id for question in read_all(path)] == ["3", "6"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_byte_order_mark_and_windows_line_ends_are_ignored(tmp_path: Path, end: str) -> None:
    for name, content in (("q.jsonl", GOOD), ("q.tsv", GOOD_TSV)):
        path = write_file(tmp_path / name, "\ufeff" + (content * 2).replace("\n", end))
        assert read_all(path) == [Question("who?", ("Ada",), "1"), Question("who?", ("Ada",), "2")]


def test_unicode_line_separators_do_not_end_a_line(tmp_path: Path) -> None:
    text = "who\u2028built\x85it?"
    make_squad_question = json.dumps({"question": text, "answers": ["Ada"]}, ensure_ascii=False)
    assert read_all(write_file(tmp_path / "q.jsonl", f"{make_squad_question}\n{make_squad_question}\n"))[1] == Question(
        text, ("Ada",), "2"
    )


def test_the_last_line_needs_no_newline(tmp_path: Path) -> None:
    assert len(read_all(write_file(tmp_path / "q.jsonl", GOOD + GOOD.rstrip("\n")))) == 2
    assert len(read_all(write_file(tmp_path / "q.tsv", GOOD_TSV + GOOD_TSV.rstrip("\n")))) == 2


def test_duplicate_questions_are_kept(tmp_path: Path) -> None:
    make_squad_question = '{"id": "a", "question": "who?", "answers": ["Ada"]}\n'
    assert read_all(write_file(tmp_path / "q.jsonl", make_squad_question * 2)) == [Question("who?", ("Ada",), "a")] * 2


def test_a_file_without_questions_has_none(tmp_path: Path) -> None:
    for name in ("q.jsonl", "q.tsv"):
        assert read_all(write_file(tmp_path / name, "\n \n")) == []
        assert read_all(write_file(tmp_path / name, "")) == []


@pytest.mark.parametrize("name", ["q.jsonl", "q.ndjson", "q.JSONL", "a.b.jsonl", "q.json.jsonl"])
def test_json_lines_may_have_several_suffixes(tmp_path: Path, name: str) -> None:
    assert read_one(tmp_path / name, GOOD) == Question("who?", ("Ada",), "1")


@pytest.mark.parametrize("suffix", [".tsv", ".csv"])
@compressions
def test_tables_of_dpr_are_read(tmp_path: Path, suffix: str, compression: str) -> None:
    rows = "who?\t['Ada', \"Bo's\"]\n\nwhere is it\t['Orléans']\n"
    path = write_compressed(tmp_path / f"q{suffix}", rows, compression)
    assert read_all(path) == [Question("who?", ("Ada", "Bo's"), "1"), Question("where is it", ("Orléans",), "3")]


@pytest.mark.parametrize(
    ("field", "answers"),
    [
        ("[]", ()),
        ("'Ada'", ("Ada",)),
        ("('Ada', 'Bo')", ("Ada", "Bo")),
        ("  ['Ada']  ", ("Ada",)),
        (r"['Bo\'s', 'a\\b', 'caf\xe9']", ("Bo's", r"a\b", "café")),
        ("['a, b', '[c]', '']", ("a, b", "[c]", "")),
    ],
)
def test_answers_of_a_table_are_parsed(tmp_path: Path, field: str, answers: tuple[str, ...]) -> None:
    assert read_one(tmp_path / "q.tsv", f"who?\t{field}\n") == Question("who?", answers, "1")


@pytest.mark.parametrize(
    ("question", "answers"),
    [
        ("who sang it?", ["Bo's", "Cy"]),
        ("who sang it?", ["Bo's"]),
        ('"Ada" who?', ["Ada"]),
        ('who sang "Ada"?', ['the "Ada"', "Bo's"]),
    ],
)
def test_fields_quoted_as_in_dprs_files_are_unquoted(tmp_path: Path, question: str, answers: list[str]) -> None:
    """Python's csv writer quotes a field with a quotation mark and doubles the mark."""
    path = tmp_path / "q.csv"
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter="\t").writerow([question, repr(answers)])
    assert '""' in path.read_text()
    assert read_all(path) == [Question(question, tuple(answers), "1")]


@compressions
def test_squad_questions_name_their_paragraph(tmp_path: Path, compression: str) -> None:
    path = write_compressed(tmp_path / "dev.json", json.dumps(SQUAD, ensure_ascii=False), compression)
    assert read_all(path) == [
        Question("Who built it?", ("Ada",), "q1", passages=("Ada built it.",)),
        Question("What was built?", ("it.", "it"), "q2", passages=("Ada built it.",)),
        Question("Où ?", ("Orléans",), "q3", passages=("In Orléans.",)),
    ]


@compressions
def test_squad_paragraphs_are_read(tmp_path: Path, compression: str) -> None:
    first, second, third = read_squad(write_compressed(tmp_path / "dev.json", json.dumps(SQUAD), compression))
    assert first == SquadParagraph(
        "Skarvik Lighthouse",
        "Ada built it.",
        (
            SquadQuestion("q1", "Who built it?", ("Ada",), 0),
            SquadQuestion("q2", "What was built?", ("it.", "it"), 10),
        ),
    )
    assert (second.text, second.questions[0].answer_start) == ("In Orléans.", 3)
    assert (third.title, third.text, third.questions) == ("Skarvik Lighthouse", "Nothing is asked of it.", ())


def test_unanswerable_questions_of_squad_2_have_no_answers(tmp_path: Path) -> None:
    impossible = make_squad_question(
        answers=[], is_impossible=True, plausible_answers=[{"text": "Ada", "answer_start": 0}]
    )
    path = write_file(tmp_path / "dev.json", json.dumps(make_squad(make_paragraph("Ada built it.", impossible))))
    assert read_all(path) == [Question("Who built it?", (), "q1", passages=("Ada built it.",))]
    assert next(read_squad(path)).questions == (SquadQuestion("q1", "Who built it?", (), -1),)


def test_squad_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    assert len(read_all(write_file(tmp_path / "dev.json", "\ufeff" + json.dumps(SQUAD)))) == 3


def test_squad_paragraphs_are_written_as_a_corpus(tmp_path: Path) -> None:
    """Each text is written once, under its first title, numbered by its position among all paragraphs."""
    paragraphs = [
        SquadParagraph("A", "One.\nTwo.", ()),
        SquadParagraph("B", "Où ?", ()),
        SquadParagraph("B", "One.\nTwo.", ()),
        SquadParagraph("", "Four.", ()),
    ]
    out = tmp_path / "corpus.jsonl"
    assert write_documents(((each.title, each.text) for each in paragraphs), out) == 3
    assert [replace(document, date="") for document in read_documents([out])] == [
        Document("0", "A", "One.\nTwo.", str(out)),
        Document("1", "B", "Où ?", str(out)),
        Document("3", "", "Four.", str(out)),
    ]
    assert "Où" in out.read_text(encoding="utf-8")
    assert write_documents([], out) == 0
    assert out.read_text() == ""
