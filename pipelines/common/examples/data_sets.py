"""Training sets of a span reader, and the articles and questions held out from them."""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines.common.examples.mining import QuestionFile
from pipelines.common.questions import drop_known
from ragqa.errors import BadInput
from ragqa.matching.patterns import name_slow_question
from ragqa.metrics import has_answer
from ragqa.question_files import is_squad, read_questions
from ragqa.text import normalize_answer
from ragqa.types import Hit, Passage, Question

HELD_OUT_SHARE = 0.05
"""Default share of SQuAD's articles that training holds out."""


@dataclass(frozen=True)
class TrainingSet:
    """Training questions of a file."""

    file: QuestionFile
    questions: list[Question]


def is_held_out(title: str, share: float) -> bool:
    """Tell whether an article is held out from training, by a hash of its title.

    Args:
        title: title of the article.
        share: share of all articles to hold out.
    """
    return int(hashlib.sha256(title.encode()).hexdigest()[:8], 16) < share * 2**32


def read_held_out_questions(squad: Path, share: float) -> list[Question]:
    """Return the questions with answers on the held-out articles of a SQuAD file."""
    questions = [question for question in read_questions(squad) if question.answers]
    return [question for question in questions if is_held_out(question.titles[0], share)]


def read_training_sets(
    files: Sequence[QuestionFile], *, share: float, known: Collection[str] = ()
) -> tuple[list[TrainingSet], list[list[Question]]]:
    """Return the training questions of each file, and the held-out ones of each SQuAD file.

    A question is left out of every file if a held-out question asks the same, if it names a held-out article, or if its
    gold passages do not hold its answers.

    Args:
        files: files of questions; those without answers are ignored.
        share: share of the articles of SQuAD files to hold out.
        known: normalised questions that must not be trained on (see ``pipelines.common.questions.make_question_keys``).

    Raises:
        BadInput, BadLine: a file cannot be read, or nothing is left to train on.
    """
    contents = [[question for question in read_questions(file.path) if question.answers] for file in files]
    held_out = [
        [question for question in questions if is_held_out(question.titles[0], share)]
        for file, questions in zip(files, contents, strict=True)
        if is_squad(file.path)
    ]
    articles = {question.titles[0] for questions in held_out for question in questions}
    known = {*known, *(normalize_answer(question.text) for questions in held_out for question in questions)}
    sets = []
    for file, answerable in zip(files, contents, strict=True):
        others = drop_known([question for question in answerable if articles.isdisjoint(question.titles)], known)
        if not others:
            raise BadInput(f"{file.path}: no question with answers that is not held out")
        questions = [question for question in others if _is_answered_by_gold(question, file.regex)]
        if not questions:
            raise BadInput(f"{file.path}: no question names a passage where its answer stands")
        sets.append(TrainingSet(file, questions))
    return sets, held_out


def _is_answered_by_gold(question: Question, regex: bool) -> bool:
    """Tell whether one of the question's gold passages holds an answer; True if it has none."""
    texts = question.passages
    if not texts or any(answer in text for answer in question.answers for text in texts):
        return True
    with name_slow_question([question]):
        return any(has_answer(text, question.answers, regex=regex) for text in texts)


def split_held_out(questions: Sequence[Question], count: int, seed: int) -> tuple[list[Question], list[Question]]:
    """Split held-out questions into those that select the weights, and the rest.

    The questions that select weights and those that calibrate must differ. The split depends on the arguments alone, so
    that training and ``pipelines.calibrate`` make the same one.

    Args:
        questions: the held-out questions of a file.
        count: number of questions that select the weights.
        seed: the seed of the training.

    Returns:
        ``count`` questions in their order, and the others in random order.
    """
    order = np.random.default_rng(seed).permutation(len(questions))
    return [questions[place] for place in np.sort(order[:count])], [questions[place] for place in order[count:]]


def make_gold_hits(questions: Sequence[Question]) -> list[list[Hit]]:
    """Return the gold passages of each question as hits, without titles (SQuAD's task)."""
    return [
        [Hit(Passage(n, str(n), "", text, "", 0, len(text)), 0.0) for n, text in enumerate(question.passages)]
        for question in questions
    ]


def list_question_files(files: Iterable[Path], patterns: Iterable[Path]) -> list[QuestionFile]:
    """Return training files with plain answers, then those with regular expressions."""
    return [*(QuestionFile(path) for path in files), *(QuestionFile(path, True) for path in patterns)]
