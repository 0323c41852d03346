"""Choose the confidence threshold of an index from the answers to questions.

Questions are asked over the whole index, and again without the documents that answer them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.evaluation.rows import has_name
from ragqa.index_threshold import THRESHOLD_FILE, IndexThreshold
from ragqa.indexing.update_folder import open_update_folder, replace_index_file
from ragqa.metrics import exact_match, has_answer
from ragqa.pipeline import Pipeline
from ragqa.progress import SILENT, Progress
from ragqa.question_files import read_questions
from ragqa.retrieval.live import LiveRetriever
from ragqa.retrieval.other_documents import search_other_documents
from ragqa.risk_control.conformal import choose_index_threshold
from ragqa.risk_control.corpus_questions import make_corpus_questions
from ragqa.risk_control.settings import MISSING, RiskSettings
from ragqa.text import format_count
from ragqa.types import Answer, Hit, Question

_BATCH = 16
"""Number of questions that are answered together, to keep all cores busy."""
_CURVE = tuple(tenth / 10 for tenth in range(10))
"""Thresholds for which a report has the shares of questions: 0, 0.1, … 0.9."""


@dataclass(frozen=True)
class CurvePoint:
    """Shares of questions at a threshold, from 0 to 1."""

    threshold: float
    answered: float
    """Share of answered questions among all questions, by weight."""
    wrong: float
    """Share of questions with a wrong answer among all questions, by weight."""
    right_declined: float | None
    """Share of declined answers among the right answers over the whole index; None without right answers."""
    missing_declined: float | None
    """Share of declined questions among questions that the documents do not answer; None without such questions."""


@dataclass(frozen=True)
class RiskReport:
    """Confidence threshold that was chosen for an index, with the figures of the questions."""

    threshold: float | None
    """Threshold that was stored with the index; None if no threshold has the risk."""
    before: float
    """Threshold that the pipeline used before."""
    lowest: float
    """Lowest threshold that could be chosen: with made questions the reader's own, otherwise 0."""
    risk: float
    """Largest expected share of wrong answers among all questions."""
    questions: int
    is_made: bool
    """True if the questions were made from the passages; False if they come from a file."""
    missing: float
    """Weight, from 0 to 1, of each answer that was read without the question's documents."""
    at_threshold: CurvePoint | None
    """Shares of questions at ``threshold``; None without a threshold."""
    curve: list[CurvePoint]
    """Shares of questions at fixed thresholds, in ascending order."""


@dataclass(frozen=True)
class AskedQuestions:
    """Confidence, correctness, kind and weight of each answer to the questions.

    Legend: A answers. A question has two answers if it is asked over the whole index and without its documents.
    """

    confidence_A: npt.NDArray[np.float64]
    """Confidence of the answer; -1, which is below every threshold, if the reader gave none."""
    right_A: npt.NDArray[np.bool_]
    """True if the answer is right."""
    missing_A: npt.NDArray[np.bool_]
    """True if the question has no answer, or was asked without its documents."""
    weight_A: npt.NDArray[np.float64]
    """Weight of the answer; the weights of a question have the sum 1."""

    def measure(self, threshold: float) -> CurvePoint:
        """Return the shares of questions at a confidence threshold."""
        answered_A = self.confidence_A >= threshold
        whole_A = self.right_A & ~self.missing_A
        total = self.weight_A.sum()
        return CurvePoint(
            threshold,
            float((answered_A * self.weight_A).sum() / total),
            float((answered_A * ~self.right_A * self.weight_A).sum() / total),
            float((~answered_A[whole_A]).mean()) if whole_A.any() else None,
            float((~answered_A[self.missing_A]).mean()) if self.missing_A.any() else None,
        )


def set_threshold(pipeline: Pipeline, settings: RiskSettings, *, progress: Progress = SILENT) -> RiskReport:
    """Choose the confidence threshold of an index, store it there, and return a report.

    If no threshold has the risk, nothing is stored. Made questions are easier than people's, and a small index has few
    passages that mislead the reader when a document is taken away. So they never lower the reader's own threshold.

    Args:
        pipeline: pipeline that ``Pipeline.load`` opened over an index directory.
        settings: questions and risk.
        progress: receiver of the number of finished questions.

    Raises:
        BadInput: the pipeline does not search an index directory; the index cannot be written, or another process
            changes it; the questions cannot be read, are too few, or none of them has an answer.
        ArtefactError, DamagedArtefact, Mismatch: the index was replaced or damaged after it was opened.
        RemoteError: the server of a language model did not answer.
    """
    index, retriever = pipeline.index_directory, pipeline.retriever
    if index is None or not isinstance(retriever, LiveRetriever):
        raise BadInput("a served index has no directory here: calibrate its directory on the machine of the server")
    with open_update_folder(index) as (_, manifest, _):  # an index that cannot be written is an error before the work
        encoder = manifest.parents.get("encoder")
    questions = _collect_questions(retriever.passages, index, settings, progress)
    missing = _choose_missing_share(questions, settings)
    scores = _ask_questions(pipeline, questions, missing, progress)
    loss_A = scores.weight_A * ~scores.right_A * (scores.confidence_A >= 0)
    has_answer_A = scores.confidence_A >= 0
    threshold = choose_index_threshold(
        scores.confidence_A[has_answer_A], loss_A[has_answer_A], len(questions), settings.risk
    )
    before, lowest = pipeline.threshold, 0.0 if settings.questions else pipeline.reader.threshold
    if threshold is not None:
        threshold = max(threshold, lowest)  # the risk never rises with the threshold
        stored = IndexThreshold(
            threshold=threshold,
            risk=settings.risk,
            questions=len(questions),
            reader=pipeline.reader.fingerprint,
            encoder=encoder,
        )
        replace_index_file(index, THRESHOLD_FILE, stored.to_json())
    return RiskReport(
        threshold,
        before,
        lowest,
        settings.risk,
        len(questions),
        settings.questions is None,
        missing,
        None if threshold is None else scores.measure(threshold),
        [scores.measure(point) for point in _CURVE],
    )


def _collect_questions(
    passages: PassageStore, index: Path, settings: RiskSettings, progress: Progress
) -> list[Question]:
    needed = settings.needed_questions
    if file := settings.questions:
        questions = list(read_questions(file))
        if not any(question.answers for question in questions):
            raise BadInput(f"{file}: no question has an answer, so no answer can be right: add questions with answers")
        supply, remedy = f"{file} has {len(questions)}", "add questions"
    else:
        questions = make_corpus_questions(passages, settings.count, seed=settings.seed, progress=progress)
        supply = f"{len(questions)} could be made from {index}"
        remedy = "give your own with --questions FILE" if len(questions) < settings.count else "raise --count"
    if len(questions) < needed:
        reason = f"a risk of {settings.risk} needs {format_count(needed, 'questions')} or more, and {supply}"
        raise BadInput(f"{reason}: {remedy}, or raise --risk")
    return questions


def _choose_missing_share(questions: Sequence[Question], settings: RiskSettings) -> float:
    if settings.missing is not None:
        return settings.missing
    return MISSING if all(question.answers for question in questions) else 0.0


def _ask_questions(
    pipeline: Pipeline, questions: Sequence[Question], missing: float, progress: Progress
) -> AskedQuestions:
    """Ask each question over the whole index, and without the documents that answer it.

    A question without an answer is asked over the whole index only. ``missing`` is the weight, from 0 to 1, of the
    answer without documents; an answer of weight 0 is not asked for.
    """
    rows: list[tuple[float, bool, bool, float]] = []
    done, total = 0, len(questions)
    with progress.step("asking", total, "questions") as step:
        for first in range(0, total, _BATCH):
            batch = questions[first : first + _BATCH]
            answerable = [question for question in batch if question.answers]
            if whole := [question for question in batch if not question.answers or missing < 1]:
                answers = pipeline.ask([question.text for question in whole], min_confidence=0)
                weights = [1 - missing if question.answers else 1.0 for question in whole]
                absent = [not question.answers for question in whole]
                rows += map(_judge, answers, whole, absent, weights)
            if answerable and missing:
                others = _ask_without_documents(pipeline, answerable)
                rows += map(partial(_judge, is_missing=True, weight=missing), others, answerable)
            done += len(batch)
            step.advance_to(done)
    confidence, right, absent_A, weight = zip(*rows, strict=True)
    return AskedQuestions(
        np.array(confidence, np.float64), np.array(right, bool), np.array(absent_A, bool), np.array(weight, np.float64)
    )


def _judge(answer: Answer, question: Question, is_missing: bool, weight: float) -> tuple[float, bool, bool, float]:
    """Return a row of ``AskedQuestions``: confidence, correctness, and the last two arguments."""
    is_right = bool(question.answers) and exact_match(answer.text, question.answers)
    return (-1.0 if answer.text is None else answer.confidence), is_right, is_missing, weight


def _ask_without_documents(pipeline: Pipeline, questions: Sequence[Question]) -> list[Answer]:
    prepared = [replace(question, text=pipeline.prepare_question(question.text)) for question in questions]
    hits: list[list[Hit]] = [[] for _ in prepared]
    if not pipeline.reader.is_closed_book:
        hits = search_other_documents(pipeline.find_passages, prepared, pipeline.k, _drop_own_documents)
    return pipeline.reader.read([question.text for question in prepared], hits)


def _drop_own_documents(hits: list[Hit], question: Question) -> list[Hit]:
    """Drop the hits of the documents that answer a question.

    The question names these documents. If it names none, they are the documents with an answer in a hit.
    """
    if question.documents or question.titles:
        return [
            hit
            for hit in hits
            if not has_name(hit.passage.document, question.documents) and hit.passage.title not in question.titles
        ]
    holders = {
        (hit.passage.path, hit.passage.document) for hit in hits if has_answer(hit.passage.text, question.answers)
    }
    return [hit for hit in hits if (hit.passage.path, hit.passage.document) not in holders]
