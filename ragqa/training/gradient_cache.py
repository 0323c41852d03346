"""Gradients of contrastive batches that exceed memory (GradCache, Gao et al. 2021).

A loss over the vectors of a whole batch needs all vectors at once, but not their activations. So the vectors are
computed in chunks without activations, and the loss gives the gradient of each vector. Then each chunk is computed
again to propagate the gradients of its vectors. A single process with one chunk per side computes each chunk once.

Legend: n rows of a chunk, D width.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ragqa.training import parallel

ChunkEncoder = Callable[[], Tensor]
"""Function that returns the vectors [n, D] of a chunk; it is called again for the gradient."""


def backward(sides: Sequence[Sequence[ChunkEncoder]], loss: Callable[..., Tensor]) -> Tensor:
    """Compute the gradients of ``loss`` in chunks, and add them to the weights' ``grad``.

    The result is the same as without chunks. With several processes, each process computes the loss over all vectors,
    but only the gradients of its own vectors. The sum of the gradients over all processes (``parallel.sum_gradients``)
    is the gradient of the whole batch.

    Args:
        sides: encoders of the chunks for each argument of the loss, for this process's share of the batch.
        loss: function from one matrix per side, with the rows of all processes in process order, to a scalar.

    Returns:
        The loss, a scalar without a graph.
    """
    if parallel.count_processes() == 1 and all(len(side) == 1 for side in sides):
        value = loss(*(encode() for (encode,) in sides))
        value.backward()
        return value.detach()
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    chunks = [[_encode_without_graph(encode) for encode in side] for side in sides]
    matrices = [parallel.gather_rows(torch.cat([rows for rows, _ in side])) for side in chunks]
    leaves = [rows.requires_grad_() for rows, _ in matrices]
    value = loss(*leaves)
    value.backward()
    for side, side_chunks, leaf, (_, share) in zip(sides, chunks, leaves, matrices, strict=True):
        assert leaf.grad is not None
        gradients = leaf.grad[share].split([len(rows) for rows, _ in side_chunks])
        for encode, (_, random), gradient in zip(side, side_chunks, gradients, strict=True):
            with torch.random.fork_rng(devices):  # the second pass must drop the same units as the first
                torch.set_rng_state(random[0])
                if devices:
                    torch.cuda.set_rng_state(random[1])
                encode().backward(gradient)
    return value.detach()


def _encode_without_graph(encode: ChunkEncoder) -> tuple[Tensor, list[Tensor]]:
    """Return the vectors of a chunk, and the random states with which its dropout was sampled."""
    random = [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if torch.cuda.is_available() else [])]
    with torch.no_grad():
        return encode(), random
