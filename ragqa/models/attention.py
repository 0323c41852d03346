"""Additional attention functions for transformers.

``BFLOAT16`` computes all of attention in bfloat16, for training on a CPU that multiplies faster in bfloat16. Autocast
would compute the softmax and add the padding mask in float32, and store both results for the backward pass. On a CPU
this takes as long as the matrix products do.

``UNPADDED`` has no padding mask. Exports use it, because they read one unpadded text at a time. transformers would add
a mask all the same, which doubles the time of attention.

``SHARED`` lets several decoder rows attend to one text, whose keys and values are stored once.

Legend: N texts, R decoder rows (R / N consecutive rows read the same text), H heads, G key-value heads, L queries,
M keys, D width of a head.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout as drop
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, bidirectional_mask_function, eager_mask, sdpa_mask

BFLOAT16, UNPADDED, SHARED = "ragqa_bfloat16", "ragqa_unpadded", "ragqa_shared"
"""Names of the attention functions in transformers (``attn_implementation``)."""


def choose_attention(model: nn.Module, name: str) -> None:
    """Set the attention function of the transformers models in ``model``.

    A model whose attention function cannot be chosen keeps its own.

    Args:
        model: module that contains transformers models.
        name: name of the function in transformers, for example ``BFLOAT16``.
    """
    for part in model.modules():
        if isinstance(part, PreTrainedModel) and part.base_model is part and part._supports_attention_backend:
            part.set_attn_implementation(name)


def bfloat16_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    """Compute attention in bfloat16; matrix products accumulate in float32.

    Args:
        module: attention layer; in training mode, dropout is applied.
        query: ``[N, H, L, D]``.
        key: ``[N, G, M, D]``.
        value: ``[N, G, M, D]``.
        attention_mask: ``[N, 1, L, M]``, added to the scores; None for no mask.
        scaling: factor of the scores, by default ``D ** -0.5``.
        dropout: share of the attention weights to drop.

    Returns:
        ``[N, L, H, D]`` in the dtype of ``query``, and None in place of the attention weights.
    """
    dtype, scale = query.dtype, query.shape[-1] ** -0.5 if scaling is None else scaling
    with torch.autocast(query.device.type, enabled=False):
        query, key, value = (tensor.to(torch.bfloat16) for tensor in (query * scale, key, value))
        if (shared := query.shape[1] // key.shape[1]) > 1:
            key, value = (tensor.repeat_interleave(shared, dim=1) for tensor in (key, value))
        score_NHLM = query @ key.transpose(2, 3)
        if attention_mask is not None:
            lowest = torch.finfo(torch.bfloat16).min  # -inf would make a fully masked row NaN
            score_NHLM = score_NHLM + attention_mask.clamp_min(lowest).to(torch.bfloat16)
        weight_NHLM = drop(score_NHLM.softmax(-1), dropout, module.training)
        return (weight_NHLM @ value).transpose(1, 2).contiguous().to(dtype), None


def unpadded_attention(*inputs: Any, **options: Any) -> tuple[Tensor, None]:
    """Compute torch's fused attention; without a mask, each token attends to all tokens.

    Arguments and returned value: as for ``sdpa_attention_forward`` in transformers.
    """
    return sdpa_attention_forward(*inputs, **{**options, "is_causal": False})


def unpadded_mask(*, mask_function: Any, attention_mask: Tensor | None = None, **options: Any) -> Tensor | None:
    """Return a mask for texts without padding; None if each token attends to all tokens.

    Args:
        mask_function: function of transformers that tells if a token attends to another.
        attention_mask: padding mask, which is ignored.
        options: further arguments of ``sdpa_mask`` in transformers.

    Returns:
        None, or a mask ``[N, 1, L, M]`` by ``sdpa_mask``.
    """
    if mask_function is bidirectional_mask_function:
        return None
    # ``sdpa_mask`` must not replace the mask by flags, since ``unpadded_attention`` ignores them.
    skips = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    return sdpa_mask(mask_function=mask_function, **{**options, **skips})


_recorded: ContextVar[list[Tensor] | None] = ContextVar("recorded", default=None)


@contextmanager
def record_weights() -> Iterator[list[Tensor]]:
    """Collect the cross-attention weights of decoder layers while the block runs.

    The layers must use the attention function ``SHARED``. The block may run only decoders, with one row per text.

    Yields:
        List to which each call of a layer adds a tensor ``[R, H, L, M]``.
    """
    recorded: list[Tensor] = []
    token = _recorded.set(recorded)
    try:
        yield recorded
    finally:
        _recorded.reset(token)


def _shared_attention(
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
    """Attend with queries ``[R, H, L, D]`` to keys ``[N, H, M, D]``; return ``[R, L, H, D]``."""
    rows, heads, length, width = query.shape
    texts = key.shape[0]
    scaling = width**-0.5 if scaling is None else scaling
    # The queries of all rows of a text become one long row, so that keys and values need no copy per beam. Only
    # cross-attention has fewer texts than rows. It does not use positions, so T5's ``position_bias`` is dropped.
    if texts != rows:
        query = query.view(texts, -1, heads, length, width).transpose(1, 2).reshape(texts, heads, -1, width)
        position_bias = None
    biases = [bias for bias in (attention_mask, position_bias) if bias is not None]
    bias = sum(biases[1:], biases[0]).to(query.dtype) if biases else None
    mixed = _attend(module, query, key, value, bias, scaling, dropout)
    if texts != rows:
        mixed = mixed.view(texts, heads, -1, length, width).transpose(1, 2).reshape(rows, heads, length, width)
    return mixed.transpose(1, 2), None


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


for name, attention, mask in (
    (BFLOAT16, bfloat16_attention, eager_mask),
    (UNPADDED, unpadded_attention, unpadded_mask),
    (SHARED, _shared_attention, eager_mask),
):
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, mask)
