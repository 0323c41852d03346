"""What every training step ends with."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ragqa.errors import NonFiniteLoss
from ragqa.training import parallel


def optimise(
    loss: Tensor, optimizer: torch.optim.Optimizer, *, rate: float | Sequence[float], clip: float, step: int
) -> float:
    """Backward, clip, step; the norm of the gradient before it was clipped.

    Args:
        loss: a scalar.
        optimizer: of all parameters.
        rate: learning rate, or one for each of the optimizer's groups.
        clip: largest norm of the gradient.
        step: for the error.

    Raises:
        NonFiniteLoss: the loss or the gradient is; the weights have not changed.
    """
    if not math.isfinite(loss.item()):
        raise NonFiniteLoss(f"loss is {loss.item()} at step {step}: lower the learning rate, or look at the batch")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    return apply(optimizer, rate=rate, clip=clip, step=step)


def apply(optimizer: torch.optim.Optimizer, *, rate: float | Sequence[float], clip: float, step: int) -> float:
    """As ``optimise``, once the gradients are there; those of several processes are summed."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    parallel.sum_gradients(parameters)
    norm = float(nn.utils.clip_grad_norm_(parameters, clip))
    if not math.isfinite(norm):
        raise NonFiniteLoss(f"the gradient is {norm} at step {step}: lower the learning rate, or look at the batch")
    rates = [rate] * len(optimizer.param_groups) if isinstance(rate, float | int) else list(rate)
    for group, each in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = each
    optimizer.step()
    return norm


def groups(*modules: nn.Module, decay: float) -> list[dict[str, object]]:
    """Two optimizer groups for each module: weights that decay, then biases and norms, which do not (BERT)."""
    found: list[dict[str, object]] = []
    for module in modules:
        trained = [p for p in module.parameters() if p.requires_grad]
        found.append({"params": [p for p in trained if p.ndim > 1], "weight_decay": decay})
        found.append({"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0})
    return found
