"""Batches of questions with their passages and hard negatives, for a dual encoder.

Legend: B questions, P different passages.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pipelines.common.negatives import RetrievalExample
from pipelines.common.tokenized_passages import Blocks
from ragqa.errors import BadInput


@dataclass(frozen=True)
class Batch:
    """Some questions and their passages, as wordpieces with [CLS] and [SEP], row by row."""

    questions: list[list[int]]
    passages: list[list[int]]
    """Each once, whoever it came with: none is its own negative."""
    positive_B: Tensor
    """Row of each question's passage."""
    masked_BP: Tensor
    """Passages that are known to be right for a question as well, and so are no negatives of it."""

    def evenly(self, count: int) -> "Batch":
        """The same with some passages once more, as nobody's negatives, so that ``count`` processes can share them."""
        more = -len(self.passages) % count
        unseen_BM = torch.ones(len(self.questions), more, dtype=torch.bool)
        return replace(
            self,
            passages=[*self.passages, *(self.passages[0] for _ in range(more))],
            masked_BP=torch.cat([self.masked_BP, unseen_BM], 1),
        )


class PairBatches:
    """The batch of a step is a pure function of (seed, step)."""

    def __init__(
        self,
        pairs: Sequence[RetrievalExample],
        blocks: Blocks,
        *,
        batch: int,
        hard: int,
        max_query: int,
        max_block: int,
        seed: tuple[int, int],
    ) -> None:
        """Batches of ``batch`` questions, each with a positive and ``hard`` negatives.

        Raises:
            BadInput: there are fewer pairs than a batch holds.
        """
        if len(pairs) < batch:
            raise BadInput(f"a batch holds {batch} questions, and {len(pairs)} can be trained on: lower --batch")
        self._pairs, self._blocks, self._batch, self._hard = pairs, blocks, batch, hard
        self._max_query, self._max_block, self._seed = max_query, max_block, seed
        texts = dict.fromkeys(each for pair in pairs for each in pair.positives if isinstance(each, str))
        self._texts = list(texts)
        self._number = {text: len(blocks) + n for n, text in enumerate(texts)}
        self.per_epoch = len(pairs) // batch
        """Steps in which every question comes up once, but for a rest that is another one in every epoch."""

    def __getitem__(self, step: int) -> Batch:
        epoch, at = divmod(step, self.per_epoch)
        order = np.random.default_rng([*self._seed, epoch]).permutation(len(self._pairs))
        rng = np.random.default_rng([*self._seed, epoch, at])
        chosen = [self._pairs[n] for n in order[at * self._batch : (at + 1) * self._batch]]
        return self._collated(chosen, [self._drawn(pair, rng) for pair in chosen])

    def _drawn(self, pair: RetrievalExample, rng: np.random.Generator) -> list[int]:
        """Numbers of a positive and then of hard negatives, from each who found some as often."""
        own, pools = self._numbers(pair), [rows for rows in pair.negatives if len(rows)]
        hard = [int(rng.choice(pools[rng.integers(len(pools))])) for _ in range(self._hard if pools else 0)]
        return [own[rng.integers(len(own))], *hard]

    def _numbers(self, pair: RetrievalExample) -> list[int]:
        """Of a pair's positives: rows, and beyond the last of them the gold passages that the corpus does not hold."""
        return [self._number[each] if isinstance(each, str) else each for each in pair.positives]

    def _collated(self, chosen: list[RetrievalExample], drawn: list[list[int]]) -> Batch:
        """``drawn``: for each pair the numbers of its passages, the positive first."""
        numbers = [number for each in drawn for number in each]
        texts = [self._marked(self._ids(number), self._max_block) for number in numbers]
        different = {text: n for n, text in enumerate(dict.fromkeys(texts))}
        column = np.array([different[text] for text in texts])
        positive = column[np.cumsum([0, *map(len, drawn)])[:-1]]
        masked = np.zeros((len(chosen), len(different)), bool)
        for row, pair in enumerate(chosen):
            masked[row, column[np.isin(numbers, [*pair.known, *self._numbers(pair)])]] = True
            masked[row, positive[row]] = False
        asked = self._blocks.tokenizer.many([pair.question.text for pair in chosen])
        return Batch(
            [list(self._marked(pieces.ids, self._max_query)) for pieces in asked],
            [list(text) for text in different],
            torch.from_numpy(positive),
            torch.from_numpy(masked),
        )

    def _ids(self, number: int) -> list[int]:
        if number < len(self._blocks):
            return self._blocks.ids(number, self._max_block)
        return self._blocks.tokenizer.pieces(self._texts[number - len(self._blocks)]).ids

    def _marked(self, ids: list[int], limit: int) -> tuple[int, ...]:
        """[CLS] … [SEP], cut to ``limit``."""
        first, last = self._blocks.tokenizer.special
        return (first, *ids[: limit - 2], last)
