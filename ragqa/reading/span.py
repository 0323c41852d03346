"""The extractive reader: the most probable spans of all passages of a question together.

Spans are normalised over all K passages at once (Clark & Gardner 2018; ORQA section 4.1), so
that a confident passage beats a vague one; spans that say the same are merged.

Legend: P wordpieces of a window, W longest answer in wordpieces.
"""

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ragqa.reading.base import NOTHING_FOUND
from ragqa.reading.calibration import Calibration, Evidence
from ragqa.reading.prior import prior_of, spread
from ragqa.reading.windows import Window, question_room, windows
from ragqa.runtime.scorer import Scores, SpanScorer, load_scorer
from ragqa.text import normalize_answer
from ragqa.types import Alternative, Answer, Hit, Source, Span

MAX_ANSWER = 30
"""Longest answer in wordpieces (BERT's SQuAD setting); a reader may be made for shorter ones."""
_KEPT = 100
"""Spans of a question that are looked at for merging; the rest bears no visible weight."""


@dataclass(frozen=True)
class _Candidate:
    passage: int
    start: int
    end: int
    score: float
    relevance: float
    """The part of the score that its window has as a whole."""
    prior: float
    """The part of that which is retrieval's (ORQA, section 4.1)."""


@dataclass(frozen=True)
class Scored:
    """The hits of a question, read, before it is said what retrieval's scores count."""

    hits: list[Hit]
    windows: list[Window]
    scores: list[Scores]

    def first(self, count: int) -> "Scored":
        """As if only so many of the hits had been read."""
        kept = sum(window.passage < count for window in self.windows)
        return Scored(self.hits[:count], self.windows[:kept], self.scores[:kept])


@dataclass(frozen=True)
class Found:
    """An answer that was found, merged from its spans, before anybody says how sure it is."""

    text: str
    candidates: list[_Candidate]
    """Its spans, best first."""
    evidence: Evidence


class ExtractiveReader:
    """Reads spans out of passages; the confidence is that of its calibration."""

    closed = False

    def __init__(
        self,
        scorer: SpanScorer,
        calibration: Calibration,
        *,
        max_tokens: int | None = None,
        alternatives: int = 4,
    ) -> None:
        self._scorer, self._calibration = scorer, calibration
        self._max_tokens = min(max_tokens or scorer.max_tokens, scorer.max_tokens)
        self._alternatives = alternatives
        self.fingerprint = _digest(scorer.fingerprint, calibration.identity)
        """Of the scorer and of the calibration, which decides about answers, too."""
        self.prior = scorer.prior
        """``RAW`` or ``SPREAD``: what of retrieval's scores it counts."""

    @classmethod
    def load(cls, path: Path | None = None, *, device: str = "cpu") -> "ExtractiveReader":
        """The reader at ``path`` (see ``load_scorer``) with the calibration that lies beside it."""
        scorer = load_scorer(path, device=device)
        return cls(scorer, Calibration.load(scorer.path))

    @property
    def threshold(self) -> float:
        """Of its calibration."""
        return self._calibration.threshold

    def read(self, questions: list[str], hits: list[list[Hit]]) -> list[Answer]:
        """One answer a question, in order."""
        found = self.find(questions, hits)
        answers = [self._answer(*each) for each in zip(questions, hits, found, strict=True)]
        return [replace(answer, note=self._note(answer.question)) for answer in answers]

    def find(self, questions: list[str], hits: list[list[Hit]]) -> list[list[Found]]:
        """The answers found for each question, most probable first, and what speaks for them.

        All windows of all questions are scored in one go.
        """
        return [self.found(each, self._calibration.prior) for each in self.score(questions, hits)]

    def score(self, questions: list[str], hits: list[list[Hit]]) -> list[Scored]:
        """The scores of all spans of the hits of each question: what takes time."""
        parts = [
            list(windows(self._scorer.tokenizer, question, _texts(found), self._max_tokens))
            for question, found in zip(questions, hits, strict=True)
        ]
        scores = iter(self._scorer.score([window.tokens for part in parts for window in part]))
        return [Scored(found, part, [next(scores) for _ in part]) for found, part in zip(hits, parts, strict=True)]

    def found(self, read: Scored, weight: float) -> list[Found]:
        """The answers, most probable first, where retrieval counts ``weight`` (see ``prior_of``)."""
        return _merge(read, prior_of(self.prior, weight)(read.hits)) if read.windows else []

    def _note(self, question: str) -> str | None:
        room = question_room(self._max_tokens)
        if len(question) <= room:  # a wordpiece is of a character at least
            return None
        count = len(self._scorer.tokenizer.pieces(question).ids)
        return f"the question has {count:,} wordpieces; its first {room} were read" if count > room else None

    def _answer(self, question: str, hits: list[Hit], found: list[Found]) -> Answer:
        if not found:
            nearest = tuple(Source(hit, None, 0.0) for hit in hits)
            reason = "the passages have no words to mark" if hits else NOTHING_FOUND
            return Answer(question, None, float("-inf"), 0.0, nearest, reason=reason)
        best, *others = _apart(found, 1 + self._alternatives)
        sources, *theirs = (_sources(hits, each) for each in (best, *others))
        alternatives = tuple(
            Alternative(_cited(own), self._calibration.confidence(other.evidence), own)
            for other, own in zip(others, theirs, strict=True)
        )
        alternatives = tuple(sorted(alternatives, key=lambda a: -a.confidence))
        score = best.candidates[0].score
        confidence = self._calibration.confidence(best.evidence)
        return Answer(question, _cited(sources), score, confidence, sources, alternatives)


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _apart(found: list[Found], count: int) -> list[Found]:
    """The first ``count`` answers whose best spans do not overlap."""
    kept: list[Found] = []
    for each in found:
        if not any(_overlap(each.candidates[0], other.candidates[0]) for other in kept):
            kept.append(each)
        if len(kept) == count:
            break
    return kept


def _texts(hits: list[Hit]) -> list[tuple[str, str]]:
    return [(hit.passage.title, hit.passage.text) for hit in hits]


def _candidates(read: Scored, prior_K: np.ndarray) -> tuple[list[_Candidate], float]:
    """The best spans over all windows, best first, and log of the sum over all spans of exp(score)."""
    priors = [float(prior_K[window.passage]) for window in read.windows]
    scores = [score.plus(prior) for score, prior in zip(read.scores, priors, strict=True)]
    tables = [_span_scores(w, s) for w, s in zip(read.windows, scores, strict=True)]
    flat = np.concatenate([table.ravel() for table in tables])
    top = float(flat.max())
    if not np.isfinite(top):
        return [], float("-inf")
    log_total = top + float(np.log(np.exp(flat - top).sum()))
    kept = min(_KEPT, len(flat))
    rows = np.argpartition(-flat, kept - 1)[:kept]
    rows = rows[np.lexsort((rows, -flat[rows]))]
    sizes = np.cumsum([0, *(table.size for table in tables)])
    found = []
    for row in rows[np.isfinite(flat[rows])]:
        n = int(np.searchsorted(sizes, row, side="right")) - 1
        first, length = divmod(int(row - sizes[n]), tables[n].shape[1])
        window = read.windows[n]
        start, end = int(window.offsets[first, 0]), int(window.offsets[first + length, 1])
        found.append(_Candidate(window.passage, start, end, float(flat[row]), scores[n].relevance, priors[n]))
    return found, log_total


def _span_scores(window: Window, scores: Scores) -> np.ndarray:
    """``[P, W]``: the score of the span of w + 1 wordpieces from p; -inf where none is."""
    part = slice(window.offset, window.offset + len(window.offsets))
    table_PW = scores.table(part, MAX_ANSWER)
    return np.where(window.possible(table_PW.shape[1]), table_PW, -np.inf)


def _merge(read: Scored, prior_K: np.ndarray) -> list[Found]:
    """Spans that normalise to the same answer, as one; most probable first."""
    candidates, log_total = _candidates(read, prior_K)
    groups: dict[str, list[_Candidate]] = {}
    said_K: dict[int, str] = {}
    for candidate in candidates:
        if key := normalize_answer(_text(read, candidate)):
            groups.setdefault(key, []).append(candidate)
            said_K.setdefault(candidate.passage, key)
    weights = {
        key: min(1.0, float(np.exp([c.score - log_total for c in group]).sum())) for key, group in groups.items()
    }
    order = sorted(groups, key=lambda key: -weights[key])
    agree, spread_K = Counter(said_K.values()), spread(read.hits)
    ahead = -float(spread_K.mean())
    found = []
    for key in order:
        best = groups[key][0]
        others = (weights[each] for each in order if not _overlap(groups[each][0], best))
        evidence = Evidence(
            weight=weights[key],
            span=best.score - best.relevance,
            relevance=best.relevance,
            own=best.relevance - best.prior,
            read=len(read.hits),
            lead=_log(weights[key]) - _log(next(others, 0.0)),
            behind=float(spread_K[best.passage]),
            ahead=ahead,
            agree=agree[key],
        )
        found.append(Found(_text(read, best), groups[key], evidence))
    return found


def _text(read: Scored, candidate: _Candidate) -> str:
    return read.hits[candidate.passage].passage.text[candidate.start : candidate.end]


def _overlap(one: _Candidate, other: _Candidate) -> bool:
    """Whether they share characters: longer and shorter forms say nothing new."""
    return one.passage == other.passage and one.start < other.end and other.start < one.end


def _log(weight: float) -> float:
    return float(np.log(max(weight, 1e-6)))


def _sources(hits: list[Hit], found: Found) -> tuple[Source, ...]:
    """One source a passage that holds the answer, most weighty first, weights summing to 1."""
    by_passage: dict[int, list[_Candidate]] = {}
    for candidate in found.candidates:
        by_passage.setdefault(candidate.passage, []).append(candidate)
    top = found.candidates[0].score
    weights = {p: float(np.exp([c.score - top for c in group]).sum()) for p, group in by_passage.items()}
    total = sum(weights.values())
    order = sorted(weights, key=lambda p: -weights[p])
    return tuple(Source(hits[p], Span(by_passage[p][0].start, by_passage[p][0].end), weights[p] / total) for p in order)


def _cited(sources: tuple[Source, ...]) -> str:
    """An answer as its first source has it; the others may have another case or article."""
    first = sources[0]
    assert first.span is not None
    return first.hit.passage.text[first.span.start : first.span.end]
