"""Attention of several decoder rows to one encoded text, whose keys and values are stored once.

Legend: N texts, R decoder rows (R / N consecutive ones read the same text), H heads, T queries, L keys, D width.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout as drop
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

NAME = "ragqa_shared"
"""Name of the function in transformers (``attn_implementation``)."""

_recorded: ContextVar[list[Tensor] | None] = ContextVar("recorded", default=None)


@contextmanager
def record_weights() -> Iterator[list[Tensor]]:
    """Collect the cross-attention weights ``[R, H, T, L]`` of each layer of a decoder that runs in the block."""
    recorded: list[Tensor] = []
    token = _recorded.set(recorded)
    try:
        yield recorded
    finally:
        _recorded.reset(token)


def shared_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Compute attention of queries ``[R, H, T, D]`` over keys and values ``[N, H, L, D]``, as transformers calls it.

    The queries of all rows of a text are treated as one long row, so that nothing of the text is copied for a beam.
    Only cross-attention has fewer texts than rows. It knows no positions, so T5's ``position_bias`` is dropped there.

    Returns:
        ``[R, T, H, D]``, and no weights.
    """
    rows, heads, length, width = query.shape
    texts = key.shape[0]
    scaling = width**-0.5 if scaling is None else scaling
    if texts != rows:
        query = query.view(texts, -1, heads, length, width).transpose(1, 2).reshape(texts, heads, -1, width)
        position_bias = None
    bias = _add_biases(attention_mask, position_bias, query.dtype)
    mixed = _attend(module, query, key, value, bias, scaling, dropout)
    if texts != rows:
        mixed = mixed.view(texts, heads, -1, length, width).transpose(1, 2).reshape(rows, heads, length, width)
    return mixed.transpose(1, 2), None


def _add_biases(mask: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    if mask is None or bias is None:
        only = bias if mask is None else mask
        return None if only is None else only.to(dtype)
    return (mask + bias).to(dtype)


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, scaling: float, dropout: float
) -> Tensor:
    recorded = _recorded.get()
    # The fused kernel returns no weights, and in bfloat16 on a CPU it makes a training step a third slower.
    if recorded is None and (query.device.type, query.dtype) != ("cpu", torch.bfloat16):
        return scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout, scale=scaling)
    score = (query * scaling) @ key.transpose(-1, -2)
    weights = (score if bias is None else score + bias).softmax(-1, dtype=torch.float32).to(value.dtype)
    if recorded is not None and not getattr(module, "is_causal", False):
        recorded.append(weights)
    return drop(weights, dropout, training=dropout > 0) @ value


AttentionInterface.register(NAME, shared_attention)
AttentionMaskInterface.register(NAME, eager_mask)
