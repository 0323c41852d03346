"""Data-parallel training: each process has a share of every batch, and together they take the step of one.

A loss is a mean over what counts in the whole batch, so a process weighs its own mean by its share of that, and
gradients are summed. Without ``torch.distributed`` everything here is the identity.

Legend: W processes.
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


def world() -> tuple[int, int]:
    """Number of this process, and of all: (0, 1) where it is alone."""
    if not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    return dist.get_rank(), dist.get_world_size()


def share(items: list[Item]) -> list[Item]:
    """This process's part of a batch: as many as the others have, in order of the processes.

    Raises:
        BadInput: the batch cannot be shared evenly.
    """
    rank, count = world()
    if len(items) % count:
        raise BadInput(f"a batch of {len(items)} cannot be shared by {count} processes evenly: change --batch")
    size = len(items) // count
    return items[rank * size : (rank + 1) * size]


def weight(counted: Tensor) -> Tensor:
    """This process's share of all that counts: with it a mean over its own becomes its part of the mean over all."""
    if world()[1] == 1:
        return torch.ones((), device=counted.device)
    own = counted.sum().float()
    total = own.clone()
    dist.all_reduce(total)
    return own / total.clamp_min(1)


def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Have every process hold the sum of all gradients; a parameter without one somewhere counts as zero there."""
    if world()[1] == 1:
        return
    learning = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in learning:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    alike: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for parameter in learning:
        assert parameter.grad is not None
        alike.setdefault((parameter.device, parameter.dtype), []).append(parameter.grad)
    for gradients in alike.values():  # one message instead of one a parameter
        together = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(together)
        for gradient, summed in zip(gradients, together.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(summed.view_as(gradient))


def gathered(rows: Tensor) -> tuple[Tensor, slice]:
    """The rows [n, …] of all processes, in their order, without a graph; and where this process's own are."""
    rank, count = world()
    if count == 1:
        return rows.detach(), slice(0, len(rows))
    parts = [torch.empty_like(rows) for _ in range(count)]
    dist.all_gather(parts, rows.detach().contiguous())
    return torch.cat(parts), slice(rank * len(rows), (rank + 1) * len(rows))


def mean(values: dict[str, float], weighing: Tensor) -> dict[str, float]:
    """Figures of all processes, each weighed by what it counts, so that they are those of the whole batch."""
    if world()[1] == 1:
        return values
    together = torch.tensor(list(values.values()), dtype=torch.float64) * float(weighing)
    dist.all_reduce(together)
    return dict(zip(values, together.tolist(), strict=True))


def total(value: int) -> int:
    """Sum of what the processes have, as of the tokens of a step."""
    if world()[1] == 1:
        return value
    together = torch.tensor(value)
    dist.all_reduce(together)
    return int(together)


def told(value: int | None) -> int | None:
    """What the first process says."""
    if world()[1] == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box)
    return box[0]


@contextmanager
def in_turn() -> Iterator[None]:
    """One process after the other goes through the block, the first of them first: others find what it has made."""
    rank, size = world()
    for turn in range(size):
        if turn == rank:
            yield
        wait()


def seed(*numbers: int) -> None:
    """Let torch's random numbers in this process, such as dropout's, be a function of ``numbers`` and the process."""
    torch.manual_seed(int(np.random.SeedSequence([*numbers, world()[0]]).generate_state(1)[0]))


def wait() -> None:
    """Until all processes are here."""
    if world()[1] > 1:
        dist.barrier()
