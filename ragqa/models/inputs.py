"""Sequences of ids as one batch.

Legend: N sequences, L tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Inputs:
    """N sequences, padded on the right to the longest of them."""

    ids_NL: Tensor
    mask_NL: Tensor
    """1 on a sequence's own tokens."""

    def to(self, device: torch.device | str) -> "Inputs":
        """The same on ``device``."""
        return Inputs(self.ids_NL.to(device), self.mask_NL.to(device))


def pad_rows(rows: Sequence[Sequence[int]], pad: int = 0) -> Inputs:
    """Rows of ids as a batch, ``pad`` behind the shorter ones."""
    lengths = np.array([len(row) for row in rows])
    ids = np.full((len(rows), int(lengths.max(initial=1))), pad, np.int64)
    mask = np.arange(ids.shape[1]) < lengths[:, None]
    ids[mask] = np.concatenate([np.asarray(row, np.int64) for row in rows]) if len(rows) else pad
    return Inputs(torch.from_numpy(ids), torch.from_numpy(mask.astype(np.int64)))


def group_by_length(lengths: Sequence[int], worth: int, most: int | None = None) -> Iterator[tuple[int, int]]:
    """Runs of lengths (longest first).

    A new one begins where it saves ``worth`` tokens of padding or more, after numbers of texts that come up in many
    batches (see ``round_up``), and where one more text would make it more than ``most`` tokens.
    """
    begin, step = 0, _step(len(lengths))
    for row, length in enumerate(lengths):
        full = most is not None and row > begin and lengths[begin] * (row + 1 - begin) > most
        if full or (row % step == 0 and (lengths[begin] - length) * (len(lengths) - row) >= worth):
            yield begin, row
            begin = row
    yield begin, len(lengths)


def round_up(count: int) -> int:
    """``count`` made up to one of eight numbers to an octave: at most an eighth more.

    For sizes of batches that differ from step to step: on a CPU oneDNN compiles its kernels in bfloat16 for each shape
    that it has not seen lately, in some milliseconds each. With a small model that was half of a step.
    """
    step = _step(count)
    return -(-count // step) * step


def _step(count: int) -> int:
    return 1 << max(0, count.bit_length() - 4)
