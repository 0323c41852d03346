"""Training and held-out questions of a run, and the order in which training uses them."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import numpy as np

from pipelines.common.config import HeldOutConfig
from ragqa.errors import BadInput
from ragqa.progress import Notify, Progress, ignore_line
from ragqa.question_files import read_questions
from ragqa.text import format_count, normalize_answer
from ragqa.types import Question

Item = TypeVar("Item")


def read_answerable(file: Path, sample: int | None = None, seed: int = 0) -> list[Question]:
    """Return the questions of a file that have answers; blank answers are ignored.

    Args:
        file: file of questions.
        sample: size of a random sample; None takes all.
        seed: seed of the sample.

    Raises:
        BadInput, BadLine: no question has an answer, or the file cannot be read.
    """
    questions = []
    for question in read_questions(file):
        if answers := tuple(answer for answer in question.answers if answer.strip()):
            questions.append(replace(question, answers=answers))
    if not questions:
        raise BadInput(f"no questions with answers in {file}")
    return sample_questions(questions, sample, seed)


def sample_questions(questions: list[Question], count: int | None, seed: int) -> list[Question]:
    """Return a random sample of questions, in the order of ``questions``.

    Args:
        questions: questions to choose from.
        count: size of the sample; None takes all.
        seed: seed of the sample.
    """
    if count is None:
        return questions
    order = np.random.default_rng(seed).permutation(len(questions))[:count]
    return [questions[number] for number in np.sort(order)]


def make_question_keys(files: Iterable[Path]) -> set[str]:
    """Return the normalised texts of questions in files; errors are as for ``read_questions``."""
    return {normalize_answer(question.text) for file in files for question in read_questions(file)}


def drop_known(questions: Sequence[Question], known: Collection[str]) -> list[Question]:
    """Return the questions whose normalised texts are not known.

    Args:
        questions: questions to select from.
        known: normalised texts (``make_question_keys``).
    """
    return [question for question in questions if normalize_answer(question.text) not in known]


def read_training_questions(
    questions: Path, held_out: HeldOutConfig, seed: int, notify: Notify = ignore_line
) -> tuple[list[Question], list[Question]]:
    """Return the training questions and a sample of the held-out questions.

    A training question whose normalised text is in the file of held-out questions is left out.

    Args:
        questions: file of training questions.
        held_out: settings of the held-out questions.
        seed: seed of the sample of held-out questions.
        notify: receives a line about training questions that are left out.

    Raises:
        BadInput, BadLine: a file cannot be read or has no questions with answers, or all training questions are held
            out.
    """
    training, dev = read_answerable(questions), held_out.dev
    if dev is None:
        return training, []
    sample = read_answerable(dev, held_out.sample, seed)
    remaining = drop_known(training, make_question_keys([dev]))
    if not remaining:
        raise BadInput(f"all questions of {questions} are also in {dev}: choose other held-out questions")
    if len(remaining) < len(training):
        count = format_count(len(training) - len(remaining), "questions")
        notify(f"left out, because also in {dev}: {count} of {questions}")
    return remaining, sample


def iterate_batches(
    items: Sequence[Item], progress: Progress, title: str, size: int = 16, *, done: int = 0
) -> Iterator[Sequence[Item]]:
    """Yield items in batches, and show the progress.

    Args:
        items: questions, or one item for each question.
        progress: shows the number of items.
        title: name of the work in the progress bar.
        size: items of a batch.
        done: number of items at the start to skip.
    """
    with progress.step(title, len(items), "questions", done) as step:
        for first in range(done, len(items), size):
            yield items[first : first + size]
            step.advance_to(min(first + size, len(items)))


def draw_step(count: int, *, batch: int, seed: int, step: int) -> list[int]:
    """Return the numbers, from 0, of the questions in a step; each epoch has a random order.

    Args:
        count: number of all questions.
        batch: number of questions of a step.
        seed: seed of the orders.
        step: number of the step, from 0.
    """
    return draw_stretch(count, seed, step * batch, batch)


def draw_stretch(count: int, seed: int, first: int, number: int) -> list[int]:
    """Return a part of the endless sequence of question numbers, with a random order per epoch.

    Args:
        count: number of all questions.
        seed: seed of the orders.
        first: position at which the part starts.
        number: length of the part.
    """
    places = (divmod(place, count) for place in range(first, first + number))
    return [int(_order(seed, epoch, count)[rank]) for epoch, rank in places]


@lru_cache(2)
def _order(seed: int, epoch: int, count: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch]).permutation(count)
