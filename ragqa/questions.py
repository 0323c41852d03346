"""Question sets as they come in files: JSON lines (NQ-open), DPR's TSV, and SQuAD 1.1's articles."""

import ast
import csv
import gzip
import json
import lzma
import warnings
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from ragqa.errors import BadInput, BadLine
from ragqa.types import Question

_DAMAGED = (lzma.LZMAError, gzip.BadGzipFile, zlib.error, EOFError)


@dataclass(frozen=True)
class SquadQuestion:
    """A question of SQuAD with its gold answers and the character where the first one starts (-1 without any)."""

    id: str
    text: str
    answers: tuple[str, ...]
    answer_start: int


@dataclass(frozen=True)
class SquadParagraph:
    """A paragraph of SQuAD, the title of its article, and the questions asked of it."""

    title: str
    text: str
    questions: tuple[SquadQuestion, ...]


def read_squad(path: Path) -> Iterator[SquadParagraph]:
    """The paragraphs of a SQuAD 1.1 file (``.json``, ``.json.xz`` or ``.json.gz``) in their order.

    Raises:
        BadInput: the file cannot be read, or is not such a file.
    """
    try:
        with _open(path) as file:
            articles = json.loads(file.read().decode("utf-8-sig"))["data"]
        for article in articles:
            for paragraph in article["paragraphs"]:
                questions = tuple(map(_squad_question, paragraph["qas"]))
                title, text = _string(article["title"], "title"), _string(paragraph["context"], "context")
                yield SquadParagraph(title.replace("_", " "), text, questions)
    except KeyError as error:
        raise BadInput(f"{path} is not a SQuAD 1.1 file: no {error}") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise BadInput(f"{path} is not a SQuAD 1.1 file: {error}") from error
    except _DAMAGED as error:
        raise BadInput(f"{path} is damaged: {error}") from error


def _squad_question(row: dict[str, Any]) -> SquadQuestion:
    answers = row["answers"]
    start = answers[0]["answer_start"] if answers else -1
    texts = tuple(_string(answer["text"], "answer") for answer in answers)
    return SquadQuestion(str(row["id"]), _text(row["question"]), texts, start)


def read_questions(path: Path) -> Iterator[Question]:
    """The questions of a file in their order, one by one.

    - ``.jsonl``: an object a line, with ``question``, ``answers`` (or NQ-open's ``answer``; [] where
      nothing answers it) and, if wanted, ``id``, ``documents`` (ids or ends of paths) and ``passages``
      (texts), where the answer stands, and ``titles``, one for each of these; or QED's names of the same
    - ``.tsv``, ``.csv``: DPR's: the question, a tab, a Python list of answers
    - ``.json``: SQuAD 1.1, each question with its paragraph as the gold passage

    Any of them may be compressed (``.xz``, ``.gz``). A question without an id has the number of its line.

    Raises:
        BadInput: the file cannot be read or is of another kind.
        BadLine: a line is not a question; names the file and the line.
    """
    name = _plain_name(path)
    if is_squad(path):
        for paragraph in read_squad(path):
            for q in paragraph.questions:
                yield Question(q.text, q.answers, q.id, passages=(paragraph.text,), titles=(paragraph.title,))
        return
    if not name.endswith((".jsonl", ".ndjson", ".tsv", ".csv")):
        raise BadInput(f"{path}: questions are read from .jsonl, .tsv, .csv (DPR) or .json (SQuAD 1.1) files")
    parse = _tab_separated if name.endswith((".tsv", ".csv")) else _json_line
    try:
        with _open(path) as file:
            for number, data in enumerate(file, 1):
                try:
                    line = data.decode("utf-8-sig" if number == 1 else "utf-8")
                    question = parse(line, str(number)) if line.strip() else None
                except UnicodeDecodeError as error:
                    raise BadLine(f"{path}:{number}: not UTF-8 text") from error
                except (ValueError, RecursionError) as error:
                    raise BadLine(f"{path}:{number}: not a question: {error}") from error
                if question is not None:
                    yield question
    except _DAMAGED as error:
        raise BadInput(f"{path} is damaged: {error}") from error


def _plain_name(path: Path) -> str:
    """In lower case, and without what says that the file is compressed."""
    return path.name.lower().removesuffix(".xz").removesuffix(".gz")


def sample_questions(questions: Iterable[Question], total: int, count: int) -> Iterator[Question]:
    """Yield ``count`` of ``total`` questions, drawn at random but always the same ones, in their order.

    The first ones would not do: files are in order of articles, and a few articles do not stand for the others.
    """
    chosen = set(np.random.default_rng(0).permutation(total)[:count].tolist())
    return (question for number, question in enumerate(questions) if number in chosen)


def is_squad(path: Path) -> bool:
    """Whether a file, by its name, is one of SQuAD's."""
    return _plain_name(path).endswith(".json")


_QED = {
    "question_text": "question",
    "answer_text": "answers",
    "paragraph_text": "passages",
    "title_text": "titles",
    "example_id": "id",
}
"""Names of Natural Questions with explanations (Lamm et al. 2021), and ours."""


def _json_line(line: str, number: str) -> Question:
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError("an object with question and answers is needed")
    if "question_text" in row:
        row = {_QED[name]: value for name, value in row.items() if name in _QED}
    answers = row.get("answer") if row.get("answers") is None else row["answers"]
    if answers is None:
        raise ValueError("no answers; give [] where nothing answers it")
    passages, titles = (_texts(row.get(name, []), name) for name in ("passages", "titles"))
    if titles and len(titles) != len(passages):
        raise ValueError("titles must be as many as passages")
    return Question(
        text=_text(row.get("question")),
        answers=_texts(answers, "answers"),
        id=number if row.get("id") is None else str(row["id"]),
        documents=_texts(row.get("documents", []), "documents"),
        passages=passages,
        titles=titles,
    )


def _tab_separated(line: str, number: str) -> Question:
    try:
        question, *rest = next(csv.reader([line.rstrip("\r\n")], delimiter="\t"))
    except csv.Error as error:
        raise ValueError(str(error)) from error
    if len(rest) != 1:
        raise ValueError("one tab is needed, between the question and its answers")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a pattern's backslash is no escape of Python's
            answers = ast.literal_eval(rest[0].strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError("the answers must be a Python list of texts") from error
    return Question(_text(question), _texts(answers, "answers"), number)


def _string(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"the {name} must be a text")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not any(c.isprintable() and not c.isspace() for c in value):
        raise ValueError("the question must be a text that is not empty")
    return value


def _texts(value: Any, name: str) -> tuple[str, ...]:
    """A list of texts; a single text counts as one, not as its letters."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{name} must be a list of texts")
    return tuple(texts)


def _open(path: Path) -> BinaryIO:
    try:
        if path.suffix == ".xz":
            return cast(BinaryIO, lzma.open(path))
        if path.suffix == ".gz":
            return cast(BinaryIO, gzip.open(path))
        return path.open("rb")
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from error


def write_documents(texts: Iterable[tuple[str, str]], out: Path) -> int:
    """Titles and texts as JSON lines that can be indexed, each different text as a document; how many these are."""
    seen = set()
    with out.open("w", encoding="utf-8") as file:
        for row, (title, text) in enumerate(texts):
            if text not in seen:
                seen.add(text)
                file.write(json.dumps({"id": str(row), "title": title, "text": text}, ensure_ascii=False) + "\n")
    return len(seen)
