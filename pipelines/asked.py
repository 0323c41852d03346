"""Questions of a run: which there are, and which a step is of."""

from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np

from ragqa.errors import BadInput
from ragqa.questions import read_questions
from ragqa.types import Question


def answerable(file: Path, sample: int | None = None, seed: int = 0) -> list[Question]:
    """The questions of a file that have answers, or ``sample`` of them, drawn at random; BadInput if none has."""
    questions = [question for question in read_questions(file) if question.answers]
    if not questions:
        raise BadInput(f"no questions with answers in {file}")
    chosen = np.random.default_rng(seed).permutation(len(questions))[:sample]
    return questions if sample is None else [questions[at] for at in np.sort(chosen)]


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
