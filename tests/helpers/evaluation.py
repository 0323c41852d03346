"""A fixed pipeline with six questions, and helpers to evaluate it."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from ragqa.corpus.sources import Document
from ragqa.corpus.store import PassageStore, PassageWriter
from ragqa.evaluation import Report
from ragqa.evaluation.rows import Row
from ragqa.pipeline import Pipeline
from ragqa.types import Answer, Hit, Passage, Question, Source, Span


def make_hits(*texts: str) -> list[Hit]:
    """Return hits with falling scores, one per text."""
    return [
        Hit(Passage(n, f"d{n}", f"Title {n}", text, f"/c/d{n}", 0, len(text)), 1.0 - n / 10)
        for n, text in enumerate(texts)
    ]


@dataclass
class FixedRetriever:
    """A retriever with fixed hits for each question."""

    by_question: dict[str, list[Hit]]
    asked: list[tuple[str, int]] = field(default_factory=list)

    def search(self, questions: list[str], k: int) -> list[list[Hit]]:
        self.asked += [(question, k) for question in questions]
        return [self.by_question[question][:k] for question in questions]


@dataclass
class FixedReader:
    """A reader with a fixed answer to each question, cited from its first hit."""

    by_question: dict[str, tuple[str | None, float]]
    fingerprint: str = "said"
    kind: str = "fixed"
    is_closed_book: bool = False

    def read(self, questions: list[str], make_hits: list[list[Hit]]) -> list[Answer]:
        answers = []
        for question, found in zip(questions, make_hits, strict=True):
            text, confidence = self.by_question[question]
            sources = tuple(Source(hit, Span(0, 1), 1.0) for hit in found[:1])
            answers.append(Answer(question, text, confidence, confidence, sources))
        return answers


QUESTIONS = [
    Question("who is first?", ("Ada Holm",), "q1", passages=("Ada  Holm came first.",)),
    Question("who is second?", ("Bo", "Bo Berg"), "q2", documents=("d2",)),
    Question("who is third?", ("Cy",), "q3"),
    Question("who is fourth?", ("Di",), "q4"),
    Question("who is first?", ("Ada Holm",), "q1 again"),
    Question("who is nobody?", (), "q5"),
]


HITS = {
    "who is first?": make_hits("Ada Holm came first.", "x", "y"),
    "who is second?": make_hits("x", "y", "Bo came second."),
    "who is third?": make_hits("Cy came third.", "x", "y"),
    "who is fourth?": make_hits("x", "y", "z"),
    "who is nobody?": make_hits("x", "y", "z"),
}


ANSWERS = {
    "who is first?": ("ada holm.", 0.9),
    "who is second?": ("nobody", 0.1),
    "who is third?": ("Cy came", 0.6),
    "who is fourth?": ("z", 0.3),
    "who is nobody?": ("x", 0.5),
}


def make_pipeline() -> Pipeline:
    """Return a pipeline that reads two passages per question."""
    return Pipeline(FixedRetriever(HITS), FixedReader(ANSWERS), k=2)


def drop_times(report: Report) -> list[Row]:
    """Return the rows of a report without the seconds that they took."""
    return [replace(row, retrieve_seconds=None, read_seconds=None) for row in report.rows()]


def write_store(folder: Path, texts: list[str]) -> PassageStore:
    """Write a store of one passage per text and open it."""
    with PassageWriter(folder) as writer:
        for n, text in enumerate(texts):
            writer.add_document(Document(str(n), "title", text, "path"), [(0, len(text))])
    return PassageStore.open(folder)
