"""Questions of a run: which there are, and which a step is of."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from ragqa.errors import BadInput
from ragqa.progress import Progress
from ragqa.questions import read_questions
from ragqa.text import normalize_answer
from ragqa.types import Question

Item = TypeVar("Item")


def answerable(file: Path, sample: int | None = None, seed: int = 0) -> list[Question]:
    """The questions of a file that have answers, or ``sample`` of them, drawn at random; BadInput if none has.

    A blank answer is none.
    """
    said = ((each, tuple(answer for answer in each.answers if answer.strip())) for each in read_questions(file))
    questions = [replace(question, answers=answers) for question, answers in said if answers]
    if not questions:
        raise BadInput(f"no questions with answers in {file}")
    chosen = np.random.default_rng(seed).permutation(len(questions))[:sample]
    return questions if sample is None else [questions[at] for at in np.sort(chosen)]


def asked_in(files: Iterable[Path]) -> set[str]:
    """What the questions of files ask, for ``unasked``."""
    return {normalize_answer(question.text) for file in files for question in read_questions(file)}


def unasked(questions: Sequence[Question], known: Collection[str]) -> list[Question]:
    """Those that ask nothing of what is ``known``: case, punctuation and articles aside."""
    return [question for question in questions if normalize_answer(question.text) not in known]


def batches(
    items: Sequence[Item], progress: Progress, title: str, size: int = 16, *, done: int = 0
) -> Iterator[Sequence[Item]]:
    """Questions, or what is kept of them, that are asked ``size`` at a time, those left out that are ``done``."""
    with progress.step(title, len(items), "questions", done) as step:
        for first in range(done, len(items), size):
            yield items[first : first + size]
            step.advance_to(min(first + size, len(items)))


class Answered(Protocol):
    """Settings of questions; see ``settings.AnsweringConfig``."""

    @property
    def questions(self) -> Path: ...
    @property
    def dev(self) -> Path | None: ...
    @property
    def sample(self) -> int: ...
    @property
    def seed(self) -> int: ...


def taught_and_asked(config: Answered, notify: Callable[[str], None]) -> tuple[list[Question], list[Question]]:
    """Questions to train on, and held-out ones, none of which is trained on; case, punctuation and articles aside.

    Raises BadInput where either is empty.
    """
    teach = answerable(config.questions)
    if config.dev is None:
        return teach, []
    ask = answerable(config.dev, config.sample, config.seed)
    fresh = unasked(teach, asked_in([config.dev]))
    if not fresh:
        raise BadInput(f"all questions of {config.questions} are asked in {config.dev}, too: hold others out")
    if len(fresh) < len(teach):
        notify(f"{len(teach) - len(fresh)} questions of {config.questions} are asked in {config.dev}, too: left out")
    return fresh, ask


class Drawn(Protocol):
    """Settings by which questions are drawn."""

    @property
    def batch(self) -> int:
        """Questions a step."""
        ...

    @property
    def seed(self) -> int:
        """Of their order."""
        ...


def chosen(count: int, config: Drawn, step: int) -> list[int]:
    """Which of ``count`` questions a step is of, a pure function of (seed, step): each epoch has its own order."""
    return drawn(count, config.seed, step * config.batch, config.batch)


def drawn(count: int, seed: int, first: int, many: int) -> list[int]:
    """So many of ``count`` questions, from the ``first`` of all that are ever drawn on: each epoch has its order."""
    places = (divmod(place, count) for place in range(first, first + many))
    return [int(_order(seed, epoch, count)[at]) for epoch, at in places]


@lru_cache(2)
def _order(seed: int, epoch: int, count: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch]).permutation(count)
