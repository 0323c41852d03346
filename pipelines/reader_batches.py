"""Batches of questions with their passages, for a span reader: each is a pure function of the seed and the step.

Legend: B questions of a batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.asked import drawn
from pipelines.gold_spans import GoldSpans
from pipelines.pairs import titled_golds
from pipelines.reader_examples import DataSet
from pipelines.reader_mining import NOTHING, Mined
from pipelines.reading import Marked, ToRead, blank, collated, marked
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.metrics import has_answer
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training import parallel
from ragqa.types import Question

POOL = 50
"""Batches that are drawn together and then cut by length, so that little of them is padding."""
Text = tuple[str, str]
"""Title and text of a passage."""


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What a question is read beside."""

    positives: int
    """Passages that hold an answer: gold ones first, then those that were found."""
    negatives: float
    """Passages that hold none, on average."""
    hard: float
    """Share of these that were found for the question; the others are drawn at random."""
    untitled: float
    """Share of the passages that are read without their title."""


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
        sets: Sequence[DataSet],
        mined: Sequence[Mined],
        store: PassageStore | None,
        tokenizer: TextTokenizer,
        *,
        shares: Sequence[float],
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
            beside: see there.
            cut: see there.
            seed: of all that is drawn.
        """
        self._asked = [(question, each.source.regex) for each in sets for question in each.questions]
        self._mined = mined or [NOTHING] * len(self._asked)
        self._golds = [titled_golds(question) for question, _ in self._asked]
        self._store, self._tokenizer = store, tokenizer
        self._sizes = [len(each.questions) for each in sets]
        self._counts = apportioned(shares or self._sizes, POOL * cut.batch)
        self._beside, self._cut, self._seed = beside, cut, seed
        self._lengths = np.array([self._length(number) for number in range(len(self._asked))])
        self._texts = [gold for golds in self._golds for gold in golds]
        self._pool: tuple[int, np.ndarray] = -1, np.empty(0)

    def __getitem__(self, step: int) -> list[ToRead]:
        """This process's questions of a step, in parts; raises BadInput where they cannot be shared evenly."""
        slots = parallel.share(list(enumerate(self.questions(step))))
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

    def _length(self, number: int) -> int:
        """Characters of the passage that a question is probably read in."""
        if self._golds[number]:
            return len(self._golds[number][0][1])
        found = self._mined[number].positives
        return len(self._store[int(found[0])].text) if self._store and len(found) else 0

    def _part(self, step: int, slots: Sequence[tuple[int, int]]) -> ToRead:
        found: list[tuple[int, Marked]] = []
        for place, (slot, number) in enumerate(slots):
            rng = np.random.default_rng([self._seed, 1, step, slot])
            question, regex = self._asked[number]
            passages = self._untitled(self.passages(number, rng), rng)
            found += [(place, each) for each in self._windows(question, regex, passages, rng)]
        found = found or blank(self._tokenizer, self._asked[slots[0][1]][0].text, self._cut.max_tokens)
        return collated(found, self._cut.width)

    def passages(self, number: int, rng: np.random.Generator) -> list[Text]:
        """What a question is read beside, passages that hold an answer first."""
        question, regex = self._asked[number]
        mined, golds, wanted = self._mined[number], self._golds[number], self._beside
        negatives = int(wanted.negatives) + int(rng.random() < wanted.negatives % 1)
        hard = min(int(rng.binomial(negatives, wanted.hard)), len(mined.negatives))
        right = [golds[at] for at in _some(len(golds), wanted.positives, rng)]
        rows = mined.positives[_some(len(mined.positives), wanted.positives - len(right), rng)].tolist()
        rows += mined.negatives[_some(len(mined.negatives), hard, rng)].tolist()
        others = [self._any(rng) for _ in range(negatives - hard)]
        others = [each for each in others if not _holds(each, question, regex)]
        return [*right, *(self._text(row) for row in rows), *others]

    def _any(self, rng: np.random.Generator) -> Text:
        """A passage at random: of the index, or else somebody's gold one."""
        if self._store is None:
            return self._texts[rng.integers(len(self._texts))]
        return self._text(int(self._store.live_rows(rng.integers(self._store.live))))

    def _text(self, row: int) -> Text:
        assert self._store is not None
        passage = self._store[row]
        return passage.title, passage.text

    def _untitled(self, passages: list[Text], rng: np.random.Generator) -> list[Text]:
        return [("" if rng.random() < self._beside.untitled else title, text) for title, text in passages]

    def _windows(self, question: Question, regex: bool, passages: list[Text], rng: np.random.Generator) -> list[Marked]:
        """A window of each passage, as answering cuts them: one with an answer where there is one."""
        gold = GoldSpans(self._tokenizer, question.answers, regex=regex)
        chosen = []
        for parts in marked(self._tokenizer, question.text, passages, gold, self._cut.max_tokens):
            if among := [part for part in parts if part.spans] or parts:
                chosen.append(among[rng.integers(len(among))])
        return chosen


def apportioned(shares: Sequence[float], total: int) -> list[int]:
    """Whole numbers in proportion to ``shares`` that add up to ``total``: the largest remainders are rounded up."""
    exact = np.asarray(shares, float) / sum(shares) * total
    counts = np.floor(exact).astype(int)
    counts[np.argsort(counts - exact, kind="stable")[: total - counts.sum()]] += 1
    whole: list[int] = counts.tolist()
    return whole


def _some(count: int, wanted: int, rng: np.random.Generator) -> list[int]:
    """``wanted`` places of ``count``, or all, drawn without replacement."""
    some: list[int] = rng.permutation(count)[: max(0, wanted)].tolist()
    return some


def _holds(passage: Text, question: Question, regex: bool) -> bool:
    """By the rule by which passages are mined."""
    return has_answer(passage[1], question.answers, regex=regex)
