"""Question files of all formats."""

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragqa.errors import BadInput
from ragqa.question_files import read_questions
from ragqa.types import Question

COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".xz": lzma.compress,
    ".gz": gzip.compress,
    ".XZ": lzma.compress,
}
compressions = pytest.mark.parametrize("compression", COMPRESSIONS)

GOOD = '{"question": "who?", "answers": ["Ada"]}\n'
GOOD_TSV = "who?\t['Ada']\n"


def write_file(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_compressed(path: Path, content: str, compression: str) -> Path:
    return write_file(path.with_name(path.name + compression), COMPRESSIONS[compression](content.encode()))


def read_all(path: Path) -> list[Question]:
    return list(read_questions(path))


def read_one(path: Path, content: str | bytes) -> Question:
    (question,) = read_all(write_file(path, content))
    return question


def get_error(path: Path, after: int | None = None) -> str:
    """Return the one-line error of a file without its path; ``after`` questions must precede it."""
    questions = []
    with pytest.raises(BadInput) as caught:
        for question in read_questions(path):
            questions.append(question)  # a comprehension would lose the questions before the error
    message = str(caught.value)
    assert message.startswith(str(path))
    assert message.isprintable() and len(message) < len(str(path)) + 300
    assert after is None or len(questions) == after
    return message.removeprefix(str(path))


def make_squad(*paragraphs: dict[str, Any], title: Any = "Skarvik_Lighthouse") -> dict[str, Any]:
    return {"version": "1.1", "data": [{"title": title, "paragraphs": list(paragraphs)}]}


def make_paragraph(context: Any = "Ada built it.", *rows: dict[str, Any]) -> dict[str, Any]:
    return {"context": context, "qas": list(rows or (make_squad_question(),))}


def make_squad_question(**changed: Any) -> dict[str, Any]:
    return {"id": "q1", "question": "Who built it?", "answers": [{"text": "Ada", "answer_start": 0}], **changed}


TWO_ANSWERS = [{"text": "it.", "answer_start": 10}, {"text": "it", "answer_start": 10}]
SQUAD = make_squad(
    make_paragraph(
        "Ada built it.",
        make_squad_question(),
        make_squad_question(id="q2", question="What was built?", answers=TWO_ANSWERS),
    ),
    make_paragraph(
        "In Orléans.", make_squad_question(id="q3", question="Où ?", answers=[{"text": "Orléans", "answer_start": 3}])
    ),
    {"context": "Nothing is asked of it.", "qas": []},
)
