"""Check that the questions about own documents fit their files."""

import json
from collections import Counter
from pathlib import Path

import pytest

from ragqa.corpus.formats.encodings import detect_encoding
from ragqa.metrics import normalize_answer
from ragqa.question_files import read_questions

DATA = Path(__file__).parent / "data" / "own_documents"
DEMO = Path(__file__).parent.parent / "ragqa" / "demo" / "articles"
FOLDERS = {"exam": (DATA / "exam" / "files",), "dev": (DATA / "dev" / "files", DEMO)}
EXAM_KINDS = {
    "facts": 70,
    "table": 32,
    "paraphrase": 26,
    "near-miss": 26,
    "number": 22,
    "misspelt": 14,
    "far-off": 14,
    "why": 12,
    "how": 12,
    "list": 8,
    "two-hop": 8,
    "yes-no": 6,
}
EXPECTED = {
    *("who", "when", "where", "what name", "what thing", "why", "how", "yes-no"),
    *("how many", "how long", "how fast", "how much"),
}
PLAIN = {
    *(".adoc", ".csv", ".ini", ".json", ".log", ".md", ".org"),
    *(".py", ".rst", ".tex", ".toml", ".tsv", ".txt", ".yaml"),
}
MAX_BYTES = 1_500_000


def read_rows(name):
    return [json.loads(line) for line in (DATA / name / "questions.jsonl").read_text("utf-8").splitlines()]


def find_document(name, ending):
    (path,) = (path for folder in FOLDERS[name] for path in folder.rglob("*") if path.as_posix().endswith(f"/{ending}"))
    return path


def read_plain(path):
    data = path.read_bytes()
    try:
        return data.decode(detect_encoding(data)[0])
    except UnicodeDecodeError:
        return data.decode("cp1252")


def test_no_far_question_has_an_answer_and_none_stands_twice():
    rows = read_rows("far")
    assert Counter(row["kind"] for row in rows) == {"general": 80, "talk": 30, "nonsense": 30}
    assert not any(row["answers"] for row in rows)
    assert len({row["question"] for row in rows}) == len({row["id"] for row in rows}) == 140


def test_the_sets_have_their_sizes_and_kinds():
    exam, dev = read_rows("exam"), read_rows("dev")
    assert Counter(row["kind"] for row in exam) == EXAM_KINDS
    assert len(dev) == 200 and {row["expects"] for row in dev} == EXPECTED
    assert sum(not row["answers"] for row in dev) == 40
    files = [path for path in FOLDERS["exam"][0].rglob("*") if path.is_file()]
    assert len(files) == 42 and sum(path.stat().st_size for path in files) < MAX_BYTES


def test_no_question_of_the_exam_is_in_the_set_for_tuning():
    exam, dev = ({row["question"].casefold() for row in read_rows(name)} for name in FOLDERS)
    assert len(exam) == 250 and len(dev) == 200 and not exam & dev


@pytest.mark.parametrize("name", FOLDERS)
def test_ragqa_reads_the_question_file(name):
    questions, rows = list(read_questions(DATA / name / "questions.jsonl")), read_rows(name)
    assert [question.id for question in questions] == [row["id"] for row in rows]
    assert len({row["id"] for row in rows}) == len(rows)


@pytest.mark.parametrize("name", FOLDERS)
def test_every_answer_has_documents_and_stands_in_them(name):
    rows = [row for row in read_rows(name) if row["answers"] or row["documents"]]
    paths = {ending: find_document(name, ending) for row in rows for ending in row["documents"]}
    texts = {end: normalize_answer(read_plain(path)) for end, path in paths.items() if path.suffix in PLAIN}
    assert texts
    for row in rows:
        assert row["answers"] and row["documents"], row["id"]
        if all(end in texts for end in row["documents"]) and row["kind"] != "yes-no":
            assert any(normalize_answer(row["answers"][0]) in texts[end] for end in row["documents"]), row["id"]
