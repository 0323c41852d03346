"""The rows of a run as columns of numbers: about a hundred bytes a question, whatever its texts are.

Shapes: N questions.
"""

import sys
from array import array
from collections import Counter
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ragqa.evaluation.kinds import BREAKDOWNS
from ragqa.evaluation.rows import Row
from ragqa.metrics import is_pattern
from ragqa.text import words

LOSSES = ("right", "not in the corpus", "not retrieved", "not read", "not chosen")
"""Where answers are lost, in the order of a question's way."""
_NOWHERE = 0


class Tally:
    """Counts rows; every array has a place for each."""

    def __init__(self, rows: Iterable[Row], *, regex: bool = False, missing: set[int] | None = None) -> None:
        """Count ``rows``.

        Args:
            rows: consumed one by one.
            regex: their answers are patterns, which have neither type nor length.
            missing: numbers of the questions whose answers the corpus lacks; None where nobody looked.
        """
        self._columns: dict[str, array] = {name: array(code) for name, code in zip(_COLUMNS, "bbbddiidd", strict=True)}
        self._kinds: dict[str, list[str]] = {
            name: [] for name in BREAKDOWNS if not (regex and name.startswith("answer"))
        }
        self.losses: Counter[str] = Counter()
        self.blank = self.invalid = self.no_prediction = self.with_hits = 0
        """Questions with a gold answer of no token, with an invalid pattern, without a prediction, with hits."""
        for row in rows:
            self._add(row, regex, missing)

    def __len__(self) -> int:
        return len(self._columns["em"])

    def column(self, name: str) -> npt.NDArray[np.float64]:
        """[N] numbers: em, answerable and gold_known 0 or 1; f1, confidence and seconds NaN where there is none."""
        return np.asarray(self._columns[name], np.float64)

    def ranks(self, name: str) -> list[int | None]:
        """[N] places from 1, None where nothing was found: ``rank`` of an answer, ``gold_rank``."""
        return [rank or None for rank in self._columns[name]]

    def kinds(self) -> dict[str, npt.NDArray[np.str_]]:
        """[N] kinds for each breakdown."""
        return {name: np.asarray(values) for name, values in self._kinds.items()}

    def _add(self, row: Row, regex: bool, missing: set[int] | None) -> None:
        values = (
            row.em,
            bool(row.answers),
            row.gold_known,
            row.f1,
            row.confidence,
            row.rank or _NOWHERE,
            row.gold_rank or _NOWHERE,
            row.retrieve_seconds,
            row.read_seconds,
        )
        for column, value in zip(self._columns.values(), values, strict=True):
            column.append(np.nan if value is None else value)
        for name, kinds in self._kinds.items():
            kinds.append(sys.intern(BREAKDOWNS[name](row.asked)))
        lost = row.loss == "not retrieved" and missing is not None and row.number in missing
        self.losses["not in the corpus" if lost else row.loss] += 1
        self.blank += any(not answer.strip() if regex else not words(answer) for answer in row.answers)
        self.invalid += regex and not all(map(is_pattern, row.answers))
        self.no_prediction += row.prediction is None
        self.with_hits += bool(row.hits)


_COLUMNS = (
    "em",
    "answerable",
    "gold_known",
    "f1",
    "confidence",
    "rank",
    "gold_rank",
    "retrieve_seconds",
    "read_seconds",
)
