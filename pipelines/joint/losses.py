"""Losses that are learned together: each with its weight and its steps, their gradients met in one optimizer step."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from pipelines.common.config import TrainingConfig
from pipelines.common.learning_rates import LearningRates
from pipelines.common.run import BatchLoss, Run
from ragqa.training import parallel
from ragqa.training.health import Health
from ragqa.training.schedule import warmup_linear, warmup_steps
from ragqa.training.step import optimise


@dataclass(frozen=True)
class Part:
    """One of the losses."""

    prefix: str
    """Of its figures in the log."""
    weight: float
    begins: int
    ends: int
    """The first step without it."""
    module: nn.Module
    """What it alone trains."""
    learn: Callable[[int], BatchLoss]
    """The batch of a step."""
    health: Health | None = None

    @property
    def name(self) -> str:
        """Of its health in a checkpoint."""
        return f"{self.prefix}health"

    def due(self, step: int) -> bool:
        """Whether it has weight in a step."""
        return self.weight > 0 and self.begins <= step < self.ends

    def alarms(self, step: int, rows: dict[str, dict[str, float]], asked_from: int, waits: int) -> list[str]:
        """New alarms of a step, and where questions are asked from the next one on.

        ``waits``: steps before the retriever learns; whether that is in vain, masked words tell.
        """
        if self.health is None or self.prefix not in rows:
            return []
        if self.prefix:
            return self.health.check_step(rows[self.prefix])
        lines = self.health.check_step(rows[self.prefix], retriever_steps=step + 1 - waits)
        return [*lines, *self.health.check_passages_used()] if step + 1 == asked_from else lines


def rates_at(step: int, parts: list[Part], rates: LearningRates) -> list[float]:
    """Return the rates of the retriever's two parameter groups, and of two for each part."""
    warmup = warmup_steps(rates.warmup, 1000, rates.steps)
    found = rates.retriever_at(step)
    for part in parts:
        total, rate = part.ends - part.begins, 0.0
        if part.due(step):
            rate = warmup_linear(step - part.begins, peak=rates.reader, warmup=min(warmup, total), total=total)
        found += [rate] * 2
    return found


def train_step(
    run: Run, retriever: nn.Module, parts: list[Part], config: TrainingConfig, rates: LearningRates, *, staleness: int
) -> dict[str, dict[str, float]]:
    """One optimizer step; the figures of each part. Raises NonFiniteLoss before the weights change."""
    retriever.requires_grad_(run.step >= rates.frozen)
    for part in parts:
        part.module.requires_grad_(part.due(run.step))
    taught = {part.prefix: (part.weight, part.learn(run.step)) for part in parts if part.due(run.step)}
    loss = torch.stack([weight * each.loss for weight, each in taught.values()]).sum()
    rate = rates_at(run.step, parts, rates)
    norm = optimise(loss, run.state.optimizer, rate=rate, clip=config.clip, step=run.step)
    rows = {prefix: each.figures for prefix, (_, each) in taught.items()}
    run.finish_step(
        **{prefix + name: value for prefix, row in rows.items() for name, value in row.items()},
        grad_norm=norm,
        staleness=staleness,
        tokens=parallel.sum_over_processes(sum(each.tokens for _, each in taught.values())),
        flops=sum(each.flops for _, each in taught.values()),
    )
    return rows
