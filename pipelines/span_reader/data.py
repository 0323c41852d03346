"""Batches of questions with their passages, for a span reader: each is a pure function of the seed and the step.

Legend: B questions of a batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.common.data_sets import TrainingSet
from pipelines.common.gold_spans import GoldSpans
from pipelines.common.questions import drawn
from pipelines.common.spans import MarkedWindow, ReaderBatch, collate, make_blank_window, mark_windows
from pipelines.span_reader.mining import Mined
from pipelines.span_reader.passages import Beside, Passages, Text
from ragqa.corpus.blocks import Splitter
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training import parallel

POOL = 50
"""Batches that are drawn together and then cut by length, so that little of them is padding."""


@dataclass(frozen=True, kw_only=True)
class Cut:
    """How batches are made of what is drawn."""

    batch: int
    """Questions a step, in all processes."""
    parts: int
    """In which a process takes its share of them."""
    max_tokens: int
    """Wordpieces of question, title and passage."""
    width: int
    """Wordpieces of an answer at most."""


class ReaderBatches:
    """The batches of this process, each in parts."""

    def __init__(
        self,
        sets: Sequence[TrainingSet],
        mined: Sequence[Mined],
        store: PassageStore | None,
        tokenizer: TextTokenizer,
        *,
        shares: Sequence[float],
        split: Splitter,
        beside: Beside,
        cut: Cut,
        seed: int,
    ) -> None:
        """Questions of several sets.

        Args:
            sets: what is asked.
            mined: what an index found for the questions of all sets, in their order; empty where none was asked.
            store: its passages.
            tokenizer: the reader's.
            shares: of the questions, one for each set; empty where each counts by its size.
            split: cuts texts as those of the index were cut.
            beside: see there.
            cut: see there.
            seed: of all that is drawn.
        """
        self.passages = Passages(sets, mined, store, split, beside)
        self._tokenizer, self._cut, self._seed = tokenizer, cut, seed
        self._sizes = [len(each.questions) for each in sets]
        self._counts = apportioned(shares or self._sizes, POOL * cut.batch)
        self._lengths = np.array([self.passages.length(number) for number in range(sum(self._sizes))])
        self._pool: tuple[int, np.ndarray] = -1, np.empty(0)

    def __getitem__(self, step: int) -> list[ReaderBatch]:
        """This process's questions of a step, in parts; raises BadInput where they cannot be shared evenly."""
        slots = parallel.take_share(list(enumerate(self.questions(step))))
        if len(slots) % self._cut.parts:
            raise BadInput(f"{len(slots)} questions cannot be taken in {self._cut.parts} parts: change --accumulate")
        size = len(slots) // self._cut.parts
        return [self._part(step, slots[first : first + size]) for first in range(0, len(slots), size)]

    def questions(self, step: int) -> list[int]:
        """Numbers of the questions of a step, counted over all sets: every epoch of a set has its own order."""
        pool, place = divmod(step, POOL)
        if pool != self._pool[0]:
            self._pool = pool, self._arranged(pool)
        numbers: list[int] = self._pool[1][place].tolist()
        return numbers

    def _arranged(self, pool: int) -> np.ndarray:
        """``[POOL, B]``: a pool's questions by the length of their passages, the batches in any order."""
        firsts = np.cumsum([0, *self._sizes])
        numbers = np.concatenate(
            [
                firsts[n] + np.array(drawn(size, self._seed + n, pool * count, count), np.int64)
                for n, (size, count) in enumerate(zip(self._sizes, self._counts, strict=True))
            ]
        )
        rng = np.random.default_rng([self._seed, 0, pool])
        rng.shuffle(numbers)  # those of one length come in any order
        by_length = numbers[np.argsort(self._lengths[numbers], kind="stable")].reshape(POOL, -1)
        batches: np.ndarray = by_length[rng.permutation(POOL)]
        return batches

    def _part(self, step: int, slots: Sequence[tuple[int, int]]) -> ReaderBatch:
        found: list[tuple[int, MarkedWindow]] = []
        for place, (slot, number) in enumerate(slots):
            rng = np.random.default_rng([self._seed, 1, step, slot])
            right, wrong = self.passages.drawn(number, rng)
            found += [(place, each) for each in self._windows(number, right, wrong, rng)]
        found = found or make_blank_window(
            self._tokenizer, self.passages.asked[slots[0][1]][0].text, self._cut.max_tokens
        )
        return collate(found, self._cut.width)

    def _windows(
        self, number: int, right: list[Text], wrong: list[Text], rng: np.random.Generator
    ) -> list[MarkedWindow]:
        """A window of each passage, as answering cuts them: one with an answer where there is one.

        A passage that is right though no span of it can be marked is not read. It holds "1950s" where the answer is
        "1950", say, or an answer longer than any that the reader gives, and would be taught as one without an answer.
        """
        question, regex = self.passages.asked[number]
        gold = GoldSpans(self._tokenizer, question.answers, regex=regex)
        passages = [*right, *wrong]
        chosen = []
        for row, parts in enumerate(mark_windows(self._tokenizer, question.text, passages, gold, self._cut.max_tokens)):
            among = [part for part in parts if any(last - first < self._cut.width for first, last in part.spans)]
            among = among or (parts if row >= len(right) else [])
            if among:
                chosen.append(among[rng.integers(len(among))])
        return chosen


def apportioned(shares: Sequence[float], total: int) -> list[int]:
    """Whole numbers in proportion to ``shares`` that add up to ``total``: the largest remainders are rounded up."""
    exact = np.asarray(shares, float) / sum(shares) * total
    counts = np.floor(exact).astype(int)
    counts[np.argsort(counts - exact, kind="stable")[: total - counts.sum()]] += 1
    whole: list[int] = counts.tolist()
    return whole
