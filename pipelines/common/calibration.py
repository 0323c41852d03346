"""How sure a trained reader may be of its answers: fitted on questions that it was not trained on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from pipelines.common.questions import answerable, asked_in, batches, unasked
from ragqa.evaluation.statistics import calibration_error
from ragqa.metrics import exact_match
from ragqa.progress import SILENT, Progress
from ragqa.reading import registry
from ragqa.reading.base import get_default_passages
from ragqa.reading.calibration import BASIC_FEATURES, Calibration, Evidence, fit_calibration
from ragqa.reading.generative import GenerativeReader
from ragqa.reading.span import ExtractiveReader
from ragqa.retrieval.base import Retriever
from ragqa.runtime.export import amending
from ragqa.types import Hit, Question

LEAST = 10
"""Right answers, and wrong ones, that a fit needs."""
ENOUGH = 200
"""Questions that had no say in which weights were kept, without which those that had are asked as well."""


class HasAnswers(Protocol):
    """A question, of whatever file."""

    @property
    def text(self) -> str:
        """What is asked."""
        ...

    @property
    def answers(self) -> Sequence[str]:
        """Any of which is right."""
        ...


class Judged(Protocol):
    """An answer, and what speaks for it."""

    @property
    def text(self) -> str:
        """What is said."""
        ...

    @property
    def evidence(self) -> Evidence:
        """What the reader knows of it."""
        ...


class Finds(Protocol):
    """A reader before anybody says how sure it is: ``ExtractiveReader`` or ``GenerativeReader``."""

    def find_answers(self, questions: list[str], hits: list[list[Hit]]) -> Sequence[Sequence[Judged]]:
        """The answers to each question, best first."""
        ...


@dataclass(frozen=True)
class Fitted:
    """A calibration, and how well a fit on the other half of the questions judged each answer."""

    calibration: Calibration
    said: np.ndarray
    """That fit's confidence in each answer."""
    right: np.ndarray
    """Whether it is right, 1 or 0, or the probability."""

    @property
    def error(self) -> float:
        """Expected calibration error."""
        return float(calibration_error(self.said, self.right))


def unseen(file: Path, taught: Path | None, judged_by: int, seed: int) -> list[Question]:
    """The questions of a file that training has not seen.

    Args:
        file: of held-out questions; those without answers are left out.
        taught: file of the training questions; who asks the same, case, punctuation and articles aside, is left out.
        judged_by: so many of ``file``, drawn by ``seed``, were asked to find the best weights: left out as well, if
            enough others remain.
        seed: of that.
    """
    fresh = unasked(answerable(file), asked_in([taught] if taught else []))
    asked = {question.id for question in answerable(file, judged_by, seed)} if judged_by else set()
    others = [question for question in fresh if question.id not in asked]
    return others if len(others) >= ENOUGH else fresh


def judged(
    reader: Finds,
    retriever: Retriever,
    questions: Sequence[HasAnswers],
    k: int,
    right: Callable[[str, Sequence[str]], bool],
    *,
    progress: Progress = SILENT,
) -> list[tuple[Evidence, bool]]:
    """Of every question for which an answer is found: what speaks for it, and whether it is right."""
    rows = []
    for asked in batches(questions, progress, "asking"):
        texts = [question.text for question in asked]
        found = reader.find_answers(texts, retriever.search(texts, k))
        rows += [
            (answers[0].evidence, right(answers[0].text, question.answers))
            for question, answers in zip(asked, found, strict=True)
            if answers
        ]
    return rows


def fitted(
    rows: Sequence[tuple[Evidence, float]],
    where: str,
    *,
    features: Sequence[str] = BASIC_FEATURES,
    counts: Sequence[float] | np.ndarray | None = None,
    halves: Sequence[int] | None = None,
) -> Fitted:
    """Fit on all answers; judge each by a fit on the other half.

    Args:
        rows: answers, and whether each is right: 0, 1 or the probability.
        where: what they are to.
        features: what of the evidence counts.
        counts: how much each of the answers does; by default 1.
        halves: which half each belongs to, 0 or 1; by default every other one.
    """
    evidence, right = [each for each, _ in rows], np.array([float(each) for _, each in rows])
    count = np.ones(len(rows)) if counts is None else np.asarray(counts)
    half = np.arange(len(rows)) % 2 if halves is None else np.asarray(halves)

    def of(inside: np.ndarray) -> Calibration:
        taken = [each for each, kept in zip(evidence, inside, strict=True) if kept]
        return fit_calibration(taken, right[inside], where, features=features, counts=count[inside])

    others = of(half == 1), of(half == 0)
    said = np.array([others[at].confidence(each) for at, each in zip(half, evidence, strict=True)])
    return Fitted(of(np.ones(len(rows), dtype=bool)), said, right)


def install(calibration: Calibration, reader: Path) -> None:
    """Put the calibration into an exported reader and seal it again, or into a generator's directory."""
    if registry.is_generator(reader):
        calibration.save(reader)
        return
    with amending(reader) as folder:
        calibration.save(folder)


def calibrate(
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
    """Fit the confidence of an exported reader, or of a generator, and install it, if there is enough to learn from.

    Args:
        reader: its directory.
        retriever: finds what it reads.
        questions: that it was not trained on.
        k: passages that are read of each; None is what the reader was trained with.
        name: of the questions.
        regex: their answers are patterns.
        device: where a generator writes.
        progress: told of the questions.

    Returns:
        What was done, in a line.
    """

    def right(said: str, answers: Sequence[str]) -> bool:
        return exact_match(said, answers, regex=regex)

    written = registry.is_generator(reader)
    finds: Finds = GenerativeReader.load(reader, device=device) if written else ExtractiveReader.load(reader)
    k = get_default_passages(finds) if k is None else k
    rows = judged(finds, retriever, questions, k, right, progress=progress)
    count = sum(is_right for _, is_right in rows)
    if min(count, len(rows) - count) < LEAST:
        return (
            f"confidence is the raw probability: of {len(questions)} held-out questions {len(rows)} were answered, "
            f"{count} of them rightly, and at least "
            f"{LEAST} right and {LEAST} wrong ones are needed to fit it"
        )
    judgement = fitted(rows, f"{len(questions)} questions of {name} that it was not trained on, k = {k}")
    install(judgement.calibration, reader)
    return (
        f"confidence fitted on {len(rows)} answers to held-out questions, {count} of them right; "
        f"calibration error {judgement.error:.3f}, each half judged by a fit on the other"
    )
