"""Candidates of an extractive reader: the best spans of all windows of a question.

Legend: K passages of a question, N windows, P wordpieces of a window, W longest answer in wordpieces.
"""

from dataclasses import dataclass, replace

import numpy as np

from ragqa.reading.windows import Window
from ragqa.runtime.scorer import Scores
from ragqa.types import Hit

MAX_ANSWER = 30
"""Maximum length of an answer in wordpieces, as for BERT on SQuAD; readers can have a smaller limit."""
MIN_READ_ON = 3
"""Minimum number of windows of a question that are read beyond the early layer."""
_MAX_LOG_ODDS = 20.0
"""Maximum absolute value of ``Candidates.most_answerable``; larger values would dominate the confidence."""
_CANDIDATES = 100
"""Maximum number of spans per question that are merged into answers; the others have negligible weight."""


@dataclass(frozen=True)
class SpanCandidate:
    """Possible answer: characters ``start`` to ``end`` (exclusive) of a passage's text."""

    passage: int
    """Position of the passage among the hits of its question."""
    start: int
    end: int
    score: float
    """Score of the span in nats, including the relevance."""
    relevance: float
    """Part of the score that all spans of the window share, including the prior."""
    prior: float
    """Part of the relevance that comes from retrieval (ORQA, section 4.1)."""

    def overlaps(self, other: "SpanCandidate") -> bool:
        """Return True if both spans share characters, as a long and a short form of an answer do."""
        return self.passage == other.passage and self.start < other.end and other.start < self.end


@dataclass(frozen=True)
class ScoredPassages:
    """Hits of a question with the scores of their spans, before the retrieval prior is added."""

    question: str
    hits: list[Hit]
    windows: list[Window]
    """Windows that were read to the end, in the order of the hits."""
    scores: list[Scores]
    """Scores of each window."""
    cut_windows: list[Window]
    """Last windows of the passages that are too long to be read to the end, also those without scores."""

    def take(self, count: int) -> "ScoredPassages":
        """Return the scored passages of the first ``count`` hits."""
        windows = sum(window.passage < count for window in self.windows)
        cut_windows = [window for window in self.cut_windows if window.passage < count]
        return ScoredPassages(
            self.question, self.hits[:count], self.windows[:windows], self.scores[:windows], cut_windows
        )

    def read_on(self, margin: float) -> "ScoredPassages":
        """Return a copy with the windows that ``select_promising`` selects by ``margin`` (nats)."""
        mask = select_promising(np.array([score.early for score in self.scores]), margin)
        rows = np.flatnonzero(mask).tolist()
        return replace(self, windows=[self.windows[row] for row in rows], scores=[self.scores[row] for row in rows])

    def get_text(self, candidate: SpanCandidate) -> str:
        """Return the text of a candidate span."""
        return self.hits[candidate.passage].passage.text[candidate.start : candidate.end]


def select_promising(early_N: np.ndarray, margin: float) -> np.ndarray:
    """Return a mask [N] of a question's windows to read beyond the early layer.

    These are the best ``MIN_READ_ON`` windows, and all windows within ``margin`` of the best.

    Args:
        early_N: relevance of each window after the early layer.
        margin: maximum distance below the best relevance, in nats.
    """
    if not len(early_N):
        return np.zeros(0, dtype=bool)
    cut = min(early_N.max() - margin, np.sort(early_N)[-MIN_READ_ON:][0])
    mask: np.ndarray = early_N >= cut
    return mask


@dataclass(frozen=True)
class Candidates:
    """Best spans of a question's windows, best first, with sums and maxima over all spans."""

    spans: list[SpanCandidate]
    log_total: float
    """Log of the sum of exp(score) over all spans."""
    most_answerable: float
    """Log-odds of all spans of a window together against "no answer", maximum over all windows."""
    most_relevant: float
    """Maximum of the relevance over all windows, without the prior."""


def select_candidates(scored: ScoredPassages, prior_K: np.ndarray) -> Candidates:
    """Return the best spans of a question, at most 100.

    Args:
        scored: the question's passages with their scores; at least one window.
        prior_K: log-prior of each passage.
    """
    priors = [float(prior_K[window.passage]) for window in scored.windows]
    scores = [replace(s, relevance=s.relevance + prior) for s, prior in zip(scored.scores, priors, strict=True)]
    tables = [_score_spans(window, score) for window, score in zip(scored.windows, scores, strict=True)]
    flat = np.concatenate([table.ravel() for table in tables])
    log_sums = np.array([_log_sum(table) for table in tables])
    answerable = [
        _clip(log_sum - score.relevance - score.absence) for log_sum, score in zip(log_sums, scores, strict=True)
    ]
    most_relevant = max(score.relevance for score in scored.scores)
    count = min(_CANDIDATES, len(flat))
    rows = np.argpartition(-flat, count - 1)[:count]
    rows = rows[np.lexsort((rows, -flat[rows]))]  # spans of equal score in the order of the text, on every machine
    borders = np.cumsum([0, *(table.size for table in tables)])
    candidates = []
    for row in rows[np.isfinite(flat[rows])]:
        n = int(np.searchsorted(borders, row, side="right")) - 1
        first, length = divmod(int(row - borders[n]), tables[n].shape[1])
        window = scored.windows[n]
        start, end = int(window.offsets[first, 0]), int(window.offsets[first + length, 1])
        figures = float(flat[row]), scores[n].relevance, priors[n]
        candidates.append(SpanCandidate(window.passage, start, end, *figures))
    return Candidates(candidates, _log_sum(log_sums), max(answerable), most_relevant)


def _log_sum(scores: np.ndarray) -> float:
    top = float(scores.max(initial=-np.inf))
    return top + float(np.log(np.exp(scores - top).sum())) if np.isfinite(top) else float("-inf")


def _clip(log_odds: float) -> float:
    return min(max(log_odds, -_MAX_LOG_ODDS), _MAX_LOG_ODDS)


def _score_spans(window: Window, scores: Scores) -> np.ndarray:
    """Return scores [P, W] of the spans of w + 1 wordpieces from p; -inf for impossible spans."""
    part = slice(window.offset, window.offset + len(window.offsets))
    table_PW = scores.make_table(part, MAX_ANSWER)
    return np.where(window.find_possible_spans(table_PW.shape[1]), table_PW, -np.inf)
