"""Optimizer step and parameter groups."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ragqa.errors import NonFiniteLoss
from ragqa.training import parallel


def optimise(
    loss: Tensor, optimizer: torch.optim.Optimizer, *, rate: float | Sequence[float], clip: float, step: int
) -> float:
    """Compute the gradients of a scalar loss, and take an optimizer step with them.

    Other arguments and returned value: as for ``apply_gradients``.

    Raises:
        NonFiniteLoss: the loss or a gradient is not finite; the weights have not changed.
    """
    if not math.isfinite(loss.item()):
        raise NonFiniteLoss(f"the loss is {loss.item()} at step {step}: lower the learning rate, or look at the batch")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    return apply_gradients(optimizer, rate=rate, clip=clip, step=step)


def apply_gradients(
    optimizer: torch.optim.Optimizer, *, rate: float | Sequence[float], clip: float, step: int
) -> float:
    """Sum the gradients over all processes, clip them and step the optimizer.

    Args:
        optimizer: optimizer of all parameters.
        rate: learning rate, or a learning rate for each of the optimizer's groups.
        clip: maximum norm of the gradient.
        step: number of the step, for the error message.

    Returns:
        The norm of the gradient before clipping.

    Raises:
        NonFiniteLoss: a gradient is not finite; the weights have not changed.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    parallel.sum_gradients(parameters)
    norm = float(nn.utils.clip_grad_norm_(parameters, clip))
    if not math.isfinite(norm):
        raise NonFiniteLoss(f"the gradient is {norm} at step {step}: lower the learning rate, or look at the batch")
    rates = rate if isinstance(rate, Sequence) else [rate] * len(optimizer.param_groups)
    for group, group_rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = group_rate
    optimizer.step()
    return norm


def group_parameters(*modules: nn.Module, decay: float) -> list[dict[str, object]]:
    """Return parameter groups for an optimizer, with weight decay for matrices only.

    Args:
        modules: modules; their frozen parameters are left out.
        decay: weight decay of matrices.

    Returns:
        Two groups per module: first its matrices, then its biases and norms.
    """
    groups: list[dict[str, object]] = []
    for module in modules:
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        groups.append({"params": [p for p in trained if p.ndim > 1], "weight_decay": decay})
        groups.append({"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0})
    return groups
