"""Contrastive training step of a dual encoder, as in ORQA and DPR.

The encoder learns to find each question's passage among all passages of the batch.

Legend: N sequences, B questions, P passages, D width.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from pipelines.common.config import TrainingConfig
from pipelines.common.run import Run
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.inputs import pad_rows
from ragqa.models.tower import Tower
from ragqa.objectives import in_batch_nll
from ragqa.training import gradient_cache, parallel
from ragqa.training.meter import count_flops
from ragqa.training.precision import autocast
from ragqa.training.step import apply_gradients

Rows = list[list[int]]
"""Wordpiece ids of each sequence, including [CLS] and [SEP]."""


@dataclass(frozen=True)
class ContrastiveBatch:
    """Questions and passages of a whole batch, the same in all processes."""

    questions: Rows
    """Wordpiece ids of the B questions."""
    passages: Rows
    """Wordpiece ids of the P passages."""
    positive_B: Tensor
    """Position of each question's positive passage in ``passages``."""
    masked_BP: Tensor
    """True for passages that the loss of a question ignores."""

    def pad_passages(self, count: int) -> "ContrastiveBatch":
        """Return the batch with masked passages added, so that processes share it evenly.

        Args:
            count: number of processes; the new number of passages is a multiple of it.
        """
        missing = -len(self.passages) % count
        masked_BM = torch.ones(len(self.questions), missing, dtype=torch.bool)
        return replace(
            self,
            passages=[*self.passages, *(self.passages[0] for _ in range(missing))],
            masked_BP=torch.cat([self.masked_BP, masked_BM], 1),
        )


def contrastive_step(
    run: Run,
    retriever: DualEncoder,
    batch: ContrastiveBatch,
    config: TrainingConfig,
    *,
    chunk: int,
    rate: float,
    **figures: float,
) -> None:
    """Take one optimizer step on a batch and log it.

    Source of the loss: Karpukhin et al. 2020, section 3.2. Vectors are computed in chunks, but the gradient is exact
    (``gradient_cache``).

    Args:
        run: run in progress.
        retriever: dual encoder in training.
        batch: questions and passages.
        config: settings of the recipe, for ``clip`` and ``device``.
        chunk: number of sequences encoded at a time; it limits the memory for a batch of any size.
        rate: learning rate.
        figures: further figures to log.

    Raises:
        BadInput: the processes cannot share the questions or passages evenly.
        NonFiniteLoss: the loss or the gradient is not finite; the weights have not changed.
    """
    run.state.optimizer.zero_grad(set_to_none=True)
    positive_B, masked_BP = batch.positive_B.to(config.device), batch.masked_BP.to(config.device)
    accuracies = []

    def loss(questions_BD: Tensor, passages_PD: Tensor) -> Tensor:
        score_BP = (questions_BD @ passages_PD.T).masked_fill(masked_BP, -torch.inf)
        accuracies.append(score_BP.argmax(-1).eq(positive_B).float().mean().item())
        return in_batch_nll(questions_BD, passages_PD, positive_B, masked=masked_BP)

    towers = ((retriever.questions, batch.questions), (retriever.passages, batch.passages))
    shares = [(tower, parallel.take_share(rows)) for tower, rows in towers]
    value = gradient_cache.backward([encode_chunks(*side, chunk, config.device) for side in shares], loss)
    norm = apply_gradients(run.state.optimizer, rate=rate, clip=config.clip, step=run.step)
    tokens = [(tower, count_encoded(rows, chunk)) for tower, rows in shares]
    run.finish_step(
        nll=value.item(),
        accuracy=accuracies[0],
        **figures,
        lr=rate,
        grad_norm=norm,
        tokens=parallel.sum_over_processes(sum(count for _, count in tokens)),
        flops=sum(count_flops(tower, count) for tower, count in tokens),
    )


def encode_chunks(tower: Tower, rows: Rows, chunk: int, device: str) -> list[Callable[[], Tensor]]:
    """Return functions that compute the vectors [N, D] of each chunk of sequences.

    Args:
        tower: tower that encodes the sequences.
        rows: wordpiece ids of the sequences.
        chunk: number of sequences of a chunk.
        device: device of the tower.
    """
    return [partial(encode_rows, tower, rows[start : start + chunk], device) for start in range(0, len(rows), chunk)]


def encode_rows(tower: Tower, rows: Rows, device: str) -> Tensor:
    """Return the vectors [N, D] of sequences; sequences of similar length are encoded together.

    Arguments are as for ``encode_chunks``.
    """
    vectors, order = [], group_by_length(rows)
    with autocast(device):
        for group in order:
            batch = pad_rows([rows[row] for row in group]).to(device)
            vectors.append(tower(batch.ids_NL, batch.mask_NL))
    places = torch.empty(len(rows), dtype=torch.long)
    places[torch.tensor([row for group in order for row in group])] = torch.arange(len(rows))
    return torch.cat(vectors)[places.to(device)]


def group_by_length(rows: Rows) -> list[list[int]]:
    """Group sequences by length to save padding; return their positions, longest first.

    There are two halves if the longest sequence is more than 1.5 times as long as the longest one of the second half.
    Otherwise there is one group.
    """
    order = sorted(range(len(rows)), key=lambda row: -len(rows[row]))
    half = len(order) // 2 if len(rows[order[0]]) > 1.5 * len(rows[order[len(order) // 2]]) else 0
    return [order[:half], order[half:]] if half else [order]


def count_encoded(rows: Rows, chunk: int) -> int:
    """Return the number of tokens that a tower encodes for sequences, including padding.

    Args:
        rows: wordpiece ids of the sequences.
        chunk: number of sequences that are encoded together, in one or two groups (``group_by_length``).
    """
    chunks = [rows[start : start + chunk] for start in range(0, len(rows), chunk)]
    return sum(len(group) * len(texts[group[0]]) for texts in chunks for group in group_by_length(texts))
