"""Reports of a small fixed system, and their pages taken apart by the standard library."""

import re
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from ragqa.evaluation import Report, evaluate
from ragqa.evaluation.evaluated_systems import Predictions
from ragqa.evaluation.rows import Row, SystemResult
from ragqa.types import Answer, Hit, Passage, Question, Source, Span


@dataclass
class FixedSystem:
    """A system with a fixed result for each question."""

    examined: dict[str, SystemResult]
    described: dict[str, Any]
    is_identified: bool = True

    def answer_batch(self, questions: list[Question]) -> list[SystemResult]:
        return [self.examined[question.id] for question in questions]

    def skip(self, question: Question) -> None:
        pass

    def finish(self) -> None:
        pass

    def describe(self) -> dict[str, Any]:
        return self.described


SYSTEM = {"retriever": "hybrid", "fusion": "rrf", "kind": "flat", "k": 2, "reader": "r1", "depth": 20, "passages": 504}
TEXTS = ("Ada Holm came first in 1903.", "Bo Berg came second.", "Cy came third.")
QUESTIONS = [
    Question("who came first?", ("Ada Holm",), "right", documents=("d0",)),
    Question("who came second?", ("Bo Berg",), "not chosen", documents=("d1",)),
    Question("who came third?", ("Cy",), "not read", documents=("d2",)),
    Question("who came fourth?", ("Di",), "not retrieved", documents=("d9",)),
    Question("who came last?", (), "unanswerable"),
]
ANSWERS_BY_ID = {
    "right": "Ada Holm",
    "not chosen": "1903",
    "not read": "Bo",
    "not retrieved": "Cy",
    "unanswerable": "Bo Berg",
}


def make_hits() -> list[Hit]:
    """Return a hit for each of the texts."""
    return [Hit(Passage(n, f"d{n}", f"Title {n}", text, "", 0, len(text)), 1 - n / 9) for n, text in enumerate(TEXTS)]


def make_result(answer: str | None, confidence: float = 0.5) -> SystemResult:
    """Return a result with all passages, two of them read; the first one with the answer is cited."""
    hits = make_hits()
    cited = next(((hit, hit.passage.text.find(answer)) for hit in hits if answer and answer in hit.passage.text), None)
    sources = (Source(cited[0], Span(cited[1], cited[1] + len(answer)), 1.0),) if cited and answer else ()
    return SystemResult(Answer("", answer, 0.0, confidence, sources), hits[:2], hits, 0.01, 0.3)


def make_report(
    folder: Path, examined: dict[str, SystemResult] | None = None, system: Any = None, **settings: Any
) -> Report:
    """Evaluate a fixed system on all questions."""
    results = examined or {id: make_result(answer, 0.2 * n) for n, (id, answer) in enumerate(ANSWERS_BY_ID.items(), 1)}
    fixed_system = FixedSystem(results, SYSTEM if system is None else system)
    return evaluate(
        fixed_system, QUESTIONS, out=folder / "a.report", name="demo", **{"corpus": "encyclopedia", **settings}
    )


class ParsedPage(HTMLParser):
    """The tags of a page with their attributes, its texts, and its texts by tag."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[tuple[str, str | None], ...]]] = []
        self.texts: list[str] = []
        self.inside: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(attrs)))
        self.inside.setdefault(tag, []).append("")
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.tags.append((f"/{tag}", ()))
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        for tag in set(self._open):
            self.inside[tag][-1] += data

    def handle_decl(self, decl: str) -> None:
        assert decl == "DOCTYPE html"

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"comment {data!r}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"processing instruction {data!r}")

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def all(self, tag: str) -> list[str]:
        """Return the texts of all elements with a tag, white space collapsed."""
        return [" ".join(text.split()) for text in self.inside.get(tag, [])]

    def attributes(self, name: str) -> list[str]:
        return [value or "" for _, attrs in self.tags for key, value in attrs if key == name]


def read_table(html: str, title: str) -> dict[str, list[str]]:
    """Return the rows of the table with this title: first cell to other cells."""
    table = next(part for part in html.split("<table>")[1:] if f"<b>{title}</b>" in part).split("</table>")[0]
    rows = [ParsedPage(row) for row in re.findall(r"<tr.*?</tr>", table, re.DOTALL)]
    return {row.all("th")[0]: row.all("td") for row in rows if "td" in row.inside}


def make_row(number: int, question: str = "who?", **values: Any) -> Row:
    """Return a row that differs from an empty one in ``values``."""
    none = dict.fromkeys(
        ("prediction", "f1", "confidence", "rank", "passage_rank", "document_rank", "retrieve_seconds", "read_seconds")
    )
    values_by_name = {**none, "id": "", "answers": ("x",), "em": False, "loss": "not read", "read": 0, "digest": ""}
    values_by_name |= {"documents": (), "passages": ()}
    passages = {"cited": None, "holding": None, "hits": ()}
    return Row(number=number, question=question, **{**values_by_name, **passages, **values})


def score_predictions(folder: Path, name: str, text: str, **settings: Any) -> Report:
    """Evaluate the predictions in a file with this text."""
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return evaluate(Predictions(file, depth=20), QUESTIONS, out=folder / "p.report", name="demo", **settings)
