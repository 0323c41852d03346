"""Where the answers of training questions stand: found once in the whole corpus, then kept on disk.

Legend: Q questions, K passages.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ragqa.corpus.store import PassageStore
from ragqa.matching.answer_finder import AnswerFinder
from ragqa.progress import SILENT, Progress

_READ = 2000
"""Passages that are read at a time."""


@dataclass(frozen=True)
class AnswerRows:
    """Rows of the passages that hold an answer of each question, by DPR's rule (``metrics.has_answer``)."""

    starts: np.ndarray
    """[Q + 1]"""
    rows: np.ndarray
    """Those of question q are ``rows[starts[q] : starts[q + 1]]``, sorted."""

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
        """For questions with these ``answers``, found under ``cache``, or in all of ``store`` in one pass.

        Args:
            store: the passages.
            corpus: their fingerprint.
            answers: of each question.
            cache: directory of what was found, which is mapped from there.
            regex: the answers are patterns.
            progress: told how far the pass is.
        """
        asked = json.dumps([corpus, regex, [list(each) for each in answers]])
        folder = cache / hashlib.sha256(asked.encode()).hexdigest()[:16]
        if not folder.is_dir():
            _look(store, AnswerFinder(answers, regex=regex), len(answers), folder, progress)
        return cls(np.load(folder / "starts.npy"), np.load(folder / "rows.npy", mmap_mode="r"))

    def of(self, question: int) -> np.ndarray:
        """Rows of the passages that answer a question."""
        found: np.ndarray = self.rows[self.starts[question] : self.starts[question + 1]]
        return found

    def marks(self, question: int, rows_K: np.ndarray) -> np.ndarray:
        """``[K]`` bool: whether these passages answer it."""
        own = self.of(question)
        place = np.searchsorted(own, rows_K).clip(max=max(0, len(own) - 1))
        return own[place] == rows_K if len(own) else np.zeros(len(rows_K), dtype=bool)


def _look(store: PassageStore, finder: AnswerFinder, questions: int, folder: Path, progress: Progress) -> None:
    found = list(_pairs(store, finder, progress))
    pairs = np.concatenate(found) if found else np.empty((0, 2), np.int32)
    order = np.argsort(pairs[:, 0], kind="stable")  # rows stay sorted within a question
    aside = folder.with_name(f".{folder.name}.writing")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    np.save(aside / "rows.npy", pairs[order, 1])
    np.save(aside / "starts.npy", np.searchsorted(pairs[order, 0], np.arange(questions + 1)))
    aside.rename(folder)


def _pairs(store: PassageStore, finder: AnswerFinder, progress: Progress) -> Iterator[np.ndarray]:
    """Question and row [n, 2] of each answer that is found, by rising row."""
    with progress.step("answers", len(store), "passages") as step:
        for passages in store.iter_batches(size=_READ):
            pairs = [(number, passage.id) for passage in passages for number in finder.find_questions(passage.text)]
            yield np.array(pairs, np.int32).reshape(-1, 2)
            step.advance_to(passages[-1].id + 1)
