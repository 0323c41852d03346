"""The extractive reader: the most probable spans of all passages of a question together.

Spans are normalised over all K passages at once (Clark & Gardner 2018; ORQA section 4.1), so
that a confident passage beats a vague one; spans that say the same are merged.

Legend: P wordpieces of a window, W longest answer in wordpieces.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ragqa.reading.base import NOTHING_FOUND
from ragqa.reading.confidence import Calibration, Evidence
from ragqa.reading.prior import prior_of
from ragqa.reading.windows import Window, windows
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
        self.fingerprint = scorer.fingerprint

    @classmethod
    def load(cls, path: Path | None = None, *, device: str = "cpu") -> "ExtractiveReader":
        """The reader at ``path`` (see ``load_scorer``) with the calibration that lies beside it."""
        scorer = load_scorer(path, device=device)
        return cls(scorer, Calibration.load(scorer.path))

    def read(self, questions: list[str], hits: list[list[Hit]]) -> list[Answer]:
        """One answer a question, in order."""
        found = self.find(questions, hits)
        return [self._answer(*each) for each in zip(questions, hits, found, strict=True)]

    def find(self, questions: list[str], hits: list[list[Hit]]) -> list[list[Found]]:
        """The answers found for each question, most probable first, and what speaks for them.

        All windows of all questions are scored in one go.
        """
        parts = [
            list(windows(self._scorer.tokenizer, question, _texts(found), self._max_tokens))
            for question, found in zip(questions, hits, strict=True)
        ]
        scores = iter(self._scorer.score([window.tokens for part in parts for window in part]))
        prior = prior_of(self._scorer.prior)
        each = zip(hits, parts, strict=True)
        return [
            _merge(found, part, _with_prior(prior, found, part, [next(scores) for _ in part])) for found, part in each
        ]

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


def _apart(found: list[Found], count: int) -> list[Found]:
    """The first ``count`` answers whose best spans do not overlap: longer and shorter forms say nothing new."""
    kept: list[Found] = []
    for each in found:
        span = each.candidates[0]
        if not any(
            span.passage == o.candidates[0].passage
            and span.start < o.candidates[0].end
            and o.candidates[0].start < span.end
            for o in kept
        ):
            kept.append(each)
        if len(kept) == count:
            break
    return kept


def _texts(hits: list[Hit]) -> list[tuple[str, str]]:
    return [(hit.passage.title, hit.passage.text) for hit in hits]


def _with_prior(
    prior: Callable[[list[Hit]], np.ndarray], hits: list[Hit], part: list[Window], scores: list[Scores]
) -> list[Scores]:
    """Scores whose relevance counts what retrieval thought of the passage (ORQA, section 4.1)."""
    if not part:
        return scores
    prior_K = prior(hits)
    return [score.plus(float(prior_K[window.passage])) for window, score in zip(part, scores, strict=True)]


def _candidates(part: list[Window], scores: list[Scores]) -> tuple[list[_Candidate], float]:
    """The best spans over all windows, best first, and log of the sum over all spans of exp(score)."""
    tables = [_span_scores(w, s) for w, s in zip(part, scores, strict=True)]
    if not tables:
        return [], float("-inf")
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
        window = part[n]
        start, end = int(window.offsets[first, 0]), int(window.offsets[first + length, 1])
        found.append(_Candidate(window.passage, start, end, float(flat[row]), scores[n].relevance))
    return found, log_total


def _span_scores(window: Window, scores: Scores) -> np.ndarray:
    """``[P, W]``: the score of the span of w + 1 wordpieces from p; -inf where none is."""
    part = slice(window.offset, window.offset + len(window.offsets))
    table_PW = scores.table(part, MAX_ANSWER)
    return np.where(window.possible(table_PW.shape[1]), table_PW, -np.inf)


def _merge(hits: list[Hit], part: list[Window], scores: list[Scores]) -> list[Found]:
    """Spans that normalise to the same answer, as one; most probable first."""
    candidates, log_total = _candidates(part, scores)
    groups: dict[str, list[_Candidate]] = {}
    for candidate in candidates:
        text = hits[candidate.passage].passage.text[candidate.start : candidate.end]
        if key := normalize_answer(text):
            groups.setdefault(key, []).append(candidate)
    found = []
    for group in groups.values():
        best = group[0]
        evidence = Evidence(
            weight=min(1.0, float(np.exp([c.score - log_total for c in group]).sum())),
            span=best.score - best.relevance,
            relevance=best.relevance,
        )
        text = hits[best.passage].passage.text[best.start : best.end]
        found.append(Found(text, group, evidence))
    return sorted(found, key=lambda f: -f.evidence.weight)


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
