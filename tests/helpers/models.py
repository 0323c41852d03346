"""Small torch models."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from conftest import ROOT
from torch import Tensor, nn


class TiedLinear(nn.Module):
    """Two layers that share one weight, as an encoder and its language-model head do."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 3)
        self.other.weight = self.one.weight

    def forward(self, rows: Tensor) -> Tensor:
        """Map rows [n, 3] to rows [n, 3]."""
        return self.other(torch.relu(self.one(rows)))


@contextmanager
def one_thread() -> Iterator[dict[str, str]]:
    """Use one thread, and yield the environment of a process that does: their sums are equal to the last bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
        yield {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    finally:
        torch.set_num_threads(before)
