"""Extractive reader, which answers with the most probable spans of a question's passages.

Probabilities are normalised over the spans of all K passages at once (Clark & Gardner 2018; ORQA, section 4.1), so that
spans of different passages compete. Spans that normalise to the same answer are merged.

Legend: K passages of a question, P wordpieces of a window, W longest answer in wordpieces.
"""

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ragqa.artefacts.paths import get_weights_dir
from ragqa.errors import BadInput
from ragqa.reading import registry
from ragqa.reading.answer_kinds import make_kind_check
from ragqa.reading.base import ALTERNATIVES, NO_PASSAGES, ONLY_ENGLISH, Decoding, RetrieverIdentity, decline
from ragqa.reading.calibration import ABSENCE_FEATURES, SPAN_FEATURES, Calibration, Evidence
from ragqa.reading.prior import make_prior, standardize_scores
from ragqa.reading.span_candidates import ScoredPassages, SpanCandidate, select_candidates, select_promising
from ragqa.reading.windows import Window, count_question_room, make_windows
from ragqa.runtime.scorer import Select, SpanScorer, load_scorer
from ragqa.text import is_latin, normalize_answer
from ragqa.types import Alternative, Answer, Hit, Source, Span

MAX_WINDOWS = 100
"""Number of windows per question; its equal share is the maximum for each passage."""
MIN_PASSAGE_WINDOWS = 4
"""Lower limit of a passage's maximum, for questions with many passages."""
MIN_SOURCE_WEIGHT = 0.01
"""Minimum share of an answer's weight for a source; passages with less seldom support the answer."""
_PENALTY = 4.0
"""Reduction of the score of an answer of the wrong kind, in nats; chosen on held-out questions."""


@dataclass(frozen=True)
class SpanAnswer:
    """Answer merged from spans with the same normalised text, before calibration."""

    text: str
    candidates: list[SpanCandidate]
    """Spans of the answer, best first."""
    evidence: Evidence


class ExtractiveReader:
    """Reader whose answers are spans of passages, with a calibrated confidence."""

    kind = registry.SPAN
    is_closed_book = False

    def __init__(self, scorer: SpanScorer, calibration: Calibration) -> None:
        """Combine a scorer and a calibration.

        Args:
            scorer: model that scores spans.
            calibration: calibration that turns evidence into confidence.
        """
        self._scorer, self._calibration = scorer, calibration
        identity = json.dumps([scorer.fingerprint, calibration.identity], sort_keys=True)
        self.fingerprint = hashlib.sha256(identity.encode()).hexdigest()[:16]
        """Digest of the scorer and the calibration."""
        self.prior = scorer.prior
        """``RAW`` or ``SPREAD``: the form of retrieval scores in the prior."""

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        kind: str | None = None,
        *,
        device: str = "cpu",
        decoding: Decoding | None = None,
        scored_by: RetrieverIdentity | None = None,
    ) -> "ExtractiveReader":
        """Load the reader at ``path`` with the calibration in the same directory.

        Args:
            path: directory of an export or a torch reader; None for the reader of the package.
            kind: kind of reader; not used here.
            device: ``cpu``, ``cuda`` or ``cuda:N`` for torch models.
            decoding: must be None, because a span reader does not generate.
            scored_by: retriever that scores the hits; not used here.

        Raises:
            ArtefactError, DamagedArtefact, Mismatch, MissingExtra: as for ``load_scorer``, or the calibration is
                damaged.
            BadInput: ``decoding`` is not None, or torch does not see ``device``.
        """
        if decoding is not None:
            options = "--beams, --fast, --max-answer and --min-answer"
            raise BadInput(f"{options} are for generative readers, and this is a span reader: leave them out")
        scorer = load_scorer(Path(path) if path else None, device=device)
        return cls(scorer, Calibration.load(scorer.path))

    @property
    def has_early_layer(self) -> bool:
        """True if the model scores relevance early, to leave out windows in its later layers."""
        return self._scorer.early_layer is not None

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features for the calibration of this reader."""
        return ABSENCE_FEATURES if self._scorer.knows_absence else SPAN_FEATURES

    @property
    def threshold(self) -> float:
        """Confidence below which answers are declined by default."""
        return self._calibration.threshold

    def can_read(self, question: str) -> bool:
        """Return True if the model can read the script of the question.

        Readers with the tokenizer of the package can read only questions that are mostly in Latin script.
        """
        if is_latin(question):
            return True
        from ragqa.runtime.tokens import TextTokenizer

        return not self._scorer.tokenizer.tokenizes_like(TextTokenizer(get_weights_dir() / "reader"))

    def read(self, questions: list[str], hits: list[list[Hit]]) -> list[Answer]:
        """Return one answer for each question, in order.

        Args:
            questions: texts of the questions.
            hits: passages of each question, best first.

        Raises:
            BadInput, ArtefactError: as for ``make_windows``.
        """
        rows = zip(questions, self.score(questions, hits), strict=True)
        return [self._make_answer(question, scored) for question, scored in rows]

    def find_answers(self, questions: list[str], hits: list[list[Hit]]) -> list[list[SpanAnswer]]:
        """Return the possible answers to each question with their evidence, most probable first.

        Arguments and errors are as for ``read``.
        """
        return [self.merge_spans(scored, self._calibration.prior) for scored in self.score(questions, hits)]

    def score(self, questions: list[str], hits: list[list[Hit]], *, reads_all: bool = False) -> list[ScoredPassages]:
        """Score all spans of each question's hits, which takes nearly all the time of reading.

        Args:
            questions: texts of the questions.
            hits: passages of each question, best first.
            reads_all: True to read all windows to the end; False to read to the end only the windows that the early
                layer and the calibration select.

        Raises:
            BadInput, ArtefactError: as for ``make_windows``.
        """
        windows = []
        for question, question_hits in zip(questions, hits, strict=True):
            texts = [(hit.passage.context, hit.passage.text) for hit in question_hits]
            count = max(MIN_PASSAGE_WINDOWS, MAX_WINDOWS // max(1, len(texts)))
            limit = self._scorer.max_tokens
            windows.append(list(make_windows(self._scorer.tokenizer, question, texts, limit, max_windows=count)))
        # One call for the windows of all questions keeps all cores busy.
        select = [] if reads_all else self._make_selection([len(part) for part in windows])
        scores = iter(self._scorer.score([window.tokens for part in windows for window in part], *select))
        scored = []
        for question, question_hits, part in zip(questions, hits, windows, strict=True):
            read = [(window, score) for window in part if (score := next(scores)) is not None]
            parts = [window for window, _ in read], [score for _, score in read]
            # A cut passage gets its note even if the early layer leaves out its last window.
            cut_windows = [window for window in part if window.is_cut]
            scored.append(ScoredPassages(question, question_hits, *parts, cut_windows))
        return scored

    def _make_selection(self, counts: list[int]) -> list[Select]:
        """Return a list of one function that selects the windows to read to the end; empty for all.

        ``counts`` has the number of windows of each question.
        """
        margin = self._calibration.early_margin
        if margin is None:
            return []
        borders = np.cumsum(counts)[:-1]

        def select(early_N: np.ndarray) -> np.ndarray:
            return np.concatenate([select_promising(part, margin) for part in np.split(early_N, borders)])

        return [select]

    def merge_spans(self, scored: ScoredPassages, prior_weight: float) -> list[SpanAnswer]:
        """Merge the scored spans of a question into its possible answers, most probable first.

        Args:
            scored: hits and span scores of the question.
            prior_weight: weight of standardized retrieval scores in the prior; not used if ``prior`` is ``RAW``.
        """
        return _merge_spans(scored, make_prior(self.prior, prior_weight)(scored.hits)) if scored.windows else []

    def _make_note(self, question: str, cut_windows: list[Window]) -> str | None:
        room = count_question_room(self._scorer.max_tokens)
        notes = []
        # A wordpiece has at least one character, so a short question need not be tokenized.
        if len(question) > room and (count := len(self._scorer.tokenizer.tokenize(question).ids)) > room:
            notes.append(f"the question has {count:,} wordpieces; its first {room} were read")
        if cut_windows:
            read = min(int(window.offsets[-1, 1]) for window in cut_windows)
            number = "one passage is" if len(cut_windows) == 1 else f"{len(cut_windows)} passages are"
            notes.append(f"{number} too long to be read to the end; the first {read:,} characters were read")
        return "; ".join(notes) or None

    def _make_answer(self, question: str, scored: ScoredPassages) -> Answer:
        hits, candidates = scored.hits, self.merge_spans(scored, self._calibration.prior)
        note = self._make_note(question, scored.cut_windows)
        is_readable = self.can_read(question)
        if not candidates or not is_readable:
            reason = "the passages have no words to mark" if hits else NO_PASSAGES
            return decline(question, hits, reason if is_readable else ONLY_ENGLISH, note)
        distinct = _select_distinct(candidates, 1 + ALTERNATIVES)
        best, *others = [self._make_alternative(hits, answer) for answer in distinct]
        others.sort(key=lambda alternative: -alternative.confidence)
        score = distinct[0].candidates[0].score
        return Answer(question, best.text, score, best.confidence, best.sources, tuple(others), note=note)

    def _make_alternative(self, hits: list[Hit], answer: SpanAnswer) -> Alternative:
        sources = _make_sources(hits, answer)
        first = sources[0]  # other sources may spell the answer with another case or article
        assert first.span is not None
        text = first.hit.passage.text[first.span.start : first.span.end]
        return Alternative(text, self._calibration.compute_confidence(answer.evidence), sources)


def _select_distinct(answers: list[SpanAnswer], count: int) -> list[SpanAnswer]:
    """Return the first ``count`` answers whose best spans do not overlap."""
    selected: list[SpanAnswer] = []
    for answer in answers:
        if not any(answer.candidates[0].overlaps(other.candidates[0]) for other in selected):
            selected.append(answer)
        if len(selected) == count:
            break
    return selected


def _merge_spans(scored: ScoredPassages, prior_K: np.ndarray) -> list[SpanAnswer]:
    selected = select_candidates(scored, prior_K)
    candidates = _penalise_other_kinds(scored, selected.spans)
    groups: dict[str, list[SpanCandidate]] = {}
    best_answer_of: dict[int, str] = {}  # by passage
    for candidate in candidates:
        if key := normalize_answer(scored.get_text(candidate)):
            groups.setdefault(key, []).append(candidate)
            best_answer_of.setdefault(candidate.passage, key)
    weights = {
        key: min(1.0, float(np.exp([c.score - selected.log_total for c in group]).sum()))
        for key, group in groups.items()
    }
    order = sorted(groups, key=lambda key: -weights[key])
    agreeing, spread_K = Counter(best_answer_of.values()), standardize_scores(scored.hits)
    ahead = -float(spread_K.mean())
    answers = []
    for key in order:
        best = groups[key][0]
        rivals = (weights[other] for other in order if not groups[other][0].overlaps(best))
        evidence = Evidence(
            weight=weights[key],
            span=best.score - best.relevance,
            relevance=best.relevance,
            own_relevance=best.relevance - best.prior,
            passages_read=len(scored.hits),
            lead=_log(weights[key]) - _log(next(rivals, 0.0)),
            behind_best=float(spread_K[best.passage]),
            best_ahead=ahead,
            passages_agreeing=agreeing[key],
            most_answerable=selected.most_answerable,
            most_relevant=selected.most_relevant,
        )
        answers.append(SpanAnswer(scored.get_text(best), groups[key], evidence))
    return answers


def _penalise_other_kinds(scored: ScoredPassages, candidates: list[SpanCandidate]) -> list[SpanCandidate]:
    has_right_kind = make_kind_check(scored.question)
    return [
        candidate
        if has_right_kind(scored.get_text(candidate))
        else replace(candidate, score=candidate.score - _PENALTY)
        for candidate in candidates
    ]


def _log(weight: float) -> float:
    return float(np.log(max(weight, 1e-6)))


def _make_sources(hits: list[Hit], answer: SpanAnswer) -> tuple[Source, ...]:
    """Return the passages that support an answer, by falling weight; the weights sum to 1."""
    by_passage: dict[int, list[SpanCandidate]] = {}
    for candidate in answer.candidates:
        by_passage.setdefault(candidate.passage, []).append(candidate)
    top = answer.candidates[0].score
    weights = {p: float(np.exp([c.score - top for c in group]).sum()) for p, group in by_passage.items()}
    least = MIN_SOURCE_WEIGHT * sum(weights.values())
    weights = {p: weight for p, weight in weights.items() if weight >= least}
    total = sum(weights.values())
    order = sorted(weights, key=lambda p: -weights[p])
    return tuple(Source(hits[p], Span(by_passage[p][0].start, by_passage[p][0].end), weights[p] / total) for p in order)
