"""Read question files: JSON lines (NQ-open), DPR's TSV, and SQuAD 1.1."""

import ast
import csv
import gzip
import json
import lzma
import warnings
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ragqa.artefacts.paths import resolve_input_file
from ragqa.errors import BadInput, BadLine
from ragqa.types import Question

MAX_LINE_BYTES = 16 << 20
"""Maximum length of a line of a question file in bytes; a line can include gold passages."""
MAX_SQUAD_BYTES = 512 << 20
"""Maximum size of an uncompressed SQuAD file in bytes; it is read whole. SQuAD's training file has 30 MB."""
_DECOMPRESSION_ERRORS = (lzma.LZMAError, gzip.BadGzipFile, zlib.error, EOFError)
_QED = {
    "question_text": "question",
    "answer_text": "answers",
    "paragraph_text": "passages",
    "title_text": "titles",
    "example_id": "id",
}
"""Field of ragqa's JSON lines for each field of QED (Lamm et al. 2021)."""


@dataclass(frozen=True)
class SquadQuestion:
    """Question of SQuAD with its gold answers."""

    id: str
    text: str
    answers: tuple[str, ...]
    answer_start: int
    """Offset of the first answer in the paragraph, in characters; -1 if there is no answer."""


@dataclass(frozen=True)
class SquadParagraph:
    """Paragraph of SQuAD with the title of its article and the questions about it."""

    title: str
    text: str
    questions: tuple[SquadQuestion, ...]


def read_squad(path: Path) -> Iterator[SquadParagraph]:
    """Yield the paragraphs of a SQuAD 1.1 file, compressed (``.xz``, ``.gz``) or not, in order.

    Raises:
        BadInput: the file cannot be read, is larger than ``MAX_SQUAD_BYTES``, or is not a SQuAD file.
    """
    try:
        with _open(path) as file:
            whole = json.loads(_read_whole(file, path).decode("utf-8-sig"))
        if not isinstance(whole, dict):
            raise ValueError("it is not an object with the key data")
        articles = whole["data"]
        for article in articles:
            for paragraph in article["paragraphs"]:
                questions = tuple(map(_parse_squad_question, paragraph["qas"]))
                title, text = _check_text(article["title"], "title"), _check_text(paragraph["context"], "context")
                yield SquadParagraph(title.replace("_", " "), text, questions)
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else error
        raise BadInput(f"{path} is not a SQuAD 1.1 file: {reason}") from error


def _parse_squad_question(row: dict[str, Any]) -> SquadQuestion:
    answers = row["answers"]
    texts = tuple(_check_text(answer["text"], "answer") for answer in answers)
    start = answers[0]["answer_start"] if answers else -1
    return SquadQuestion(str(row["id"]), _check_question(row["question"]), texts, start)


def read_questions(path: Path) -> Iterator[Question]:
    """Yield the questions of a file in order.

    - ``.jsonl``, ``.ndjson``: one JSON object per line. It has ``question``, ``answers`` (or ``answer``, as in NQ-open;
      [] for an unanswerable question), and optionally ``id``, the gold ``documents`` (ids or ends of paths), the gold
      ``passages`` (texts) and their ``titles``. The field names of QED (Lamm et al. 2021) are also accepted.
    - ``.tsv``, ``.csv``: DPR's format, with a question, a tab and a Python list of answers on each line.
    - ``.json``: SQuAD 1.1; the paragraph of a question is its gold passage.

    Files can be compressed (``.xz``, ``.gz``). A question without an id gets the number of its line as id.

    Raises:
        BadInput: the file cannot be read, or its format is unknown.
        BadLine: a line is not a question; the message names the file and the line.
    """
    if is_squad(path):
        for paragraph in read_squad(path):
            for q in paragraph.questions:
                yield Question(q.text, q.answers, q.id, passages=(paragraph.text,), titles=(paragraph.title,))
        return
    kind = Path(_strip_compression(path)).suffix
    parsers = {".jsonl": _parse_json, ".ndjson": _parse_json, ".tsv": _parse_tsv, ".csv": _parse_tsv}
    if kind not in parsers:
        raise BadInput(f"{path}: questions are read from .jsonl, .tsv, .csv (DPR) or .json (SQuAD 1.1) files")
    with _open(path) as file:
        for number, data in enumerate(iter(partial(file.readline, MAX_LINE_BYTES + 1), b""), 1):
            if len(data) > MAX_LINE_BYTES:
                raise BadLine(f"{path}:{number}: longer than {MAX_LINE_BYTES >> 20} MB, so not a question")
            try:
                line = data.decode("utf-8-sig" if number == 1 else "utf-8")
                question = parsers[kind](line, str(number)) if line.strip() else None
            except UnicodeDecodeError as error:
                raise BadLine(f"{path}:{number}: not UTF-8 text") from error
            except (ValueError, RecursionError) as error:
                raise BadLine(f"{path}:{number}: not a question: {error}") from error
            if question is not None:
                yield question


def is_squad(path: Path) -> bool:
    """Return True if a file has SQuAD's suffix ``.json``, alone or before ``.xz`` or ``.gz``."""
    return _strip_compression(path).endswith(".json")


def _read_whole(file: BinaryIO, path: Path) -> bytes:
    data = file.read(MAX_SQUAD_BYTES + 1)
    if len(data) > MAX_SQUAD_BYTES:
        raise BadInput(f"{path} is longer than {MAX_SQUAD_BYTES >> 20} MB, so it is not a SQuAD file: split it")
    return data


def _strip_compression(path: Path) -> str:
    return path.name.lower().removesuffix(".xz").removesuffix(".gz")


def sample_questions(questions: Iterable[Question], total: int, count: int) -> Iterator[Question]:
    """Return an iterator over a random sample of the questions, in their order.

    The sample depends only on ``total`` and ``count``. It is random, because many files are sorted by article.

    Args:
        questions: all questions.
        total: number of all questions.
        count: number of questions in the sample, or all if there are fewer.
    """
    sample = set(np.random.default_rng(0).permutation(total)[:count].tolist())
    return (question for number, question in enumerate(questions) if number in sample)


def _parse_json(line: str, number: str) -> Question:
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError("an object with question and answers is needed")
    if "question_text" in row:
        row = {_QED[name]: value for name, value in row.items() if name in _QED}
    answers = row.get("answer") if row.get("answers") is None else row["answers"]
    if answers is None:
        raise ValueError("no answers; give [] for an unanswerable question")
    lists = {name: _check_texts(row.get(name, []), name) for name in ("documents", "passages", "titles")}
    if lists["titles"] and len(lists["titles"]) != len(lists["passages"]):
        raise ValueError("titles must be as many as passages")
    identifier = number if row.get("id") is None else str(row["id"])
    return Question(_check_question(row.get("question")), _check_texts(answers, "answers"), identifier, **lists)


def _parse_tsv(line: str, number: str) -> Question:
    try:
        question, *rest = next(csv.reader([line.rstrip("\r\n")], delimiter="\t"))
    except csv.Error as error:
        raise ValueError(str(error)) from error
    if len(rest) != 1:
        raise ValueError("one tab is needed, between the question and its answers")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns about backslashes of patterns that are not its own escapes
            answers = ast.literal_eval(rest[0].strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError("the answers must be a Python list of texts") from error
    return Question(_check_question(question), _check_texts(answers, "answers"), number)


def _check_text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"the {name} must be text")
    return value


def _check_question(value: Any) -> str:
    if not isinstance(value, str) or not any(c.isprintable() and not c.isspace() for c in value):
        raise ValueError("the question must be text that is not empty")
    return value


def _check_texts(value: Any, name: str) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{name} must be a list of texts")
    return tuple(texts)


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    open_file: Any = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix.lower(), open)
    try:
        with open_file(resolve_input_file(path), "rb") as file:
            yield file
    except _DECOMPRESSION_ERRORS as error:
        raise BadInput(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from error


def write_documents(texts: Iterable[tuple[str, str]], out: Path) -> int:
    """Write documents to a JSON lines file for ``ragqa index``, without repeated texts.

    The id of a document is its place in ``texts``, from 0.

    Args:
        texts: title and text of each document.
        out: file to write.

    Returns:
        The number of written documents.
    """
    seen = set()
    with out.open("w", encoding="utf-8") as file:
        for row, (title, text) in enumerate(texts):
            if text not in seen:
                seen.add(text)
                file.write(json.dumps({"id": str(row), "title": title, "text": text}, ensure_ascii=False) + "\n")
    return len(seen)
