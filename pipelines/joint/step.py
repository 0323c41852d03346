"""Optimizer step on a weighted sum of losses, each active for a part of the steps."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from pipelines.common.config import TrainingConfig
from pipelines.common.learning_rates import LearningRates, compute_rate, limit_warmup
from pipelines.common.run import BatchLoss, Run
from ragqa.training.health import Health

MASKED, WRITTEN, MARKED = "", "gen_", "span_"
"""Prefixes of the losses in the log: masked words, written answers and marked answers."""


@dataclass(frozen=True)
class WeightedLoss:
    """Loss of joint training, with its weight and the steps in which it is active."""

    prefix: str
    """Prefix of the figures of the loss in the log."""
    weight: float
    """Weight of the loss in the sum."""
    begins: int
    """First step with this loss."""
    ends: int
    """Step after the last step with this loss."""
    module: nn.Module
    """Module that only this loss trains."""
    compute: Callable[[int], BatchLoss]
    """Function from the number of a step to the loss of its batch."""
    health: Health | None = None
    """Monitor of the figures, which raises alarms; None without a monitor."""

    @property
    def health_name(self) -> str:
        """Key of ``health`` in a checkpoint."""
        return f"{self.prefix}health"

    def is_active(self, step: int) -> bool:
        """Return True if the loss counts in a step."""
        return self.weight > 0 and self.begins <= step < self.ends

    def check_step(
        self, step: int, figures: dict[str, dict[str, float]], first_question_step: int, frozen: int
    ) -> list[str]:
        """Record the figures of a step if the loss is active, and return new alarms.

        Args:
            step: number of the step.
            figures: figures of the step, by the prefixes of the active losses.
            first_question_step: first step with questions; before it, the reader of masked words must use passages.
            frozen: number of steps before the retriever learns.
        """
        if self.health is None or self.prefix not in figures:
            return []
        if self.prefix != MASKED:
            return self.health.check_step(figures[self.prefix])
        alarms = self.health.check_step(figures[self.prefix], retriever_steps=step + 1 - frozen)
        return [*alarms, *self.health.check_passages_used()] if step + 1 == first_question_step else alarms


def compute_rates(step: int, losses: list[WeightedLoss], rates: LearningRates) -> list[float]:
    """Return the learning rates of a step for the optimizer's parameter groups.

    Each module has two groups: with and without weight decay. The rate of an inactive loss is 0.

    Args:
        step: number of the step, from 0.
        losses: all losses.
        rates: learning rates of the retriever and of all readers.

    Returns:
        Two rates for the retriever, then two rates for the module of each loss.
    """
    warmup = limit_warmup(rates.warmup, 1000, rates.steps)
    values = rates.compute_retriever_rates(step)
    for loss in losses:
        total, rate = loss.ends - loss.begins, 0.0
        if loss.is_active(step):
            rate = compute_rate(step - loss.begins, peak=rates.reader, warmup=warmup, total=total)
        values += [rate] * 2
    return values


def train_step(
    run: Run,
    retriever: nn.Module,
    losses: list[WeightedLoss],
    config: TrainingConfig,
    rates: LearningRates,
    *,
    staleness: int,
) -> dict[str, dict[str, float]]:
    """Take an optimizer step on the weighted sum of all active losses, and log it.

    Args:
        run: run in progress.
        retriever: module that all losses train.
        losses: all losses, active or not.
        config: settings of the run.
        rates: learning rates of retriever and readers.
        staleness: number of steps that the retriever has learned since the snapshot of the index.

    Returns:
        The figures of each active loss, by its prefix.

    Raises:
        BadInput: a loss cannot make its batch.
        NonFiniteLoss: the loss or the gradient is not finite; the weights have not changed.
    """
    retriever.requires_grad_(run.step >= rates.frozen)
    for loss in losses:
        loss.module.requires_grad_(loss.is_active(run.step))
    active = [loss for loss in losses if loss.is_active(run.step)]
    batches = [loss.compute(run.step) for loss in active]
    figures = {loss.prefix: batch.figures for loss, batch in zip(active, batches, strict=True)}
    total = BatchLoss(
        torch.stack([loss.weight * batch.loss for loss, batch in zip(active, batches, strict=True)]).sum(),
        {prefix + name: value for prefix, row in figures.items() for name, value in row.items()},
        sum(batch.tokens for batch in batches),
        sum(batch.flops for batch in batches),
    )
    run.take_step(total, rate=compute_rates(run.step, losses, rates), clip=config.clip, staleness=staleness)
    return figures
