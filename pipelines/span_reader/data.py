"""Training batches of a span reader; a run that continues gets the same batches.

Legend: B questions of a batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.common.examples.data_sets import TrainingSet
from pipelines.common.examples.gold_spans import GoldSpans
from pipelines.common.examples.passage_sampler import PassageSampler, SampledPassages
from pipelines.common.examples.spans import MarkedWindow, ReaderBatch, collate, make_blank_window, mark_windows
from pipelines.common.questions import draw_stretch
from ragqa.errors import BadInput
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training import parallel

POOL_BATCHES = 50
"""Number of batches whose questions are sampled together and sorted by length, so that there is little padding."""


@dataclass(frozen=True, kw_only=True)
class BatchShape:
    """Sizes of a batch and of its windows."""

    batch: int
    """Number of questions of a step, in all processes together."""
    parts: int
    """Number of parts in which a process computes its share of a batch."""
    max_tokens: int
    """Maximum length of question, title and passage together in wordpieces."""
    max_span: int
    """Maximum length of an answer in wordpieces."""


class ReaderBatches:
    """Batches by the number of the step, from 0.

    A batch is a list of parts, and has only this process's share of the questions.
    """

    def __init__(
        self,
        sets: Sequence[TrainingSet],
        sampler: PassageSampler,
        tokenizer: TextTokenizer,
        shape: BatchShape,
        *,
        shares: Sequence[float],
        seed: int,
    ) -> None:
        """Prepare the batches of several training sets.

        Args:
            sets: training questions.
            sampler: sampler of the passages of a question.
            tokenizer: tokenizer of the reader.
            shape: sizes of a batch and of its windows.
            shares: share of each set among the questions; empty for shares in proportion to the sizes of the sets.
            seed: seed of all random choices.
        """
        self.sampler = sampler
        self._tokenizer, self._shape, self._seed = tokenizer, shape, seed
        self._sizes = [len(data_set.questions) for data_set in sets]
        self._counts = apportion(shares or self._sizes, POOL_BATCHES * shape.batch)
        self._lengths = np.array([sampler.estimate_length(number) for number in range(sum(self._sizes))])
        self._pool: tuple[int, np.ndarray] = -1, np.empty(0)

    def __getitem__(self, step: int) -> list[ReaderBatch]:
        """Return the parts of this process's share of the batch of a step.

        Raises:
            BadInput: the questions cannot be shared evenly among the processes or the parts.
            BadInput, ArtefactError, SlowPattern: as for ``mark_windows``.
        """
        parts = self._shape.parts
        slots = parallel.take_share(list(enumerate(self.get_questions(step))))
        if len(slots) % parts:
            raise BadInput(f"{len(slots)} questions cannot be taken in {parts} parts: change --accumulate")
        size = len(slots) // parts
        return [self._make_part(step, slots[first : first + size]) for first in range(0, len(slots), size)]

    def get_questions(self, step: int) -> list[int]:
        """Return the numbers [B] of a step's questions, counted from 0 over all sets."""
        pool, place = divmod(step, POOL_BATCHES)
        if pool != self._pool[0]:
            self._pool = pool, self._draw_pool(pool)
        numbers: list[int] = self._pool[1][place].tolist()
        return numbers

    def _draw_pool(self, pool: int) -> np.ndarray:
        """Return numbers of questions ``[POOL_BATCHES, B]``; a row has passages of similar length."""
        firsts = np.cumsum([0, *self._sizes])
        numbers = np.concatenate(
            [
                firsts[n] + np.array(draw_stretch(size, self._seed + n, pool * count, count), np.int64)
                for n, (size, count) in enumerate(zip(self._sizes, self._counts, strict=True))
            ]
        )
        rng = np.random.default_rng([self._seed, 0, pool])
        rng.shuffle(numbers)  # otherwise the stable sort would keep questions of equal length in the order of the files
        by_length = numbers[np.argsort(self._lengths[numbers], kind="stable")].reshape(POOL_BATCHES, -1)
        batches: np.ndarray = by_length[rng.permutation(POOL_BATCHES)]
        return batches

    def _make_part(self, step: int, slots: Sequence[tuple[int, int]]) -> ReaderBatch:
        numbered_windows: list[tuple[int, MarkedWindow]] = []
        for place, (slot, number) in enumerate(slots):
            rng = np.random.default_rng([self._seed, 1, step, slot])
            sampled, is_regex = self.sampler.sample(number, rng), self.sampler.questions[number][1]
            numbered_windows += [(place, window) for window in self._choose_windows(sampled, is_regex, rng)]
        if not numbered_windows:
            question, _ = self.sampler.questions[slots[0][1]]
            numbered_windows = make_blank_window(self._tokenizer, question.text, self._shape.max_tokens)
        return collate(numbered_windows, self._shape.max_span)

    def _choose_windows(self, sampled: SampledPassages, is_regex: bool, rng: np.random.Generator) -> list[MarkedWindow]:
        """Choose a random window of each passage, if possible one with a short gold span.

        A span is short if it has at most ``max_span`` wordpieces. A passage with an answer but without a short gold
        span is left out, because the reader would learn that it has no answer: for example, "1950s" for "1950".
        """
        gold = GoldSpans(self._tokenizer, sampled.answers, regex=is_regex)
        passages = [*sampled.positives, *sampled.negatives]
        marked = mark_windows(self._tokenizer, sampled.text, passages, gold, self._shape.max_tokens)
        chosen = []
        for row, windows in enumerate(marked):
            candidates = [window for window in windows if self._has_short_span(window)]
            candidates = candidates or (windows if row >= len(sampled.positives) else [])
            if candidates:
                chosen.append(candidates[rng.integers(len(candidates))])
        return chosen

    def _has_short_span(self, window: MarkedWindow) -> bool:
        return any(last - first < self._shape.max_span for first, last in window.spans)


def apportion(shares: Sequence[float], total: int) -> list[int]:
    """Divide a total into whole numbers in proportion to shares (largest remainder method).

    Args:
        shares: weights of any sum above 0.
        total: sum of the whole numbers.

    Returns:
        A whole number for each share.
    """
    exact = np.asarray(shares, float) / sum(shares) * total
    counts = np.floor(exact).astype(int)
    counts[np.argsort(counts - exact, kind="stable")[: total - counts.sum()]] += 1
    whole: list[int] = counts.tolist()
    return whole
