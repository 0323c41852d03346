"""One question, asked and scored: a line of ``rows.jsonl``."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any, Literal

from ragqa.metrics import exact_match, f1, first_rank, has_answer
from ragqa.types import Answer, Hit, Question, Span

Loss = Literal["right", "not retrieved", "not read", "not chosen", "unanswerable"]
"""Where an answer was lost; ``not retrieved`` is divided by whether the corpus holds it, once that is known."""
_EXCERPT = 4000
"""Characters kept of a passage that is shown."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """When a prediction is right and a passage holds an answer; see ``ragqa.metrics``."""

    regex: bool = False
    unicode: Literal["NFD"] | None = "NFD"

    @property
    def name(self) -> str:
        """nq, squad or regex."""
        return "regex" if self.regex else "nq" if self.unicode else "squad"

    @classmethod
    def named(cls, name: str) -> "Rule":
        """The rule of this name; KeyError where there is none."""
        return {"nq": cls(), "squad": cls(unicode=None), "regex": cls(regex=True)}[name]


@dataclass(frozen=True)
class Examined:
    """What a system gave for a question."""

    answer: Answer | None
    """None where nothing is read, only retrieved."""
    read: list[Hit]
    """The hits that were read."""
    found: list[Hit]
    """The first hits, as deep as is scored; the same as those read, and more."""
    retrieve_seconds: float | None = None
    read_seconds: float | None = None


@dataclass(frozen=True)
class ScoredHit:
    """A passage by its row in the store, its retrieval score, and whether its text holds an answer."""

    passage: int
    score: float
    has_answer: bool


@dataclass(frozen=True)
class Excerpt:
    """A passage as the report shows it, with the characters ``start … end`` of the predicted answer."""

    title: str
    document: str
    text: str
    rank: int | None = None
    """Place among the hits, from 1."""
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """A question, what was found and said, and how right that is."""

    number: int
    """Place in the question set, from 0: a question that stands there twice has two rows."""
    id: str
    question: str
    answers: tuple[str, ...]
    prediction: str | None
    em: bool
    f1: float | None
    """None for patterns, which have no tokens."""
    confidence: float | None
    """None where the system gives none."""
    loss: Loss
    read: int
    """Hits that were read."""
    rank: int | None
    """Place, from 1, of the first hit that holds an answer."""
    gold_rank: int | None
    """Place, from 1, of the first hit that is a gold passage."""
    gold_known: bool
    """Whether the question names its gold passages."""
    retrieve_seconds: float | None
    read_seconds: float | None
    cited: Excerpt | None
    """Where the prediction stands."""
    holding: Excerpt | None
    """The first hit that holds an answer, where it is not the one that is cited."""
    hits: tuple[ScoredHit, ...]

    @property
    def asked(self) -> Question:
        """The question as it was asked."""
        return Question(self.question, self.answers, self.id)

    def to_json(self) -> str:
        """One line."""
        row = {**asdict(self), "hits": [[h.passage, round(h.score, 4), int(h.has_answer)] for h in self.hits]}
        return json.dumps(row, ensure_ascii=False).encode("utf-8", "replace").decode("utf-8")

    @classmethod
    def from_json(cls, line: str) -> "Row":
        """The row of a line; ValueError, KeyError or TypeError where it is none."""
        row: dict[str, Any] = json.loads(line)
        row["answers"] = tuple(row["answers"])
        for name in ("cited", "holding"):
            row[name] = row[name] and Excerpt(**row[name])
        row["hits"] = tuple(ScoredHit(passage, score, bool(holds)) for passage, score, holds in row["hits"])
        return cls(**row)


def score(number: int, question: Question, examined: Examined, rule: Rule) -> Row:
    """Score what a system gave for a question."""
    answer = examined.answer
    prediction = answer.text if answer else None
    holds = [has_answer(hit.passage.text, question.answers, regex=rule.regex) for hit in examined.found]
    em = exact_match(prediction, question.answers, regex=rule.regex, unicode=rule.unicode)
    rank = first_rank(holds)
    cited = _cited(answer, examined.found)
    return Row(
        number=number,
        id=question.id,
        question=question.text,
        answers=question.answers,
        prediction=prediction,
        em=em,
        f1=None if rule.regex else f1(prediction, question.answers),
        confidence=None if answer is None or math.isnan(answer.confidence) else answer.confidence,
        loss=_loss(em, question, examined.read, rank, rule),
        read=len(examined.read),
        rank=rank,
        gold_rank=first_rank(is_gold(hit, question) for hit in examined.found),
        gold_known=bool(question.passages or question.documents),
        retrieve_seconds=examined.retrieve_seconds,
        read_seconds=examined.read_seconds,
        cited=cited,
        holding=_excerpt(examined.found[rank - 1], rank) if rank and (cited is None or cited.rank != rank) else None,
        hits=tuple(ScoredHit(hit.passage.id, hit.score, held) for hit, held in zip(examined.found, holds, strict=True)),
    )


def _loss(em: bool, question: Question, read: list[Hit], rank: int | None, rule: Rule) -> Loss:
    if not question.answers:
        return "unanswerable"
    if em:
        return "right"
    if any(has_answer(hit.passage.text, question.answers, regex=rule.regex) for hit in read):
        return "not chosen"
    return "not retrieved" if rank is None else "not read"


def is_gold(hit: Hit, question: Question) -> bool:
    """Whether a hit is one of the passages, or comes from one of the documents, that the question names.

    Texts are compared but for white space; documents by id, or by the end of their path.
    """
    passage = hit.passage
    if question.documents and any(
        passage.document == name or passage.document.endswith(f"/{name}") for name in question.documents
    ):
        return True
    return bool(question.passages) and _plain(passage.text) in {_plain(text) for text in question.passages}


def _plain(text: str) -> str:
    return " ".join(text.split())


def _cited(answer: Answer | None, found: list[Hit]) -> Excerpt | None:
    if answer is None or answer.text is None or not answer.sources:
        return None
    source = answer.sources[0]
    rank = first_rank(hit.passage.id == source.hit.passage.id for hit in found)
    return _excerpt(source.hit, rank, source.span)


def _excerpt(hit: Hit, rank: int | None, span: Span | None = None) -> Excerpt:
    text, start, end = hit.passage.text, None, None
    if span is not None:
        low = max(0, min(span.start, (span.start + span.end - _EXCERPT) // 2))
        start, end = span.start - low, span.end - low
        text = text[low:]
    return Excerpt(hit.passage.title, _named(hit.passage.document), text[:_EXCERPT], rank, start, end)


def _named(document: str) -> str:
    """A document's id; of a file the end of its path, as a report is shown to others."""
    path = PurePath(document)
    return "/".join(path.parts[-2:]) if path.is_absolute() else document
