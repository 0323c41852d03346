"""Calibration of a trained reader at the end of a recipe."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from pipelines.common.questions import (
    drop_known,
    iterate_batches,
    make_question_keys,
    read_answerable,
    sample_questions,
)
from ragqa.evaluation.statistics import compute_calibration_error
from ragqa.metrics import exact_match
from ragqa.progress import SILENT, Progress
from ragqa.reading import registry
from ragqa.reading.base import get_default_passages
from ragqa.reading.calibration import BASIC_FEATURES, Calibration, Evidence, FeatureSource, fit_calibration
from ragqa.reading.generative import GenerativeReader, WrittenAnswer
from ragqa.reading.span import ExtractiveReader, SpanAnswer
from ragqa.retrieval.base import Retriever
from ragqa.runtime.export import amend_export
from ragqa.types import Question

MIN_ANSWERS = 10
"""Minimum number of right answers, and of wrong answers, for a fit."""
MIN_UNSEEN = 200
"""Minimum number of questions that did not select the weights.
With fewer, the questions that selected the weights are also used."""


@dataclass(frozen=True)
class CrossFit:
    """Calibration of N answers, with a cross-fitted confidence of each answer."""

    calibration: Calibration
    """Calibration fitted on all answers."""
    confidence: np.ndarray
    """Confidence of each answer [N], by a calibration that was fitted on the other parts."""
    right: np.ndarray
    """1 for a right answer, 0 for a wrong answer, or the probability that the answer is right [N]."""

    @property
    def error(self) -> float:
        """Expected calibration error of ``confidence``."""
        return float(compute_calibration_error(self.confidence, self.right))


def select_unseen_questions(
    file: Path, train: Path | None, selection_sample: int, seed: int, count: int | None = None
) -> list[Question]:
    """Sample held-out questions that are not training questions, for a calibration.

    Args:
        file: file of held-out questions; questions without answers are left out.
        train: file of training questions to leave out; None for no such questions. The comparison ignores case,
            punctuation and articles.
        selection_sample: number of questions of ``file`` that selected the best weights. These questions are left out
            if at least ``MIN_UNSEEN`` others remain.
        seed: seed of the training, which determines the samples.
        count: size of the sample to return; None takes all.

    Raises:
        BadInput, BadLine: a file cannot be read, or ``file`` has no question with an answer.
    """
    unseen = drop_known(read_answerable(file), make_question_keys([train] if train else []))
    selecting = (
        {question.id for question in read_answerable(file, selection_sample, seed)} if selection_sample else set()
    )
    others = [question for question in unseen if question.id not in selecting]
    return sample_questions(others if len(others) >= MIN_UNSEEN else unseen, count, seed)


def collect_answers(
    reader: ExtractiveReader | GenerativeReader,
    retriever: Retriever,
    questions: Sequence[Question],
    k: int,
    is_right: Callable[[str, Sequence[str]], bool],
    *,
    progress: Progress = SILENT,
) -> list[tuple[Evidence, bool]]:
    """Answer questions to collect the data of a calibration.

    Args:
        reader: reader to calibrate.
        retriever: retriever of the passages.
        questions: questions with gold answers.
        k: number of passages per question.
        is_right: function from an answer and the gold answers to True if the answer is right.
        progress: shows the number of questions.

    Returns:
        The evidence of the best answer to each answered question, with True if this answer is right.

    Raises:
        SlowPattern: raised by ``is_right``, if a gold answer is a pattern that takes too long.
    """
    rows = []
    for batch in iterate_batches(questions, progress, "asking"):
        texts = [question.text for question in batch]
        answers: list[Sequence[SpanAnswer | WrittenAnswer]] = [*reader.find_answers(texts, retriever.search(texts, k))]
        rows += [
            (candidates[0].evidence, is_right(candidates[0].text, question.answers))
            for question, candidates in zip(batch, answers, strict=True)
            if candidates
        ]
    return rows


def cross_fit(
    rows: Sequence[tuple[FeatureSource, float]],
    fitted_on: str,
    *,
    features: Sequence[str] = BASIC_FEATURES,
    weights: Sequence[float] | np.ndarray | None = None,
    parts: Sequence[int | str] | None = None,
) -> CrossFit:
    """Fit a calibration on all answers, and compute cross-fitted confidences.

    The confidence of an answer comes from a calibration that is fitted on the parts without this answer.

    Args:
        rows: evidence of each answer, and its target: 1 if it is right, 0 if it is wrong, or a probability.
        fitted_on: description of the questions, saved with the calibration.
        features: names of the features of the evidence.
        weights: weight of each answer; default: 1.
        parts: name of the part of each answer, with at least two different names; default: two alternating halves.
    """
    evidence, right = [item for item, _ in rows], np.array([float(item) for _, item in rows])
    weight = np.ones(len(rows)) if weights is None else np.asarray(weights)
    part = np.arange(len(rows)) % 2 if parts is None else np.asarray(parts)

    def fit(mask: np.ndarray) -> Calibration:
        selected = [item for item, is_selected in zip(evidence, mask, strict=True) if is_selected]
        return fit_calibration(selected, right[mask], fitted_on, features=features, counts=weight[mask])

    on_others = {name: fit(part != name) for name in np.unique(part)}
    confidence = np.array([on_others[name].compute_confidence(item) for name, item in zip(part, evidence, strict=True)])
    return CrossFit(fit(np.ones(len(rows), dtype=bool)), confidence, right)


def install_calibration(calibration: Calibration, reader: Path) -> None:
    """Save a calibration in the directory of a generator or of an exported reader.

    Raises:
        BadInput, ArtefactError, DamagedArtefact, Mismatch: as for ``amend_export``.
    """
    if registry.is_generator(reader):
        calibration.save(reader)
        return
    with amend_export(reader) as folder:
        calibration.save(folder)


def calibrate_reader(
    reader: Path,
    retriever: Retriever,
    questions: Sequence[Question],
    k: int | None,
    *,
    name: str,
    regex: bool = False,
    device: str = "cpu",
    progress: Progress = SILENT,
) -> str:
    """Calibrate an exported reader or a generator, if there are enough right and wrong answers.

    Args:
        reader: directory of the reader or generator.
        retriever: retriever of the passages.
        questions: questions that were not used in training.
        k: number of passages to read per question; None takes the reader's default.
        name: name of the questions, saved with the calibration.
        regex: True if the answers are regular expressions.
        device: device of a generator.
        progress: shows the number of questions.

    Returns:
        A line about the result for the user.

    Raises:
        BadInput, ArtefactError, DamagedArtefact, Mismatch, MissingExtra: the reader cannot be loaded or changed.
        SlowPattern: a gold answer is a pattern that takes too long.
    """
    opened: ExtractiveReader | GenerativeReader
    if registry.is_generator(reader):
        opened = GenerativeReader.load(reader, device=device)
    else:
        opened = ExtractiveReader.load(reader)
    k = get_default_passages(opened) if k is None else k
    rows = collect_answers(opened, retriever, questions, k, partial(exact_match, regex=regex), progress=progress)
    right = sum(is_right for _, is_right in rows)
    if min(right, len(rows) - right) < MIN_ANSWERS:
        return (
            f"confidence is the raw probability: {len(rows)} of {len(questions)} held-out questions were answered, "
            f"{right} right and {len(rows) - right} wrong, but a calibration needs {MIN_ANSWERS} of each"
        )
    result = cross_fit(rows, f"{len(questions)} questions of {name} that were not used in training, k = {k}")
    install_calibration(result.calibration, reader)
    return (
        f"confidence calibrated on {len(rows)} answers to held-out questions, {right} of them right; "
        f"calibration error {result.error:.3f} (fitted on one half, measured on the other)"
    )
