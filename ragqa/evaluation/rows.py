"""One question, asked and scored: a line of ``rows.jsonl``."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from hashlib import blake2b
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
    """None where nothing is read, only retrieved; its confidence NaN where the system gives none."""
    read: list[Hit]
    """The hits that were read."""
    found: list[Hit]
    """The first hits, as deep as is scored; the same as those read, and more."""
    retrieve_seconds: float | None = None
    read_seconds: float | None = None


@dataclass(frozen=True)
class ScoredHit:
    """A passage, its retrieval score, and whether its text holds an answer."""

    passage: int
    """Row in the store; of predictions the place in their list, from 0."""
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
    digest: str
    """Of all that the question is, gold passages included: a row counts only for the very same one."""
    id: str
    question: str
    answers: tuple[str, ...]
    documents: tuple[str, ...]
    """Gold documents, as the question names them."""
    passages: tuple[str, ...]
    """Digests of the texts of its gold passages."""
    prediction: str | None
    em: bool
    f1: float | None
    """None for patterns, which have no tokens, and where nothing is read."""
    confidence: float | None
    """None where the system gives none."""
    loss: Loss | None
    """None where nothing is read."""
    read: int
    """Hits that were read."""
    rank: int | None
    """Place, from 1, of the first hit that holds an answer."""
    passage_rank: int | None
    """Place, from 1, of the first hit that is a gold passage."""
    document_rank: int | None
    """Place, from 1, of the first hit from a gold document."""
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
        for name in ("answers", "documents", "passages"):
            row[name] = tuple(row[name])
        for name in ("cited", "holding"):
            row[name] = row[name] and Excerpt(**row[name])
        row["hits"] = tuple(ScoredHit(passage, score, bool(holds)) for passage, score, holds in row["hits"])
        return cls(**row)


def score(number: int, question: Question, examined: Examined, rule: Rule) -> Row:
    """Score what a system gave for a question."""
    answer, found = examined.answer, examined.found
    prediction = answer.text if answer else None
    holds = [has_answer(hit.passage.text, question.answers, regex=rule.regex) for hit in found]
    em = exact_match(prediction, question.answers, regex=rule.regex, unicode=rule.unicode)
    rank = first_rank(holds)
    cited = _cited(answer, found)
    holding = found[rank - 1] if rank and (cited is None or cited.rank != rank) else None
    passages = tuple(text_digest(text) for text in question.passages)
    return Row(
        number=number,
        digest=question_digest(question),
        id=question.id,
        question=question.text,
        answers=question.answers,
        documents=question.documents,
        passages=passages,
        prediction=prediction,
        em=em,
        f1=None if rule.regex or answer is None else f1(prediction, question.answers),
        confidence=None if answer is None or math.isnan(answer.confidence) else answer.confidence,
        loss=_loss(em, question, examined.read, rank, rule) if answer else None,
        read=len(examined.read),
        rank=rank,
        passage_rank=first_rank(text_digest(hit.passage.text) in passages for hit in found) if passages else None,
        document_rank=first_rank(is_from(hit.passage.document, question.documents) for hit in found),
        retrieve_seconds=examined.retrieve_seconds,
        read_seconds=examined.read_seconds,
        cited=cited,
        holding=_excerpt(holding, rank, _where(holding.passage.text, question.answers)) if holding else None,
        hits=tuple(ScoredHit(hit.passage.id, hit.score, held) for hit, held in zip(found, holds, strict=True)),
    )


def _loss(em: bool, question: Question, read: list[Hit], rank: int | None, rule: Rule) -> Loss:
    if not question.answers:
        return "unanswerable"
    if em:
        return "right"
    if any(has_answer(hit.passage.text, question.answers, regex=rule.regex) for hit in read):
        return "not chosen"
    return "not retrieved" if rank is None else "not read"


def question_digest(question: Question) -> str:
    """16 hex digits that change with anything the question is."""
    return _digest(json.dumps(astuple(question)))


def text_digest(text: str) -> str:
    """16 hex digits of a text, white space aside."""
    return _digest(" ".join(text.split()))


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def is_from(document: str, names: Sequence[str]) -> bool:
    """Whether a document is one of those named, by its id or by the end of its path."""
    return any(document == name or document.endswith(f"/{name}") for name in names)


def _where(text: str, answers: Sequence[str]) -> Span | None:
    """About where an answer stands in a long text, so that it is part of what is shown."""
    lowered = text.lower()
    places = [at for answer in answers if answer and (at := lowered.find(answer.lower())) >= 0]
    return Span(min(places), min(places) + 1) if places else None


def _cited(answer: Answer | None, found: list[Hit]) -> Excerpt | None:
    if answer is None or answer.text is None or not answer.sources:
        return None
    source = answer.sources[0]
    rank = first_rank(hit.passage.id == source.hit.passage.id for hit in found)
    return _excerpt(source.hit, rank, source.span, marked=True)


def _excerpt(hit: Hit, rank: int | None, span: Span | None, *, marked: bool = False) -> Excerpt:
    """A part of the passage around ``span``, which is the prediction where it is ``marked``."""
    text, low = hit.passage.text, 0
    if span is not None and len(text) > _EXCERPT:
        low = max(0, min(span.start, (span.start + span.end - _EXCERPT) // 2))
    start, end = (span.start - low, span.end - low) if span is not None and marked else (None, None)
    return Excerpt(hit.passage.title, _named(hit.passage.document), text[low : low + _EXCERPT], rank, start, end)


def _named(document: str) -> str:
    """A document's id; of a file the end of its path, as a report is shown to others."""
    path = PurePath(document)
    return "/".join(path.parts[-2:]) if path.is_absolute() else document
