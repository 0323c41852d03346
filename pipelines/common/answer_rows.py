"""Rows of the passages that contain an answer to each question, cached on disk."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from ragqa import artefacts
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.matching.answer_finder import AnswerFinder
from ragqa.matching.patterns import name_slow_question
from ragqa.progress import SILENT, Progress
from ragqa.training import parallel
from ragqa.types import Question

_READ = 2000
"""Number of passages read at a time."""


@dataclass(frozen=True)
class AnsweredQuestions:
    """Questions with the rows of the passages that contain their answers."""

    questions: list[Question]
    """Questions with gold answers."""
    rows: list[np.ndarray]
    """For each question, the sorted rows [int32] of the passages with an answer by DPR's rule (``has_answer``)."""

    def __len__(self) -> int:
        return len(self.questions)

    def has_answer(self, number: int, rows_K: np.ndarray) -> np.ndarray:
        """Return a mask [K] that is True for passages with an answer to a question.

        Args:
            number: position of the question in ``questions``.
            rows_K: rows of K passages.
        """
        rows = self.rows[number]
        if not len(rows):
            return np.zeros(len(rows_K), dtype=bool)
        is_equal: np.ndarray = rows[np.searchsorted(rows, rows_K).clip(max=len(rows) - 1)] == rows_K
        return is_equal


def locate_answers(
    store: PassageStore,
    corpus_fingerprint: str,
    training: list[Question],
    held_out: list[Question],
    cache: Path,
    *,
    regex: bool = False,
    progress: Progress = SILENT,
) -> tuple[AnsweredQuestions, AnsweredQuestions]:
    """Find the passages that contain answers to the training and to the held-out questions.

    Args:
        store: the passages.
        corpus_fingerprint: fingerprint of the passages.
        training: training questions. A question without an answer in the corpus is left out, because its loss is 0.
        held_out: held-out questions.
        cache: directory for the rows; a later call with the same arguments reads them.
        regex: True if the answers are regular expressions.
        progress: shows the pass over the corpus.

    Returns:
        The training questions with an answer in the corpus, and all held-out questions.

    Raises:
        BadInput: no passage contains an answer to a training question.
        SlowPattern: an answer is a pattern that takes too long.
    """
    answers = [question.answers for question in (*training, *held_out)]
    with parallel.take_turns(), name_slow_question((*training, *held_out)):
        rows = find_answer_rows(store, corpus_fingerprint, answers, cache, regex=regex, progress=progress)
    answered = [number for number in range(len(training)) if len(rows[number])]
    if not answered:
        raise BadInput(
            "no passage of the corpus contains an answer to a training question: check the corpus and the questions"
        )
    return (
        AnsweredQuestions([training[number] for number in answered], [rows[number] for number in answered]),
        AnsweredQuestions(held_out, rows[len(training) :]),
    )


def find_answer_rows(
    store: PassageStore,
    corpus_fingerprint: str,
    answers: Sequence[Sequence[str]],
    cache: Path,
    *,
    regex: bool = False,
    progress: Progress = SILENT,
) -> list[np.ndarray]:
    """Find the passages that contain an answer to each question; return their sorted rows.

    The first call reads all passages once. Later calls with the same arguments map the rows from the cache. The gold
    answers of each question are in ``answers``; other arguments are as for ``locate_answers``.

    Raises:
        SlowPattern: an answer is a pattern that takes too long.
    """
    key = json.dumps([corpus_fingerprint, regex, [list(texts) for texts in answers]])
    folder = cache / hashlib.sha256(key.encode()).hexdigest()[:16]
    if not folder.is_dir():
        _write_rows(store, AnswerFinder(answers, regex=regex), len(answers), folder, progress)
    rows = np.load(folder / "rows.npy", mmap_mode="r")
    return [rows[start:end] for start, end in pairwise(np.load(folder / "starts.npy").tolist())]


def _write_rows(store: PassageStore, finder: AnswerFinder, questions: int, folder: Path, progress: Progress) -> None:
    parts = [np.empty((0, 2), np.int32)]  # pairs (number of a question, row of a passage), sorted by row
    with progress.step("answers", len(store), "passages") as step:
        for passages in store.iter_batches(size=_READ):
            pairs = [(number, passage.id) for passage in passages for number in finder.find_questions(passage.text)]
            parts.append(np.array(pairs, np.int32).reshape(-1, 2))
            step.advance_to(passages[-1].id + 1)
    numbers, rows = np.concatenate(parts).T
    order = np.argsort(numbers, kind="stable")  # a stable sort keeps the rows of a question sorted
    with artefacts.create_directory(folder) as temporary:
        np.save(temporary / "rows.npy", rows[order])
        np.save(temporary / "starts.npy", np.searchsorted(numbers[order], np.arange(questions + 1)))
