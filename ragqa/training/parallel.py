"""Data-parallel training: processes divide every batch and take each step together.

The loss of a batch is a mean over the items that count. So each process multiplies the mean over its own items by its
share of these items, and gradients are summed. A single process exchanges nothing and gets its own values back.

Legend: n rows of a process.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from ragqa.errors import BadInput

Item = TypeVar("Item")


def get_rank() -> int:
    """Return the number of this process, from 0; a single process has number 0."""
    return dist.get_rank() if count_processes() > 1 else 0


def count_processes() -> int:
    """Return the number of processes that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def is_first_process() -> bool:
    """Return True for the process that evaluates, logs and writes files."""
    return get_rank() == 0


def take_share(items: list[Item]) -> list[Item]:
    """Return this process's part of a batch; parts have equal sizes and are in process order.

    Raises:
        BadInput: the batch cannot be divided evenly.
    """
    size, remainder = divmod(len(items), count_processes())
    if remainder:
        raise BadInput(
            f"a batch of {len(items)} cannot be divided among {count_processes()} processes evenly: change --batch"
        )
    return items[get_rank() * size :][:size]


def compute_loss_weight(counted: Tensor) -> Tensor:
    """Return the weight of this process's mean loss in the loss of the whole batch.

    Args:
        counted: bool, true for this process's items that count.

    Returns:
        A scalar: this process's share of the counted items of all processes.
    """
    if count_processes() == 1:
        return torch.ones((), device=counted.device)
    count = counted.sum().float()
    total = count.clone()
    dist.all_reduce(total)
    return count / total.clamp_min(1)


def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace each gradient by its sum over all processes; a missing gradient counts as zero."""
    if count_processes() == 1:
        return
    buckets: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for parameter in parameters:
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            buckets.setdefault((parameter.device, parameter.dtype), []).append(parameter.grad)
    for gradients in buckets.values():  # one message per bucket is faster than one per parameter
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        for gradient, summed in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(summed.view_as(gradient))


def gather_rows(rows: Tensor) -> tuple[Tensor, slice]:
    """Return the rows of all processes without a graph, and the slice of this process's rows.

    Args:
        rows: ``[n, …]``, with the same n in every process.

    Returns:
        ``[n · processes, …]`` in process order, and the slice.
    """
    if count_processes() == 1:
        return rows.detach(), slice(0, len(rows))
    parts = [torch.empty_like(rows) for _ in range(count_processes())]
    dist.all_gather(parts, rows.detach().contiguous())
    first = get_rank() * len(rows)
    return torch.cat(parts), slice(first, first + len(rows))


def average_over_processes(figures: dict[str, float], weight: Tensor) -> dict[str, float]:
    """Return the weighted mean of each figure over all processes.

    Args:
        figures: means over this process's part of the batch.
        weight: result of ``compute_loss_weight`` in this process.
    """
    if count_processes() == 1:
        return figures
    values = torch.tensor(list(figures.values()), dtype=torch.float64) * float(weight)
    dist.all_reduce(values)
    return dict(zip(figures, values.tolist(), strict=True))


def sum_over_processes(value: int) -> int:
    """Return the sum of a number over all processes, for example the tokens of a step."""
    if count_processes() == 1:
        return value
    total = torch.tensor(value)
    dist.all_reduce(total)
    return int(total)


def broadcast_from_first(value: int | None) -> int | None:
    """Return the first process's ``value`` in every process."""
    if count_processes() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box)
    return box[0]


@contextmanager
def take_turns() -> Iterator[None]:
    """Run the block in one process after the other, in the order of their numbers."""
    for turn in range(count_processes()):
        if turn == get_rank():
            yield
        wait_for_all()


def seed_process(*numbers: int) -> None:
    """Seed torch's random generators with ``numbers`` and the number of this process."""
    torch.manual_seed(int(np.random.SeedSequence([*numbers, get_rank()]).generate_state(1)[0]))


def wait_for_all() -> None:
    """Wait until all processes have reached this call."""
    if count_processes() > 1:
        dist.barrier()
