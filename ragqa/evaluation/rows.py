"""Rows of an evaluation (``rows.jsonl``): questions with their predictions and scores."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from hashlib import blake2b
from pathlib import PurePath
from typing import Any, Literal

from ragqa.matching.patterns import name_slow_question
from ragqa.metrics import exact_match, f1, first_rank, has_answer
from ragqa.types import Answer, Hit, Question, Span

Loss = Literal["right", "not retrieved", "not read", "not chosen", "unanswerable"]
"""Outcome of a question: ``right``, the stage that lost the answer, or ``unanswerable`` (no gold answers).

If no passage of the corpus contains an answer, the figures count ``not retrieved`` as ``not in the corpus``.
"""
_EXCERPT = 4000
"""Maximum length in characters of a passage in the report."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Scoring rule for predictions and passages: options of the functions of ``ragqa.metrics``."""

    regex: bool = False
    """True if gold answers are patterns (CuratedTREC)."""
    unicode: Literal["NFD"] | None = "NFD"
    """Normal form for exact match: NFD (ORQA, NQ-open) or None (SQuAD, DPR)."""

    @property
    def name(self) -> str:
        """Name of the rule: ``nq``, ``squad`` or ``regex``."""
        return "regex" if self.regex else "nq" if self.unicode else "squad"

    @classmethod
    def from_name(cls, name: str) -> "Rule":
        """Return the rule with a name: ``nq``, ``squad`` or ``regex``.

        Raises:
            KeyError: there is no such rule.
        """
        return {"nq": cls(), "squad": cls(unicode=None), "regex": cls(regex=True)}[name]


@dataclass(frozen=True)
class SystemResult:
    """Answer and hits of a system for a question."""

    answer: Answer | None
    """Answer, with confidence NaN if the system gives no confidence; None if only retrieval is scored."""
    read_hits: list[Hit]
    """Hits that were read."""
    hits: list[Hit]
    """Hits to score."""
    retrieve_seconds: float | None = None
    """Seconds of retrieval; None if not measured."""
    read_seconds: float | None = None
    """Seconds of reading; None if not measured."""


@dataclass(frozen=True)
class ScoredHit:
    """Hit with its score; ``has_answer`` is True if its passage contains a gold answer."""

    passage: int
    """Row of the passage in the passage store; without a store, position in the question's passages, from 0."""
    score: float
    has_answer: bool


@dataclass(frozen=True)
class Excerpt:
    """Part of a passage, as a report shows it.

    The predicted answer is the characters ``start`` to ``end`` (exclusive) of the text. Both are None if the place of
    the answer is unknown.
    """

    title: str
    document: str
    text: str
    rank: int | None = None
    """Rank among the hits, from 1; None if the passage is not a hit."""
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """Question with its hits, its prediction and their scores."""

    number: int
    """Position in the question set, from 0; a question that occurs twice has two rows."""
    digest: str
    """Digest of all fields of the question; a resumed run discards a row with another digest."""
    id: str
    question: str
    answers: tuple[str, ...]
    documents: tuple[str, ...]
    """Gold documents, as the question names them."""
    passages: tuple[str, ...]
    """Digests of the texts of the gold passages."""
    prediction: str | None
    """Text of the answer; None without an answer."""
    em: bool
    """True if the prediction is an exact match of a gold answer."""
    f1: float | None
    """Token F1; None for patterns, which have no tokens, and if only retrieval is scored."""
    confidence: float | None
    """Confidence of the answer, from 0 to 1; None if the system gives no confidence."""
    loss: Loss | None
    """Outcome of the question; None if only retrieval is scored."""
    read: int
    """Number of hits that were read."""
    rank: int | None
    """Rank, from 1, of the first hit that contains a gold answer; None if there is none."""
    passage_rank: int | None
    """Rank, from 1, of the first hit that is a gold passage; None if there is none."""
    document_rank: int | None
    """Rank, from 1, of the first hit from a gold document; None if there is none."""
    retrieve_seconds: float | None
    read_seconds: float | None
    cited: Excerpt | None
    """Passage cited for the prediction; None if no passage is cited."""
    holding: Excerpt | None
    """First hit that contains a gold answer; None if no hit does, or if it is the cited passage."""
    hits: tuple[ScoredHit, ...]

    @property
    def as_question(self) -> Question:
        """Question of the row, with its gold answers and id."""
        return Question(self.question, self.answers, self.id)

    def to_json(self) -> str:
        """Return the row as one line of JSON, with scores of hits rounded to four decimals."""
        row = {**asdict(self), "hits": [[h.passage, round(h.score, 4), int(h.has_answer)] for h in self.hits]}
        return json.dumps(row, ensure_ascii=False).encode("utf-8", "replace").decode("utf-8")

    @classmethod
    def from_json(cls, line: str) -> "Row":
        """Restore a row from the result of ``to_json``.

        Raises:
            ValueError, KeyError, TypeError: the line is not a row.
        """
        row: dict[str, Any] = json.loads(line)
        for name in ("answers", "documents", "passages"):
            row[name] = tuple(row[name])
        for name in ("cited", "holding"):
            row[name] = row[name] and Excerpt(**row[name])
        row["hits"] = tuple(ScoredHit(passage, score, bool(holds)) for passage, score, holds in row["hits"])
        return cls(**row)


def score_result(number: int, question: Question, result: SystemResult, rule: Rule) -> Row:
    """Score a system's result for a question, and return the row.

    Args:
        number: position of the question in the question set, from 0.
        question: the question with its gold answers.
        result: answer and hits.
        rule: scoring rule.

    Raises:
        SlowPattern: a gold answer is a pattern whose search takes too long; the error names the question.
    """
    answer, hits = result.answer, result.hits
    prediction = answer.text if answer else None
    with name_slow_question([question]):
        has_answers = [has_answer(hit.passage.text, question.answers, regex=rule.regex) for hit in hits]
        em = exact_match(prediction, question.answers, regex=rule.regex, unicode=rule.unicode)
        loss = _find_loss(em, question, result.read_hits, first_rank(has_answers), rule) if answer else None
    rank = first_rank(has_answers)
    cited = _cut_cited(answer, hits)
    holding = hits[rank - 1] if rank and (cited is None or cited.rank != rank) else None
    passages = tuple(digest_text(text) for text in question.passages)
    return Row(
        number=number,
        digest=digest_question(question),
        id=question.id,
        question=question.text,
        answers=question.answers,
        documents=question.documents,
        passages=passages,
        prediction=prediction,
        em=em,
        f1=None if rule.regex or answer is None else f1(prediction, question.answers),
        confidence=None if answer is None or math.isnan(answer.confidence) else answer.confidence,
        loss=loss,
        read=len(result.read_hits),
        rank=rank,
        passage_rank=first_rank(digest_text(hit.passage.text) in passages for hit in hits) if passages else None,
        document_rank=first_rank(has_name(hit.passage.document, question.documents) for hit in hits),
        retrieve_seconds=result.retrieve_seconds,
        read_seconds=result.read_seconds,
        cited=cited,
        holding=_cut_excerpt(holding, rank, _locate_in(holding.passage.text, question.answers)) if holding else None,
        hits=tuple(ScoredHit(hit.passage.id, hit.score, holds) for hit, holds in zip(hits, has_answers, strict=True)),
    )


def _find_loss(em: bool, question: Question, read: list[Hit], rank: int | None, rule: Rule) -> Loss:
    if not question.answers:
        return "unanswerable"
    if em:
        return "right"
    if any(has_answer(hit.passage.text, question.answers, regex=rule.regex) for hit in read):
        return "not chosen"
    return "not retrieved" if rank is None else "not read"


def digest_question(question: Question) -> str:
    """Return a digest of all fields of the question, as 16 hex digits."""
    return _digest(json.dumps(astuple(question)))


def digest_text(text: str) -> str:
    """Return a digest of a text, as 16 hex digits; runs of white space count as one space."""
    return _digest(" ".join(text.split()))


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def has_name(document: str, names: Sequence[str]) -> bool:
    """Return True if one of the names is the document's id, or the end of the id after a slash."""
    return any(document == name or document.endswith(f"/{name}") for name in names)


def _locate_in(text: str, answers: Sequence[str]) -> Span | None:
    """Return the first character of the earliest gold answer as a span, ignoring case; or None."""
    lowered = text.lower()
    starts = [start for answer in answers if answer and (start := lowered.find(answer.lower())) >= 0]
    return Span(min(starts), min(starts) + 1) if starts else None


def _cut_cited(answer: Answer | None, hits: list[Hit]) -> Excerpt | None:
    if answer is None or answer.text is None or not answer.sources:
        return None
    source = answer.sources[0]
    rank = first_rank(hit.passage.id == source.hit.passage.id for hit in hits)
    return _cut_excerpt(source.hit, rank, source.span, is_predicted=True)


def _cut_excerpt(hit: Hit, rank: int | None, span: Span | None, *, is_predicted: bool = False) -> Excerpt:
    """Cut a passage to an excerpt around ``span``, and record the span if it is the prediction."""
    text, low = hit.passage.text, 0
    if span is not None and len(text) > _EXCERPT:
        low = max(0, min(span.start, (span.start + span.end - _EXCERPT) // 2))
    start, end = (span.start - low, span.end - low) if span is not None and is_predicted else (None, None)
    return Excerpt(hit.passage.title, _shorten_path(hit.passage.document), text[low : low + _EXCERPT], rank, start, end)


def _shorten_path(document: str) -> str:
    """Shorten an absolute path to its last two parts, since the others can be private."""
    path = PurePath(document)
    return "/".join(path.parts[-2:]) if path.is_absolute() else document
