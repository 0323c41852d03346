"""Question files that cannot be read, and their error messages."""

import gzip
import json
import os
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from ragqa import question_files
from ragqa.errors import BadInput, BadLine
from ragqa.question_files import read_questions, read_squad
from tests.helpers.question_files import (
    COMPRESSIONS,
    GOOD,
    GOOD_TSV,
    SQUAD,
    compressions,
    get_error,
    make_paragraph,
    make_squad,
    make_squad_question,
    read_all,
    write_file,
)

BAD_JSON_LINES = {
    "not JSON": "who?",
    "half an object": '{"question": "who?", "answers": ["Ada"',
    "two objects": GOOD.strip() + GOOD,
    "a list": '["who?", ["Ada"]]',
    "a text": '"who?"',
    "null": "null",
    "no question": '{"answers": ["Ada"]}',
    "another key": '{"query": "who?", "answers": ["Ada"]}',
    "question blank": '{"question": " \\t", "answers": ["Ada"]}',
    "question empty": '{"question": "", "answers": ["Ada"]}',
    "question null": '{"question": null, "answers": ["Ada"]}',
    "question a number": '{"question": 5, "answers": ["Ada"]}',
    "question a list": '{"question": ["who?"], "answers": ["Ada"]}',
    "no answers": '{"question": "who?"}',
    "answers null": '{"question": "who?", "answers": null}',
    "answers a number": '{"question": "who?", "answers": 5}',
    "answers true": '{"question": "who?", "answers": true}',
    "answers an object": '{"question": "who?", "answers": {"Ada": 1}}',
    "answers in lists": '{"question": "who?", "answers": [["Ada"]]}',
    "answers numbers": '{"question": "who?", "answers": ["Ada", 5]}',
    "answers with null": '{"question": "who?", "answers": ["Ada", null]}',
    "answers no number": '{"question": "who?", "answers": [NaN]}',
    "documents a number": '{"question": "who?", "answers": ["Ada"], "documents": 5}',
    "passages of numbers": '{"question": "who?", "answers": ["Ada"], "passages": [5]}',
    "a number beyond Python": '{"question": "who?", "answers": %s}' % ("9" * 6000),
    "nested without end": '{"question": "who?", "answers": ' + "[" * 100_000,
    "nested deeply": '{"question": "who?", "answers": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "objects nested deeply": '{"question": ' * 100_000,
}

BAD_TSV_LINES = {
    "no tab": "who? ['Ada']",
    "no question": "\t['Ada']",
    "question blank": " \t['Ada']",
    "no answers": "who?\t",
    "answers a number": "who?\t5",
    "answers a name": "who?\tAda",
    "answers of names": "who?\t[Ada, Bo]",
    "answers an object": "who?\t{'Ada': 1}",
    "answers a set": "who?\t{'Ada'}",
    "answers bytes": "who?\t[b'Ada']",
    "answers None": "who?\tNone",
    "answers in lists": "who?\t[['Ada']]",
    "answers numbers": "who?\t['Ada', 5]",
    "half a list": "who?\t['Ada'",
    "half a text": "who?\t['Ada]",
    "a third column": "who?\t['Ada']\t['Bo']",
    "a NUL": "who?\t['A\0da']",
    "a number beyond Python": "who?\t" + "9" * 6000,
    "nested": "who?\t" + "[" * 90 + "'Ada'" + "]" * 90,
    "nested deeply": "who?\t" + "[" * 100_000 + "]" * 100_000,
    "signs without end": "who?\t" + "-" * 100_000 + "1",
    "a sum without end": "who?\t" + "+".join(["'Ada'"] * 20_000),
}


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        *(pytest.param("q.jsonl", GOOD, line, id=f"jsonl-{what}") for what, line in BAD_JSON_LINES.items()),
        *(pytest.param("q.tsv", GOOD_TSV, line, id=f"tsv-{what}") for what, line in BAD_TSV_LINES.items()),
    ],
)
def test_a_line_that_is_not_a_question_is_named(tmp_path: Path, name: str, good: str, bad: str) -> None:
    path = write_file(tmp_path / name, f"{good}\n{good}{bad}\n{good}")
    questions = read_questions(path)
    assert [question.id for question in islice(questions, 2)] == ["1", "3"]  # the bad line has not been read yet
    with pytest.raises(BadLine):
        next(questions)
    assert get_error(path).startswith(":4: ")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('["who?", ["Ada"]]', "object"),
        ('{"answers": ["Ada"]}', "question must be text"),
        ('{"question": "who?"}', r"no answers.*\[\]"),
        ('{"question": "who?", "answers": 5}', "answers must be a list of texts"),
        ('{"question": "who?", "answers": [], "documents": 5}', "documents must be a list of texts"),
        ('{"question": "who?", "answers": [], "passages": 5}', "passages must be a list of texts"),
    ],
)
def test_the_error_of_a_json_line_is_described(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(BadLine, match=words):
        read_all(write_file(tmp_path / "q.jsonl", line))


@pytest.mark.parametrize(
    "field",
    ["", "Ada", "['Ada'", "['Ada]", "__import__('os')", "9" * 6000, "[" * 100_000, "-" * 100_000 + "1"],
    ids=["empty", "name", "half a list", "half a text", "code", "huge", "nested", "signs"],
)
def test_the_error_of_an_answer_list_is_described(tmp_path: Path, field: str) -> None:
    """The message contains no internals of the parser."""
    message = get_error(write_file(tmp_path / "q.tsv", GOOD_TSV * 4 + f"who?\t{field}\n"))
    assert message.startswith(":5: ")
    assert "answers" in message or "list" in message
    assert "<" not in message and "line 1" not in message


@pytest.mark.parametrize(
    "code",
    [
        "__import__('os').mkdir({path!r})",
        "[__import__('os').mkdir({path!r})]",
        "['Ada', *[__import__('os').mkdir({path!r})]]",
        "[x for x in [__import__('os').mkdir({path!r})]]",
        "(lambda: __import__('os').mkdir({path!r}))()",
        "f'{{__import__(\"os\").mkdir({path!r})}}'",
    ],
)
def test_code_among_the_answers_is_not_executed(tmp_path: Path, code: str) -> None:
    made = tmp_path / "made"
    path = write_file(tmp_path / "q.tsv", f"who?\t{code.format(path=str(made))}\n")
    assert get_error(path).startswith(":1: ")
    assert not made.exists()


@pytest.mark.parametrize("name", ["q.jsonl", "q.tsv"])
@compressions
def test_a_line_that_is_not_utf_8_is_named(tmp_path: Path, name: str, compression: str) -> None:
    good = (GOOD if name.endswith("l") else GOOD_TSV).encode()
    latin = good.replace(b"Ada", "André".encode("latin-1"))
    for before in (0, 2, 1000):
        content = good * before + latin + good
        path = write_file(tmp_path / (name + compression), COMPRESSIONS[compression](content))
        message = get_error(path, after=before)
        assert message.startswith(f":{before + 1}: ") and "UTF-8" in message


def test_utf_16_is_refused(tmp_path: Path) -> None:
    assert "UTF-8" in get_error(write_file(tmp_path / "q.jsonl", GOOD.encode("utf-16")))


def test_a_json_file_that_is_not_utf_8_is_not_quoted_whole(tmp_path: Path) -> None:
    assert "utf-8" in get_error(write_file(tmp_path / "dev.json", b"\xff" * 10_000)).lower()


FORMS = {
    "q.jsonl": "".join(f'{{"question": "who is {n}?", "answers": ["{n * n}"]}}\n' for n in range(2000)),
    "q.tsv": "".join(f"who is {n}?\t['{n * n}']\n" for n in range(2000)),
    "dev.json": json.dumps(
        make_squad(*(make_paragraph(f"It is {n * n}.", make_squad_question(id=str(n))) for n in range(2000)))
    ),
}
forms = pytest.mark.parametrize("form", FORMS)


@forms
@pytest.mark.parametrize("compression", [".xz", ".gz"])
@pytest.mark.parametrize("share", [0.01, 0.5, 0.9])
def test_a_truncated_file_is_reported_as_damaged(tmp_path: Path, form: str, compression: str, share: float) -> None:
    content = COMPRESSIONS[compression](FORMS[form].encode())
    path = write_file(tmp_path / (form + compression), content[: int(len(content) * share)])
    assert "end-of-stream" in get_error(path)


@forms
@pytest.mark.parametrize("compression", [".xz", ".gz"])
@pytest.mark.parametrize("place", [0, 0.02, 0.5, -6], ids=["head", "start", "middle", "end"])
def test_a_file_with_a_wrong_byte_is_reported_as_damaged(
    tmp_path: Path, form: str, compression: str, place: float
) -> None:
    content = bytearray(COMPRESSIONS[compression](FORMS[form].encode()))
    content[int(place * len(content)) if 0 <= place < 1 else int(place)] ^= 0xFF
    assert get_error(write_file(tmp_path / (form + compression), bytes(content)))


@forms
@pytest.mark.parametrize("compression", [".xz", ".gz"])
def test_a_file_not_compressed_as_its_suffix_says_is_reported_as_damaged(
    tmp_path: Path, form: str, compression: str
) -> None:
    assert get_error(write_file(tmp_path / (form + compression), FORMS[form]))


PLACES = [name + compression for name in FORMS for compression in COMPRESSIONS]


@pytest.mark.parametrize("name", PLACES)
def test_a_missing_file_is_reported(tmp_path: Path, name: str) -> None:
    assert get_error(tmp_path / name) == " cannot be read: No such file or directory"


@pytest.mark.parametrize("name", PLACES)
def test_a_directory_is_reported(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert get_error(tmp_path / name) == " cannot be read: Is a directory"


@pytest.mark.parametrize("name", PLACES)
def test_a_pipe_is_refused(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    assert get_error(tmp_path / name) == " is not a file, but a pipe, a device or a socket: name a file"


def test_a_file_of_the_system_without_a_size_is_empty(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").symlink_to("/proc/version")  # /proc/kmsg would never end, and only root may read it
    assert read_all(tmp_path / "q.jsonl") == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
@pytest.mark.parametrize("name", PLACES)
def test_an_unreadable_file_is_reported(tmp_path: Path, name: str) -> None:
    write_file(tmp_path / name, "").chmod(0)
    assert get_error(tmp_path / name) == " cannot be read: Permission denied"


@pytest.mark.parametrize("name", ["q.txt", "q", "q.xz", "q.gz", "jsonl", "q.jsonl.bz2", "q.parquet", "q.jsonl~"])
def test_an_unknown_suffix_is_refused(tmp_path: Path, name: str) -> None:
    message = get_error(write_file(tmp_path / name, GOOD))
    assert all(suffix in message for suffix in (".jsonl", ".tsv", ".csv", ".json "))


def drop_key(key: str) -> dict[str, Any]:
    """Return SQuAD data without this key."""

    def drop(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: drop(inner) for name, inner in value.items() if name != key}
        return [drop(inner) for inner in value] if isinstance(value, list) else value

    return dict(drop(SQUAD))


NOT_SQUAD: dict[str, Any] = {
    "a list": [SQUAD],
    "a text": "data",
    "null": None,
    "a number": 5,
    "DPR's own json": [{"question": "who?", "answers": ["Ada"], "positive_ctxs": []}],
    **{
        f"no {key}": drop_key(key)
        for key in ("data", "title", "paragraphs", "context", "qas", "id", "question", "answers", "text")
    },
    "articles null": {"data": None},
    "articles a number": {"data": 5},
    "articles a dict": {"data": {"first": SQUAD["data"][0]}},
    "articles texts": {"data": ["first"]},
    "articles numbers": {"data": [5]},
    "title null": make_squad(make_paragraph(), title=None),
    "title a number": make_squad(make_paragraph(), title=5),
    "paragraphs a dict": {"data": [{"title": "A", "paragraphs": make_paragraph()}]},
    "paragraphs null": {"data": [{"title": "A", "paragraphs": None}]},
    "context null": make_squad(make_paragraph(None)),
    "context a number": make_squad(make_paragraph(5)),
    "questions a dict": make_squad({"context": "Ada built it.", "qas": make_squad_question()}),
    "question null": make_squad(make_paragraph("Ada built it.", make_squad_question(question=None))),
    "question a number": make_squad(make_paragraph("Ada built it.", make_squad_question(question=5))),
    "answers null": make_squad(make_paragraph("Ada built it.", make_squad_question(answers=None))),
    "answers a text": make_squad(make_paragraph("Ada built it.", make_squad_question(answers="Ada"))),
    "answers texts": make_squad(make_paragraph("Ada built it.", make_squad_question(answers=["Ada"]))),
    "answers by column": make_squad(
        make_paragraph("Ada built it.", make_squad_question(answers={"text": ["Ada"], "answer_start": [0]}))
    ),
    "answer null": make_squad(
        make_paragraph("Ada built it.", make_squad_question(answers=[{"text": None, "answer_start": 0}]))
    ),
    "answer a number": make_squad(
        make_paragraph("Ada built it.", make_squad_question(answers=[{"text": 5, "answer_start": 0}]))
    ),
}


@pytest.mark.parametrize("content", [pytest.param(value, id=what) for what, value in NOT_SQUAD.items()])
def test_json_that_is_not_squad_is_refused(tmp_path: Path, content: Any) -> None:
    path = write_file(tmp_path / "dev.json", json.dumps(content))
    assert "SQuAD" in get_error(path)


@pytest.mark.parametrize(
    "content",
    ["", "who?", GOOD * 2, '{"data": [', "[" * 100_000, '{"data": ' * 100_000, '{"data": %s}' % ("9" * 6000)],
    ids=["empty", "text", "json lines", "cut", "nested lists", "nested objects", "huge number"],
)
def test_text_that_is_not_json_is_refused_as_squad(tmp_path: Path, content: str) -> None:
    path = write_file(tmp_path / "dev.json", content)
    assert "SQuAD" in get_error(path)
    with pytest.raises(BadInput):
        list(read_squad(path))


def test_good_squad_paragraphs_come_before_a_bad_one(tmp_path: Path) -> None:
    content = make_squad(make_paragraph(), make_paragraph("Bo built it.", make_squad_question(answers=None)))
    questions = read_questions(write_file(tmp_path / "dev.json", json.dumps(content)))
    assert next(questions).id == "q1"
    with pytest.raises(BadInput):
        next(questions)


def test_a_line_without_end_is_named_before_it_fills_the_memory(tmp_path: Path) -> None:
    endless = write_file(tmp_path / "endless.jsonl", "")
    os.truncate(endless, 1 << 40)  # zeros that need no place on the disk
    with pytest.raises(BadLine, match=r"endless\.jsonl:1: longer than 16 MB, so not a question"):
        next(read_questions(endless))


def test_a_squad_file_that_expands_without_end_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question_files, "MAX_SQUAD_BYTES", 1 << 20)
    bomb = tmp_path / "bomb.json.gz"
    bomb.write_bytes(gzip.compress(b" " * (2 << 20)))
    with pytest.raises(BadInput, match=r"bomb\.json\.gz is longer than 1 MB, so it is not a SQuAD file: split it"):
        next(read_squad(bomb))
