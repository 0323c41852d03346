"""Two ways of attention beside transformers' own, chosen for all encoders of a model.

In bfloat16 from end to end, for training on a CPU that multiplies in it faster: under autocast the softmax is computed,
and kept for backward, in float32, and so is what is added to mask padding. On a CPU these passes over all pairs of
tokens take as long as the matrix products between them.

Without a mask, for the export, which reads one unpadded text at a time: transformers would compute one all the same,
and adding it is another such pass.

Legend: N sequences, H heads, G heads of keys and values, L queries, M keys, D width of a head.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout as drop
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, bidirectional_mask_function, eager_mask, sdpa_mask

BFLOAT16, UNPADDED = "ragqa_bfloat16", "ragqa_unpadded"
"""What transformers' models know them by: ``attn_implementation``."""


def choose_attention(model: nn.Module, name: str) -> None:
    """Have every encoder of transformers in ``model`` that lets its attention be chosen compute it so."""
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
    """``[N, L, H, D]`` of queries ``[N, H, L, D]``, keys and values ``[N, G, M, D]``.

    ``attention_mask`` is added to the scores, ``[N, 1, L, M]``. Sums are made in float32 by the kernels themselves.
    """
    dtype, scale = query.dtype, query.shape[-1] ** -0.5 if scaling is None else scaling
    with torch.autocast(query.device.type, enabled=False):
        query, key, value = (each.to(torch.bfloat16) for each in (query * scale, key, value))
        if (shared := query.shape[1] // key.shape[1]) > 1:
            key, value = (each.repeat_interleave(shared, dim=1) for each in (key, value))
        score_NHLM = query @ key.transpose(2, 3)
        if attention_mask is not None:
            lowest = torch.finfo(torch.bfloat16).min  # not -inf: a row of nothing else would be NaN
            score_NHLM = score_NHLM + attention_mask.clamp_min(lowest).to(torch.bfloat16)
        weight_NHLM = drop(score_NHLM.softmax(-1), dropout, module.training)
        return (weight_NHLM @ value).transpose(1, 2).contiguous().to(dtype), None


def unpadded_attention(*inputs: Any, **options: Any) -> tuple[Tensor, None]:
    """torch's own; without a mask every token sees every other."""
    return sdpa_attention_forward(*inputs, **{**options, "is_causal": False})


def unpadded_mask(*, mask_function: Any, attention_mask: Tensor | None = None, **options: Any) -> Tensor | None:
    """None where all tokens see each other; else who sees whom, padding aside."""
    if mask_function is bidirectional_mask_function:
        return None
    skips = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}  # leaving it to a flag not looked at
    return sdpa_mask(mask_function=mask_function, **{**options, **skips})


AttentionInterface.register(BFLOAT16, bfloat16_attention)
AttentionMaskInterface.register(BFLOAT16, eager_mask)
AttentionInterface.register(UNPADDED, unpadded_attention)
AttentionMaskInterface.register(UNPADDED, unpadded_mask)
