"""A step of a dual encoder that tells each question's passage from the others of a batch, as ORQA and DPR learn.

Legend: N sequences, B questions, P passages, D width.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

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
"""Wordpieces of some sequences, [CLS] and [SEP] among them."""


class Contrasted(Protocol):
    """Settings of such a step."""

    @property
    def chunk(self) -> int:
        """Sequences that are encoded at a time: memory is bound by them, not by the batch."""
        ...

    @property
    def clip(self) -> float:
        """Largest norm of the gradient."""
        ...

    @property
    def device(self) -> str: ...


def contrast(
    run: Run,
    retriever: DualEncoder,
    sides: tuple[Rows, Rows],
    positive_B: Tensor,
    masked_BP: Tensor,
    config: Contrasted,
    *,
    rate: float,
    **told: float,
) -> None:
    """One optimizer step; raises NonFiniteLoss before the weights change.

    Args:
        run: whose step it is.
        retriever: what learns.
        sides: questions [B] and passages [P] of all processes, which share them.
        positive_B: place of each question's passage.
        masked_BP: passages that are no negatives of a question, though not its own.
        config: see there.
        rate: the learning rate.
        told: what else is logged.
    """
    run.state.optimizer.zero_grad(set_to_none=True)
    positive_B, masked_BP = positive_B.to(config.device), masked_BP.to(config.device)
    right = []

    def loss(questions_BD: Tensor, passages_PD: Tensor) -> Tensor:
        score_BP = (questions_BD @ passages_PD.T).masked_fill(masked_BP, -torch.inf)
        right.append(score_BP.argmax(-1).eq(positive_B).float().mean().item())
        return in_batch_nll(questions_BD, passages_PD, positive_B, masked=masked_BP)

    towers = zip((retriever.questions, retriever.passages), sides, strict=True)
    shares = [(tower, parallel.take_share(rows)) for tower, rows in towers]
    value = gradient_cache.backward([parts(*side, config.chunk, config.device) for side in shares], loss)
    norm = apply_gradients(run.state.optimizer, rate=rate, clip=config.clip, step=run.step)
    tokens = [(tower, encoded(rows, config.chunk)) for tower, rows in shares]
    run.stepped(
        nll=value.item(),
        accuracy=right[0],
        **told,
        lr=rate,
        grad_norm=norm,
        tokens=parallel.sum_over_processes(sum(count for _, count in tokens)),
        flops=sum(count_flops(tower, count) for tower, count in tokens),
    )


def parts(tower: Tower, rows: Rows, chunk: int, device: str) -> list[Callable[[], Tensor]]:
    """Computations of the vectors of ``rows``, in their order, ``chunk`` at a time."""
    return [partial(vectors, tower, rows[at : at + chunk], device) for at in range(0, len(rows), chunk)]


def vectors(tower: Tower, rows: Rows, device: str) -> Tensor:
    """``[N, D]`` of some sequences; the longest go through first and apart, so that little is padding."""
    found, order = [], alike(rows)
    with autocast(device):
        for some in order:
            batch = pad_rows([rows[row] for row in some]).to(device)
            found.append(tower(batch.ids_NL, batch.mask_NL))
    places = torch.empty(len(rows), dtype=torch.long)
    places[torch.tensor([row for some in order for row in some])] = torch.arange(len(rows))
    return torch.cat(found)[places.to(device)]


def alike(rows: Rows) -> list[list[int]]:
    """Places of the sequences that go through a tower together: longest first, in two halves if that spares padding."""
    order = sorted(range(len(rows)), key=lambda row: -len(rows[row]))
    half = len(order) // 2 if len(rows[order[0]]) > 1.5 * len(rows[order[len(order) // 2]]) else 0
    return [order[:half], order[half:]] if half else [order]


def encoded(rows: Rows, chunk: int) -> int:
    """Tokens that ``parts`` has a tower encode, padding included."""
    chunks = [rows[at : at + chunk] for at in range(0, len(rows), chunk)]
    return sum(len(some) * len(texts[some[0]]) for texts in chunks for some in alike(texts))
