"""Batches of token ids: padding, and groups of similar length.

Legend: N sequences, L tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Inputs:
    """Batch of N sequences, padded on the right to the length of the longest."""

    ids_NL: Tensor
    """Token ids."""
    mask_NL: Tensor
    """1 on tokens, 0 on padding."""

    def to(self, device: torch.device | str) -> "Inputs":
        """Return the batch on ``device``."""
        return Inputs(self.ids_NL.to(device), self.mask_NL.to(device))


def pad_rows(rows: Sequence[Sequence[int]], pad: int = 0) -> Inputs:
    """Return rows of token ids as a batch, padded with the id ``pad``."""
    lengths = np.array([len(row) for row in rows])
    ids = np.full((len(rows), int(lengths.max(initial=1))), pad, np.int64)
    mask = np.arange(ids.shape[1]) < lengths[:, None]
    ids[mask] = np.concatenate([np.asarray(row, np.int64) for row in rows]) if len(rows) else pad
    return Inputs(torch.from_numpy(ids), torch.from_numpy(mask.astype(np.int64)))


def group_by_length(
    lengths: Sequence[int], min_saving: int, max_tokens: int | None = None
) -> Iterator[tuple[int, int]]:
    """Divide sequences into groups of similar length, so that little padding is computed.

    Groups begin at multiples of a step, so that few different batch sizes occur (``round_up``), except where
    ``max_tokens`` ends a group earlier.

    Args:
        lengths: lengths of the sequences in tokens, longest first.
        min_saving: minimum number of padding tokens that a new group saves.
        max_tokens: maximum number of tokens in a group, including padding; None for no maximum.

    Yields:
        Start and end (exclusive) of each group.
    """
    first, step = 0, _step(len(lengths))
    for row, length in enumerate(lengths):
        is_full = max_tokens is not None and row > first and lengths[first] * (row + 1 - first) > max_tokens
        if is_full or (row % step == 0 and (lengths[first] - length) * (len(lengths) - row) >= min_saving):
            yield first, row
            first = row
    yield first, len(lengths)


def round_up(count: int) -> int:
    """Round a batch size up, by at most an eighth, so that few different sizes occur.

    There are eight sizes from one power of two to the next. On a CPU, oneDNN takes some milliseconds to compile its
    bfloat16 kernels for each new shape. With a new size in each step, this took half the time of a small model's step.
    """
    step = _step(count)
    return -(-count // step) * step


def _step(count: int) -> int:
    return 1 << max(0, count.bit_length() - 4)
