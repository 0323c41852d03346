"""Frozen values that pass between the parts: passages, questions, hits and answers."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Passage:
    """A block of a document: the unit that is indexed, retrieved and read.

    ``text`` is ``source[start:end]`` of the document at ``path``, in characters as decoded.
    """

    id: int
    """Row in the passage store, 0 … N - 1."""
    document: str
    """The document's own id: the record's ``id``, or the file's path."""
    title: str
    text: str
    path: str
    """File the document was read from; for records, the file that holds them."""
    start: int
    end: int

    @property
    def titled(self) -> str:
        """Title and text, as they are indexed for retrieval."""
        return f"{self.title}\n{self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its gold answers and gold passages, where known."""

    text: str
    answers: tuple[str, ...] = ()
    """Gold answers, any of which is right; empty for an unanswerable question."""
    id: str = ""
    documents: tuple[str, ...] = ()
    """Ids, or ends of the paths, of the gold documents."""
    passages: tuple[str, ...] = ()
    """Texts of the gold passages."""
    titles: tuple[str, ...] = field(default=(), compare=False)
    """Titles of the gold passages, empty if unknown; two questions that differ in them only are equal."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A retrieved passage and its score; higher is better, comparable within one search only."""

    passage: Passage
    score: float


@dataclass(frozen=True, slots=True)
class Span:
    """Characters ``start … end`` of a passage's text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Source:
    """A passage that supports an answer: the answer's span in it, and its share of the answer's weight.

    For a generated answer the weight is the passage's posterior p(z|x,y), and the span is None if the answer does
    not stand in the passage.
    """

    hit: Hit
    span: Span | None
    weight: float

    def to_dict(self) -> dict[str, Any]:
        """Return the source as JSON values; positions are characters of the document at ``path``."""
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
    """A less likely answer."""

    text: str
    confidence: float
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one question, or a declined one.

    ``text`` is None if the question is declined; ``sources`` are then the nearest passages.
    ``score`` is the reader's own number, ``confidence`` the calibrated probability of being right.
    """

    question: str
    text: str | None
    score: float
    confidence: float
    sources: tuple[Source, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    missing: tuple[str, ...] = ()
    """Shards of a served index that did not answer; the answer may stand there."""
    supported: bool | None = True
    """True if the answer stands in a passage that was read (a generated one may not); None without an answer."""
    reason: str | None = None
    """Reason for declining or for an unsupported answer, in a few words."""
    note: str | None = None
    """A remark for the user, such as that a long question was cut."""

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
