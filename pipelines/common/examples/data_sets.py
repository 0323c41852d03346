"""Training sets of a span reader, and the held-out articles and questions."""

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
"""Default share of SQuAD's articles to hold out from training."""


@dataclass(frozen=True)
class TrainingSet:
    """Training questions of one file."""

    file: QuestionFile
    """File that the questions come from."""
    questions: list[Question]
    """Questions of the file to train on."""


def is_held_out(title: str, share: float) -> bool:
    """Return True if an article is held out from training; a hash of its title decides.

    Args:
        title: title of the article.
        share: share of all articles to hold out.
    """
    return int(hashlib.sha256(title.encode()).hexdigest()[:8], 16) < share * 2**32


def read_held_out_questions(squad: Path, share: float) -> list[Question]:
    """Return the answerable questions about the held-out articles of a SQuAD file.

    Args:
        squad: question file of SQuAD.
        share: share of all articles to hold out.

    Raises:
        BadInput, BadLine: as for ``read_questions``, or ``squad`` is not a SQuAD file.
    """
    if not is_squad(squad):
        raise BadInput(f"{squad} is not a SQuAD 1.1 file (.json): give other questions with --questions and --index")
    questions = [question for question in read_questions(squad) if question.answers]
    return [question for question in questions if is_held_out(question.titles[0], share)]


def read_training_sets(
    files: Sequence[QuestionFile], *, share: float, known: Collection[str] = ()
) -> tuple[list[TrainingSet], list[list[Question]]]:
    """Return the training questions of each file and the held-out questions of SQuAD files.

    Training leaves out questions about a held-out article, questions with the same normalised text as a held-out
    question, and questions whose gold passages contain none of their answers.

    Args:
        files: question files; questions without answers are ignored.
        share: share of the articles of SQuAD files to hold out.
        known: normalised texts of further questions to leave out of training (``make_question_keys``).

    Raises:
        BadInput, BadLine: a file cannot be read, or has no questions to train on.
        SlowPattern: an answer is a pattern that takes too long.
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
        if not answerable:
            raise BadInput(f"{file.path}: no question has an answer")
        others = drop_known([question for question in answerable if articles.isdisjoint(question.titles)], known)
        if not others:
            raise BadInput(f"{file.path}: all questions with answers are held out, so none remain for training")
        questions = [question for question in others if _is_answered_by_gold(question, file.regex)]
        if not questions:
            raise BadInput(f"{file.path}: no question has a gold passage that contains its answer")
        sets.append(TrainingSet(file, questions))
    return sets, held_out


def _is_answered_by_gold(question: Question, regex: bool) -> bool:
    """Return True if a gold passage contains an answer, or if there is no gold passage."""
    texts = question.passages
    if not texts or any(answer in text for answer in question.answers for text in texts):
        return True
    with name_slow_question([question]):
        return any(has_answer(text, question.answers, regex=regex) for text in texts)


def split_held_out(questions: Sequence[Question], count: int, seed: int) -> tuple[list[Question], list[Question]]:
    """Split held-out questions into a part that selects weights and a part for calibration.

    The split depends only on the arguments, so training and ``pipelines.calibrate`` make the same split.

    Args:
        questions: the held-out questions of a file.
        count: number of questions that select the weights.
        seed: the seed of the training.

    Returns:
        At most ``count`` random questions in the order of ``questions``, and the others in random order.
    """
    order = np.random.default_rng(seed).permutation(len(questions))
    return [questions[place] for place in np.sort(order[:count])], [questions[place] for place in order[count:]]


def make_gold_hits(questions: Sequence[Question]) -> list[list[Hit]]:
    """Return the gold passages of each question as hits with the score 0.

    The passages have no titles, as in SQuAD's task.
    """
    return [
        [Hit(Passage(n, str(n), "", text, "", 0, len(text)), 0.0) for n, text in enumerate(question.passages)]
        for question in questions
    ]


def list_question_files(files: Iterable[Path], patterns: Iterable[Path]) -> list[QuestionFile]:
    """Return the question files: first those with plain answers, then those with patterns.

    Args:
        files: paths of files with plain answers.
        patterns: paths of files whose answers are regular expressions.
    """
    return [*(QuestionFile(path) for path in files), *(QuestionFile(path, True) for path in patterns)]
