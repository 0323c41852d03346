"""What a span reader is trained on: questions with gold passages (SQuAD, QED), and pairs of question and answer."""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines.common.mining import Source
from pipelines.common.questions import unasked
from ragqa.errors import BadInput
from ragqa.metrics import has_answer
from ragqa.questions import is_squad, read_questions
from ragqa.text import normalize_answer
from ragqa.types import Question

SHARE = 0.05
"""Share of SQuAD's articles that training holds out where nobody says another."""


@dataclass(frozen=True)
class DataSet:
    """The questions of a file that are trained on."""

    source: Source
    questions: list[Question]


def held_out(title: str, share: float) -> bool:
    """Whether the article ``title`` is kept out of training; a pure function of the title."""
    return int(hashlib.sha256(title.encode()).hexdigest()[:8], 16) < share * 2**32


def held_of(squad: Path, share: float) -> list[Question]:
    """The questions with answers of a SQuAD file's articles that are held out."""
    return [each for each in read_questions(squad) if each.answers and held_out(each.titles[0], share)]


def read_sets(
    sources: Sequence[Source], *, share: float, known: Collection[str] = ()
) -> tuple[list[DataSet], list[list[Question]]]:
    """The questions with answers of each file, and of each SQuAD file those of the articles that are held out.

    Of no file are questions trained on that ask what a held-out one asks, or that name its article, or whose gold
    passages do not hold their answers.

    Args:
        sources: files of questions.
        share: of the articles of SQuAD files, which are held out.
        known: what must not be trained on (see ``pipelines.common.questions.asked_in``).

    Raises:
        BadInput, BadLine: a file cannot be read, or nothing is left to train on.
    """
    found = [[question for question in read_questions(source.file) if question.answers] for source in sources]
    held = [
        [question for question in file if held_out(question.titles[0], share)]
        for source, file in zip(sources, found, strict=True)
        if is_squad(source.file)
    ]
    articles = {question.titles[0] for file in held for question in file}
    known = {*known, *(normalize_answer(question.text) for file in held for question in file)}
    sets = []
    for source, file in zip(sources, found, strict=True):
        kept = unasked([question for question in file if articles.isdisjoint(question.titles)], known)
        if not kept:
            raise BadInput(f"{source.file}: no question with answers that is not held out")
        kept = [question for question in kept if _can_be_told(question, source.regex)]
        if not kept:
            raise BadInput(f"{source.file}: no question names a passage where its answer stands")
        sets.append(DataSet(source, kept))
    return sets, held


def _can_be_told(question: Question, regex: bool) -> bool:
    """Whether one of its gold passages, if it has any, holds an answer."""
    texts = question.passages
    return (
        not texts
        or any(answer in text for answer in question.answers for text in texts)
        or any(has_answer(text, question.answers, regex=regex) for text in texts)
    )


def split(held: Sequence[Question], count: int, seed: int) -> tuple[list[Question], list[Question]]:
    """``count`` held-out questions that choose the weights, in their order, and the rest, in an order by chance.

    Who chooses and who calibrates must not be the same: a pure function of ``held`` and ``seed``, by which training and
    ``pipelines.calibrate.fit`` share a file between them.
    """
    order = np.random.default_rng(seed).permutation(len(held))
    return [held[at] for at in np.sort(order[:count])], [held[at] for at in order[count:]]


def sources_of(files: Iterable[Path], patterns: Iterable[Path]) -> list[Source]:
    """Files of training questions, then those whose answers are patterns (CuratedTREC)."""
    return [*(Source(file) for file in files), *(Source(file, True) for file in patterns)]
