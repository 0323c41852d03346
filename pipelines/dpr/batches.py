"""Batches of questions with their passages and hard negatives for a dual encoder."""

from collections.abc import Sequence

import numpy as np
import torch

from pipelines.common.contrastive import ContrastiveBatch
from pipelines.common.examples.retrieval_examples import RetrievalExample
from pipelines.common.tokenized_passages import TokenizedPassages
from ragqa.errors import BadInput


class RetrievalBatches:
    """Batches of retrieval examples, indexed by step; seed and step determine a batch.

    Each passage occurs once in a batch, so that no passage is its own negative. The loss of a question ignores relevant
    passages other than the positive.
    """

    def __init__(
        self,
        examples: Sequence[RetrievalExample],
        blocks: TokenizedPassages,
        *,
        batch: int,
        hard: int,
        max_query: int,
        max_block: int,
        seed: tuple[int, int],
    ) -> None:
        """Prepare the batches.

        Args:
            examples: questions with positives and negatives.
            blocks: wordpieces of the passages of the corpus.
            batch: number of questions of a batch.
            hard: number of hard negatives of each question.
            max_query: largest length of a question in wordpieces, including [CLS] and [SEP].
            max_block: largest length of a passage in wordpieces, including [CLS] and [SEP].
            seed: seed of the run, and number of the round, from 1.

        Raises:
            BadInput: there are fewer examples than questions of a batch.
        """
        if len(examples) < batch:
            raise BadInput(f"a batch holds {batch} questions, and {len(examples)} can be trained on: lower --batch")
        self.examples, self._blocks, self._batch, self._hard = examples, blocks, batch, hard
        self._max_query, self._max_block, self._seed = max_query, max_block, seed
        positives = (positive for example in examples for positive in example.positives)
        texts = dict.fromkeys(positive for positive in positives if isinstance(positive, str))
        self._texts = list(texts)
        self._number_of = {text: len(blocks) + n for n, text in enumerate(texts)}
        self.per_epoch = len(examples) // batch
        """Number of steps of an epoch. An epoch leaves out the questions that do not fill a batch."""

    def __getitem__(self, step: int) -> ContrastiveBatch:
        """Return the batch of a step, the same in all processes."""
        epoch, position = divmod(step, self.per_epoch)
        order = np.random.default_rng([*self._seed, epoch]).permutation(len(self.examples))
        rng = np.random.default_rng([*self._seed, epoch, position])
        chosen = [self.examples[n] for n in order[position * self._batch : (position + 1) * self._batch]]
        return self._collate(chosen, [self._sample(example, rng) for example in chosen])

    def _sample(self, example: RetrievalExample, rng: np.random.Generator) -> list[int]:
        positives, pools = self._number_positives(example), [rows for rows in example.negatives if len(rows)]
        count = self._hard if pools else 0
        hard = [int(rng.choice(pools[rng.integers(len(pools))])) for _ in range(count)]
        return [positives[rng.integers(len(positives))], *hard]

    def _number_positives(self, example: RetrievalExample) -> list[int]:
        """Return the numbers of the positives: rows, or numbers after the last row for texts."""
        return [self._number_of[positive] if isinstance(positive, str) else positive for positive in example.positives]

    def _collate(self, examples: list[RetrievalExample], passage_numbers: list[list[int]]) -> ContrastiveBatch:
        """Make a batch of examples from the numbers of their passages, the positive first."""
        numbers = [number for passages in passage_numbers for number in passages]
        texts = [self._add_marks(self._load_ids(number), self._max_block) for number in numbers]
        different = {text: n for n, text in enumerate(dict.fromkeys(texts))}
        column = np.array([different[text] for text in texts])
        positive = column[np.cumsum([0, *map(len, passage_numbers)])[:-1]]
        masked = np.zeros((len(examples), len(different)), bool)
        for row, example in enumerate(examples):
            masked[row, column[np.isin(numbers, [*example.known, *self._number_positives(example)])]] = True
            masked[row, positive[row]] = False
        questions = self._blocks.tokenizer.tokenize_batch([example.question.text for example in examples])
        return ContrastiveBatch(
            [list(self._add_marks(pieces.ids, self._max_query)) for pieces in questions],
            [list(text) for text in different],
            torch.from_numpy(positive),
            torch.from_numpy(masked),
        )

    def _load_ids(self, number: int) -> list[int]:
        if number < len(self._blocks):
            return self._blocks.ids(number, self._max_block)
        return self._blocks.tokenizer.tokenize(self._texts[number - len(self._blocks)]).ids

    def _add_marks(self, ids: list[int], limit: int) -> tuple[int, ...]:
        first, last = self._blocks.tokenizer.special_ids
        return (first, *ids[: limit - 2], last)
