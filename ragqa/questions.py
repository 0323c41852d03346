"""Question sets as they come in files: NQ-open's JSON lines, and SQuAD 1.1's articles."""

import json
import lzma
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ragqa.errors import BadInput, BadLine
from ragqa.types import Question


@dataclass(frozen=True)
class SquadQuestion:
    """A question of SQuAD with its gold answers and the character where the first one starts."""

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
    """The paragraphs of a SQuAD 1.1 file (``.json`` or ``.json.xz``) in their order."""
    try:
        with _open(path) as file:
            articles = json.load(file)["data"]
    except (ValueError, KeyError, TypeError, lzma.LZMAError) as error:
        raise BadInput(f"{path} is not a SQuAD 1.1 file: {error}") from error
    for article in articles:
        for paragraph in article["paragraphs"]:
            questions = tuple(
                SquadQuestion(
                    qa["id"],
                    qa["question"],
                    tuple(answer["text"] for answer in qa["answers"]),
                    qa["answers"][0]["answer_start"],
                )
                for qa in paragraph["qas"]
            )
            yield SquadParagraph(article["title"].replace("_", " "), paragraph["context"], questions)


def read_questions(path: Path) -> Iterator[Question]:
    """Questions of a JSON-lines file: ``{"question": str, "answers": [str, …]}``, ``.xz`` allowed."""
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                yield Question(
                    text=row["question"],
                    answers=tuple(row.get("answers", ())),
                    id=str(row.get("id", number)),
                )
            except (ValueError, KeyError, TypeError) as error:
                raise BadLine(f"{path}:{number}: not a question: {error!r}") from error


def _open(path: Path) -> IO[str]:
    if path.suffix == ".xz":
        return lzma.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")


def write_squad_corpus(paragraphs: Iterable[SquadParagraph], out: Path) -> None:
    """The distinct paragraphs as JSON lines that can be indexed, a document each."""
    seen = set()
    with out.open("w", encoding="utf-8") as file:
        for row, paragraph in enumerate(paragraphs):
            if paragraph.text not in seen:
                seen.add(paragraph.text)
                record = {"id": str(row), "title": paragraph.title, "text": paragraph.text}
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
