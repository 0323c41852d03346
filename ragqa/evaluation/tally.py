"""Rows of an evaluation as columns of numbers, in about a hundred bytes per question.

Shapes: N questions.
"""

import sys
from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from ragqa.evaluation.corpus_coverage import Missing
from ragqa.evaluation.question_kinds import BREAKDOWNS
from ragqa.evaluation.rows import Row
from ragqa.matching.patterns import compile_pattern
from ragqa.text import split_words, to_nfd

LOSSES = ("right", "not in the corpus", "not retrieved", "not read", "not chosen")
"""Outcomes of answerable questions: ``right``, or the stage that lost the answer, from the corpus to the reader."""
_FLAGS = ("em", "answerable", "predicted", "covered")
_RANKS = ("rank", "passage_rank", "document_rank")
_NUMBERS = ("f1", "confidence", "retrieve_seconds", "read_seconds")
_TYPES = [*((flag, "?") for flag in _FLAGS), *((rank, "i4") for rank in _RANKS), *((name, "f8") for name in _NUMBERS)]


class Tally:
    """Columns and counts of the rows of a run."""

    def __init__(self, rows: Iterable[Row], *, regex: bool = False, missing: Missing | None = None) -> None:
        """Collect the columns and counts of ``rows``.

        Args:
            rows: rows in the order of the questions, read one by one.
            regex: True if gold answers are patterns, which have neither type nor length.
            missing: questions whose answers are not in the corpus; None if the corpus was not searched.
        """
        names = [name for name in BREAKDOWNS if not (regex and name.startswith("answer"))]
        self._kinds: dict[str, list[str]] = {name: [] for name in names}
        self._digest = blake2b(digest_size=8)
        self.losses: Counter[str] = Counter()
        """Number of questions by outcome (``find_loss``)."""
        self.gold: dict[str, list[int]] = {"passage_rank": [], "document_rank": []}
        """Positions of the questions with gold passages or with gold documents, by the name of the rank."""
        self.blank = self.invalid = self.invalid_in_text = self.no_prediction = self.no_confidence = self.most_hits = 0
        """Numbers of questions with an anomaly, and the largest number of hits of a question.

        The anomalies, in order, are a gold answer without tokens, an invalid pattern, a pattern that is invalid only in
        Unicode NFD, no prediction for a question with gold answers, and a prediction without confidence.
        """
        self._table = np.fromiter(
            (self._add(position, row, regex, missing) for position, row in enumerate(rows)), np.dtype(_TYPES)
        )

    def __len__(self) -> int:
        return len(self._table)

    @property
    def digest(self) -> str:
        """Digest of the questions and their order, as 16 hex digits."""
        return self._digest.hexdigest()

    def get_column(self, name: str) -> npt.NDArray[np.float64]:
        """Return a column as numbers [N].

        Args:
            name: a flag (0 or 1): ``em``, ``answerable`` (has gold answers), ``predicted`` (has a prediction) or
                ``covered`` (is right, or a hit contains an answer); or a number (NaN if unknown): ``f1``,
                ``confidence``, ``retrieve_seconds`` or ``read_seconds``.
        """
        return np.asarray(self._table[name], np.float64)

    def get_ranks(self, name: str) -> list[int | None]:
        """Return the rank of each question, from 1; None for a question without one.

        Args:
            name: ``rank``, ``passage_rank`` or ``document_rank``, as in ``Row``.
        """
        return [rank or None for rank in self._table[name].tolist()]

    def get_kinds(self) -> dict[str, npt.NDArray[np.str_]]:
        """Return the classes of the questions [N], by breakdown, such as ``answer type``."""
        return {name: np.asarray(values) for name, values in self._kinds.items()}

    def _add(self, position: int, row: Row, regex: bool, missing: Missing | None) -> tuple[Any, ...]:
        """Add a row to the counts, and return its values in the order of the columns."""
        for name, kinds in self._kinds.items():
            kinds.append(sys.intern(BREAKDOWNS[name](row.as_question)))
        for name, gold in (("passage_rank", row.passages), ("document_rank", row.documents)):
            if gold:
                self.gold[name].append(position)
        self._digest.update(row.digest.encode())
        if row.loss:
            self.losses[find_loss(row, missing)] += 1
        self._count_anomalies(row, regex)
        is_covered = row.em or row.rank is not None or row.loss == "not chosen"
        flags = (row.em, bool(row.answers), row.prediction is not None, is_covered)
        ranks = (getattr(row, name) or 0 for name in _RANKS)
        numbers = (getattr(row, name) for name in _NUMBERS)
        return (*flags, *ranks, *(np.nan if number is None else number for number in numbers))

    def _count_anomalies(self, row: Row, regex: bool) -> None:
        self.blank += any(not answer.strip() if regex else not split_words(answer) for answer in row.answers)
        if regex:
            is_valid = all(compile_pattern(answer) for answer in row.answers)
            self.invalid += not is_valid
            self.invalid_in_text += is_valid and not all(compile_pattern(to_nfd(answer)) for answer in row.answers)
        self.no_prediction += row.prediction is None and bool(row.answers)
        self.no_confidence += row.prediction is not None and row.confidence is None
        self.most_hits = max(self.most_hits, len(row.hits))


def find_loss(row: Row, missing: Missing | None) -> str:
    """Return the outcome of a row; empty if only retrieval is scored.

    It is the row's ``loss``, or ``not in the corpus`` if the corpus lacks the answer.

    Args:
        row: row of a question.
        missing: questions whose answers are not in the corpus; None if the corpus was not searched.
    """
    is_missing = row.loss == "not retrieved" and missing is not None and row.number in missing.answers
    return "not in the corpus" if is_missing else row.loss or ""
