"""Rows of the passages that answer training questions: found once in the whole corpus, then kept on disk.

Legend: Q questions, K passages.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ragqa import artefacts
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.matching.answer_finder import AnswerFinder
from ragqa.progress import SILENT, Progress
from ragqa.training import parallel
from ragqa.types import Question

_READ = 2000
"""Passages that are read at a time."""


@dataclass(frozen=True)
class AnswerRows:
    """Rows of the passages that hold an answer of each question, by DPR's rule (``metrics.has_answer``)."""

    starts: np.ndarray
    """Places in ``rows`` [Q + 1] where those of each question begin."""
    rows: np.ndarray
    """Rows of all questions, sorted within each."""

    @classmethod
    def open(
        cls,
        store: PassageStore,
        corpus: str,
        answers: Sequence[Sequence[str]],
        cache: Path,
        *,
        regex: bool = False,
        progress: Progress = SILENT,
    ) -> "AnswerRows":
        """Open the rows for questions with these answers, found in one pass over ``store`` if they are not cached.

        Args:
            store: the passages.
            corpus: their fingerprint.
            answers: of each question.
            cache: directory of rows that were found before.
            regex: treat the answers as regular expressions.
            progress: shows the pass over the corpus.
        """
        key = json.dumps([corpus, regex, [list(texts) for texts in answers]])
        folder = cache / hashlib.sha256(key.encode()).hexdigest()[:16]
        if not folder.is_dir():
            _write_rows(store, AnswerFinder(answers, regex=regex), len(answers), folder, progress)
        return cls(np.load(folder / "starts.npy"), np.load(folder / "rows.npy", mmap_mode="r"))

    def rows_of(self, question: int) -> np.ndarray:
        """Return the rows of the passages that answer a question."""
        rows: np.ndarray = self.rows[self.starts[question] : self.starts[question + 1]]
        return rows

    def has_answer(self, question: int, rows_K: np.ndarray) -> np.ndarray:
        """Return for each row whether its passage answers the question: [K] bool."""
        own = self.rows_of(question)
        place = np.searchsorted(own, rows_K).clip(max=max(0, len(own) - 1))
        return own[place] == rows_K if len(own) else np.zeros(len(rows_K), dtype=bool)


@dataclass(frozen=True)
class AnsweredQuestions:
    """Questions with the rows of the passages that answer them."""

    questions: list[Question]
    numbers: list[int]
    """Numbers of the questions in ``rows``."""
    rows: AnswerRows

    def __len__(self) -> int:
        return len(self.questions)

    def has_answer(self, place: int, rows_K: np.ndarray) -> np.ndarray:
        """Return for each row whether its passage answers the question at a place: [K] bool."""
        return self.rows.has_answer(self.numbers[place], rows_K)


def locate_answers(
    store: PassageStore,
    corpus: str,
    training: list[Question],
    held_out: list[Question],
    cache: Path,
    *,
    regex: bool = False,
    progress: Progress = SILENT,
) -> tuple[AnsweredQuestions, AnsweredQuestions]:
    """Return the training questions that some passage answers, and all held-out ones; one process after the other.

    Args:
        store: the passages.
        corpus: their fingerprint.
        training: training questions; those without an answer in the corpus have no loss and are left out.
        held_out: held-out questions.
        cache: directory of rows that were found before.
        regex: treat answers as regular expressions.
        progress: shows the pass over the corpus.

    Raises:
        BadInput: no passage answers a training question.
    """
    answers = [question.answers for question in (*training, *held_out)]
    with parallel.take_turns():
        rows = AnswerRows.open(store, corpus, answers, cache, regex=regex, progress=progress)
    answered = [number for number in range(len(training)) if len(rows.rows_of(number))]
    if not answered:
        raise BadInput("no passage of the corpus holds an answer of any training question: is it their corpus?")
    rest = list(range(len(training), len(answers)))
    return (
        AnsweredQuestions([training[number] for number in answered], answered, rows),
        AnsweredQuestions(held_out, rest, rows),
    )


def _write_rows(store: PassageStore, finder: AnswerFinder, questions: int, folder: Path, progress: Progress) -> None:
    parts = list(_find_pairs(store, finder, progress))
    pairs = np.concatenate(parts) if parts else np.empty((0, 2), np.int32)
    order = np.argsort(pairs[:, 0], kind="stable")  # rows stay sorted within a question
    with artefacts.create_directory(folder) as temporary:
        np.save(temporary / "rows.npy", pairs[order, 1])
        np.save(temporary / "starts.npy", np.searchsorted(pairs[order, 0], np.arange(questions + 1)))


def _find_pairs(store: PassageStore, finder: AnswerFinder, progress: Progress) -> Iterator[np.ndarray]:
    """Yield the numbers of questions and the rows of passages that answer them, [n, 2], by rising row."""
    with progress.step("answers", len(store), "passages") as step:
        for passages in store.iter_batches(size=_READ):
            pairs = [(number, passage.id) for passage in passages for number in finder.find_questions(passage.text)]
            yield np.array(pairs, np.int32).reshape(-1, 2)
            step.advance_to(passages[-1].id + 1)
