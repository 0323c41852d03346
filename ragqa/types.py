"""Frozen values that pass between the parts: passages, questions, hits and answers."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Passage:
    """Block of a document: the unit that is indexed, retrieved and read.

    ``text`` stands at the characters ``start`` to ``end`` of the document at ``path``.
    """

    id: int
    """Row in the passage store, 0 … N - 1."""
    document: str
    """Id of the document: the ``id`` of its record, or the path of its file."""
    title: str
    text: str
    path: str
    """File that holds the document; the records of a file share it."""
    start: int
    end: int

    @property
    def titled_text(self) -> str:
        """Title and text, as they are indexed for retrieval."""
        return f"{self.title}\n{self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True)
class Question:
    """Question with its gold answers and gold passages, where known."""

    text: str
    answers: tuple[str, ...] = ()
    """Gold answers, any of which is right; empty for an unanswerable question."""
    id: str = ""
    documents: tuple[str, ...] = ()
    """Ids, or ends of the paths, of the gold documents."""
    passages: tuple[str, ...] = ()
    """Texts of the gold passages."""
    titles: tuple[str, ...] = field(default=(), compare=False)
    """Titles of the gold passages, empty if unknown; ignored when questions are compared."""


@dataclass(frozen=True, slots=True)
class Hit:
    """Retrieved passage and its score; higher is better, comparable within one search only."""

    passage: Passage
    score: float


@dataclass(frozen=True, slots=True)
class Span:
    """Characters ``start`` to ``end`` (exclusive) of a passage's text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Source:
    """Passage that supports an answer, with the answer's span and the passage's weight.

    The weight of a passage for a generated answer is its posterior p(z|x,y); the span is None if the passage does not
    contain the answer.
    """

    hit: Hit
    span: Span | None
    weight: float

    def to_dict(self) -> dict[str, Any]:
        """Return the source as JSON values; positions are characters of the document."""
        passage, span = self.hit.passage, self.span
        return {
            "title": passage.title,
            "path": passage.path,
            "start": passage.start,
            "end": passage.end,
            "text": passage.text,
            "document": passage.document,
            "answer_start": passage.start + span.start if span else None,
            "answer_end": passage.start + span.end if span else None,
            "weight": round(self.weight, 4),
        }


@dataclass(frozen=True, slots=True)
class Alternative:
    """Less likely answer."""

    text: str
    confidence: float
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to one question."""

    question: str
    text: str | None
    """Text of the answer; None if the question is declined."""
    score: float
    """Score by the reader, comparable between answers of one reader only."""
    confidence: float
    """Calibrated probability that the answer is right."""
    sources: tuple[Source, ...] = ()
    """Passages that support the answer; the nearest passages if the question is declined."""
    alternatives: tuple[Alternative, ...] = ()
    missing: tuple[str, ...] = ()
    """Shards of a served index that did not answer; the answer may stand there."""
    supported: bool | None = True
    """True if a passage that was read contains the answer; None without an answer."""
    reason: str | None = None
    """Reason for declining or for an unsupported answer, in a few words."""
    note: str | None = None
    """Remark for the user, for example that a long question was cut."""

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as JSON values: the object that ``ragqa ask --json`` prints.

        ``answer`` is null if the question is declined, and so are ``supported`` and the sources' ``answer_start``
        and ``answer_end``. Confidences and weights are rounded to four decimals.
        """
        return {
            "question": self.question,
            "answer": self.text,
            "confidence": round(self.confidence, 4),
            "supported": self.supported,
            "reason": self.reason,
            "note": self.note,
            "sources": [source.to_dict() for source in self.sources],
            "alternatives": [
                {"answer": other.text, "confidence": round(other.confidence, 4)} for other in self.alternatives
            ],
            "missing": list(self.missing),
        }
