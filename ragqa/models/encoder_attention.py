"""Two attention functions for encoders, in addition to those of transformers.

``BFLOAT16`` computes attention in bfloat16 from end to end, for training on a CPU that multiplies faster in it. Under
autocast the softmax and the sum with the padding mask would be computed in float32 and kept for backward. On a CPU
these passes over all pairs of tokens take as long as the matrix products between them.

``UNPADDED`` has no mask, for the export, which reads one unpadded text at a time. transformers would still compute and
add a mask, which is another such pass.

Legend: N sequences, H heads, G key-value heads, L queries, M keys, D width of a head.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout as drop
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, bidirectional_mask_function, eager_mask, sdpa_mask

BFLOAT16, UNPADDED = "ragqa_bfloat16", "ragqa_unpadded"
"""Names of the functions in transformers (``attn_implementation``)."""


def choose_attention(model: nn.Module, name: str) -> None:
    """Set the attention function of every transformers encoder in ``model`` that allows a choice."""
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
    """Compute attention in bfloat16; the kernels themselves accumulate in float32.

    Args:
        module: attention layer; it drops weights in training mode.
        query: ``[N, H, L, D]``.
        key: ``[N, G, M, D]``.
        value: ``[N, G, M, D]``.
        attention_mask: ``[N, 1, L, M]``, added to the scores.
        scaling: factor of the scores, by default ``D ** -0.5``.
        dropout: share of the weights to drop.

    Returns:
        ``[N, L, H, D]`` in the dtype of ``query``, and no weights.
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
    """Compute torch's own attention; without a mask every token sees every other."""
    return sdpa_attention_forward(*inputs, **{**options, "is_causal": False})


def unpadded_mask(*, mask_function: Any, attention_mask: Tensor | None = None, **options: Any) -> Tensor | None:
    """Return None if all tokens see each other; otherwise the mask without padding."""
    if mask_function is bidirectional_mask_function:
        return None
    skips = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}  # torch's flags are not used here
    return sdpa_mask(mask_function=mask_function, **{**options, **skips})


AttentionInterface.register(BFLOAT16, bfloat16_attention)
AttentionMaskInterface.register(BFLOAT16, eager_mask)
AttentionInterface.register(UNPADDED, unpadded_attention)
AttentionMaskInterface.register(UNPADDED, unpadded_mask)
