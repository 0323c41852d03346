"""Contrastive batches larger than memory (GradCache, Gao et al. 2021, section 3).

A loss over the vectors of a whole batch needs all of them at once, but not the activations behind them: vectors are
computed in parts without activations, the loss gives each vector's gradient, and the parts are computed again, each
with its own share of it. Where every side is one part of one process, nothing has to be computed twice, and nothing is.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from ragqa.training import parallel

Part = Callable[[], Tensor]
"""Computes some rows [n, D] of a matrix of vectors; called again for its gradient."""


def backward(sides: Sequence[Sequence[Part]], loss: Callable[..., Tensor]) -> Tensor:
    """Add the gradients of ``loss`` to the parameters, as if all vectors had been computed at once.

    Of several processes each computes the loss of all vectors and the gradients of its own; the sum of the processes'
    gradients, ``parallel.sum_gradients``, is that of the whole batch.

    Args:
        sides: for each argument of the loss, the parts whose rows make it up: of this process's share of the batch.
        loss: of one matrix a side, the rows of all processes in their order; a scalar.

    Returns:
        The loss, without a graph.
    """
    if parallel.world()[1] == 1 and all(len(side) == 1 for side in sides):
        value = loss(*(part() for (part,) in sides))
        value.backward()
        return value.detach()
    computed = [[_first(part) for part in side] for side in sides]
    whole = [parallel.gathered(torch.cat([rows for rows, _ in side])) for side in computed]
    leaves = [rows.requires_grad_() for rows, _ in whole]
    value = loss(*leaves)
    value.backward()
    for side, rows_of, leaf, (_, own) in zip(sides, computed, leaves, whole, strict=True):
        assert leaf.grad is not None
        gradients = leaf.grad[own].split([len(rows) for rows, _ in rows_of])
        for part, (_, state), gradient in zip(side, rows_of, gradients, strict=True):
            with _random(state):
                part().backward(gradient)
    return value.detach()


def _first(part: Part) -> tuple[Tensor, tuple[Tensor, Tensor | None]]:
    """Rows of a part, and the random states with which dropout left them."""
    state = torch.get_rng_state(), torch.cuda.get_rng_state() if torch.cuda.is_available() else None
    with torch.no_grad():
        return part(), state


@contextmanager
def _random(state: tuple[Tensor, Tensor | None]) -> Iterator[None]:
    """Random numbers once more from a state, and afterwards on from where they were."""
    cpu, cuda = state
    with torch.random.fork_rng([] if cuda is None else [torch.cuda.current_device()]):
        torch.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state(cuda)
        yield
