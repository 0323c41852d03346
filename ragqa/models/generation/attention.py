"""Attention in which several rows of a decoder read one encoded text, whose keys and values exist once.

Legend: N texts, R rows of the decoder (R / N in a run read the same text), H heads, T queries, L keys, D width.
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
"""What transformers' models know it by: ``attn_implementation``."""

_watched: ContextVar[list[Tensor] | None] = ContextVar("watched", default=None)


@contextmanager
def record_weights() -> Iterator[list[Tensor]]:
    """Collect the weights ``[R, H, T, L]`` with which a decoder that runs meanwhile looks at texts, layer by layer."""
    seen: list[Tensor] = []
    token = _watched.set(seen)
    try:
        yield seen
    finally:
        _watched.reset(token)


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
    """Queries ``[R, H, T, D]`` over keys ``[N, H, L, D]`` to ``[R, T, H, D]``; as transformers calls its attentions.

    Rows of one text are read as if they were one long row of queries: nothing of the text is copied. Only a decoder
    that looks at texts does so, whose attention knows no positions, so ``position_bias`` (T5's) is nothing there.
    """
    rows, heads, length, width = query.shape
    texts = key.shape[0]
    scaling = width**-0.5 if scaling is None else scaling
    if texts != rows:
        query = query.view(texts, -1, heads, length, width).transpose(1, 2).reshape(texts, heads, -1, width)
        position_bias = None
    bias = _sum(attention_mask, position_bias, query.dtype)
    mixed = _attend(module, query, key, value, bias, scaling, dropout)
    if texts != rows:
        mixed = mixed.view(texts, heads, -1, length, width).transpose(1, 2).reshape(rows, heads, length, width)
    return mixed.transpose(1, 2), None


def _sum(mask: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    if mask is None or bias is None:
        both = bias if mask is None else mask
        return None if both is None else both.to(dtype)
    return (mask + bias).to(dtype)


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, scaling: float, dropout: float
) -> Tensor:
    seen = _watched.get()
    if seen is None and (query.device.type, query.dtype) != ("cpu", torch.bfloat16):  # there a third of a step slower
        return scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout, scale=scaling)
    score = (query * scaling) @ key.transpose(-1, -2)
    weights = (score if bias is None else score + bias).softmax(-1, dtype=torch.float32).to(value.dtype)
    if seen is not None and not getattr(module, "is_causal", False):
        seen.append(weights)
    return drop(weights, dropout, training=dropout > 0) @ value


AttentionInterface.register(NAME, shared_attention)
AttentionMaskInterface.register(NAME, eager_mask)
