"""Losses as pure functions on tensors.

Legend: K passages a question, S candidate spans a passage; leading dimensions are free.
"""

import torch
from torch import Tensor


def span_nll(span_logits: Tensor, relevance: Tensor, correct: Tensor) -> Tensor:
    """Negative log-likelihood of the correct spans, normalised over all passages together.

    P(z, s) is the softmax over every span of every passage of ``span_logits + relevance``; the
    loss is -log of the sum over the correct spans (ORQA, Lee et al. 2019, section 4; REALM,
    Guu et al. 2020, section 3.2 and released code).

    Args:
        span_logits: ``[..., K, S]``; spans that do not exist carry a very negative value.
        relevance: ``[..., K]``, the passage's own score, added to each of its spans.
        correct: ``[..., K, S]`` bool, the spans that are a gold answer.

    Returns:
        ``[...]``, in nats; 0 where no span is correct.
    """
    score = (span_logits + relevance.unsqueeze(-1)).flatten(-2)
    right = correct.flatten(-2)
    floor = torch.finfo(score.dtype).min
    log_right = score.masked_fill(~right, floor).logsumexp(-1)
    nll = score.logsumexp(-1) - log_right
    return torch.where(right.any(-1), nll, torch.zeros_like(nll))
