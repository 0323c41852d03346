"""Losses as pure functions on tensors, in nats.

Legend: B questions, K passages per question, L positions, T positions of an answer, V vocabulary, S candidate spans per
passage, P passages of a batch, D width; a shape that begins with ``...`` has any leading dimensions. ``relevance`` is
the score f(x, z) of a passage by the live towers; p(z|x) is its softmax over K (REALM, Guu et al. 2020, section 3.2).
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

IGNORED = -100
"""Label of a position that does not count."""


def realm_mlm_nll(
    logits: Tensor, relevance: Tensor, labels: Tensor, *, marginal: Literal["token", "sequence"] = "token"
) -> Tensor:
    """Compute the loss of masked tokens; probabilities, not logits, are mixed over passages.

    It defines the loss; REALM calls ``marginal_nll``, which does not need all logits at once.

    Args:
        logits: ``[B, K, L, V]`` of the knowledge-augmented encoder.
        relevance: ``[B, K]``.
        labels: ``[B, L]``, ``IGNORED`` at positions that do not count.
        marginal: ``token`` (released code of REALM) is -log of the sum over z of p(z|x) p(y_j|z,x), averaged over the
            masked tokens. In ``sequence`` (the paper, section 3.2) p(y|z,x) is the product over the masked tokens of
            x, and the loss is averaged over the questions that have any.

    Returns:
        A scalar; 0 if nothing counts.
    """
    return marginal_nll(gold_log_probs(logits, labels), relevance, labels != IGNORED, marginal=marginal)


def rag_sequence_nll(logits: Tensor, relevance: Tensor, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """Compute -log p(y|x) of RAG-Sequence, one passage per answer (Lewis et al. 2020, 2.1).

    It defines the loss; ``RagGenerator`` calls ``sequence_nll``, which does not need all logits at once.

    Args:
        logits: ``[B, K, T, V]`` of the generator, each position predicting its own label.
        relevance: ``[B, K]``; -inf where a question has fewer than K passages.
        labels: ``[B, T]``, ``IGNORED`` at positions that do not count.
        smoothing: weight of label smoothing over the vocabulary. As in RAG's released code, the passage's prior
            counts once per vocabulary entry; RAG was trained with 0.1.

    Returns:
        ``[B]``; 0 where nothing counts.
    """
    gold_BKT, counted_BT = gold_log_probs(logits, labels), labels != IGNORED
    means_BKT, vocabulary = label_means(logits, labels) if smoothing else None, logits.shape[-1]
    return sequence_nll(gold_BKT, relevance, counted_BT, smoothing=smoothing, means=means_BKT, vocabulary=vocabulary)


def rag_token_nll(logits: Tensor, relevance: Tensor, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """Compute -log p(y|x) of RAG-Token, any passage per token (Lewis et al. 2020, 2.1).

    Arguments and result are as for ``rag_sequence_nll``, but labels are smoothed on the mixture over the passages.
    Smoothing needs the mixture's probabilities of the whole vocabulary; without it nothing of that size is computed.
    """
    nll_B = token_nll(gold_log_probs(logits, labels), relevance, labels != IGNORED)
    if not smoothing:
        return nll_B
    prior_BK11 = relevance.log_softmax(-1)[..., None, None]
    mixed_BTV = (logits.log_softmax(-1) + prior_BK11).logsumexp(1)
    return (1 - smoothing) * nll_B - smoothing * (mixed_BTV.mean(-1) * (labels != IGNORED)).sum(-1)


def gold_log_probs(logits: Tensor, labels: Tensor) -> Tensor:
    """Return log p(y_j|z,x) ``[B, K, L]`` of the labels ``[B, L]``; 0 where they do not count."""
    target_BKL = labels.unsqueeze(1).expand(logits.shape[:-1])
    flat = cross_entropy(logits.flatten(0, -2), target_BKL.flatten(), ignore_index=IGNORED, reduction="none")
    return -flat.view(target_BKL.shape)


def label_means(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the vocabulary's mean of log p(v|z,x) ``[B, K, L]``; 0 where labels do not count."""
    return (logits.mean(-1) - logits.logsumexp(-1)) * (labels != IGNORED).unsqueeze(1)


def token_nll(gold: Tensor, relevance: Tensor, counted: Tensor) -> Tensor:
    """Return -log Π_j Σ_z p(z|x) p(y_j|z,x), ``[B]``: each position may use another passage.

    Args:
        gold: ``[B, K, L]`` log-probabilities of the labels.
        relevance: ``[B, K]``.
        counted: ``[B, L]`` bool, true at positions that count.
    """
    nll_BL = -(gold + relevance.log_softmax(-1).unsqueeze(-1)).logsumexp(1)
    return (nll_BL * counted).sum(-1)


def sequence_nll(
    gold: Tensor,
    relevance: Tensor,
    counted: Tensor,
    *,
    smoothing: float = 0.0,
    means: Tensor | None = None,
    vocabulary: int = 1,
) -> Tensor:
    """Return -log Σ_z p(z|x) Π_j p(y_j|z,x), ``[B]``: one passage explains all positions.

    Args:
        gold: ``[B, K, L]`` log-probabilities of the labels.
        relevance: ``[B, K]``.
        counted: ``[B, L]`` bool, true at positions that count.
        smoothing: weight of label smoothing, see ``rag_sequence_nll``.
        means: ``[B, K, L]`` result of ``label_means``; needed for smoothing.
        vocabulary: size of the vocabulary; needed for smoothing.
    """
    prior_BK = relevance.log_softmax(-1)
    any_B = counted.any(-1)
    nll_B = -((gold * counted.unsqueeze(1)).sum(-1) + prior_BK).logsumexp(-1) * any_B
    if not smoothing:
        return nll_B
    assert means is not None
    means_BK = (means * counted.unsqueeze(1)).sum(-1)
    means_B = (vocabulary * (means_BK + prior_BK)).logsumexp(-1) / vocabulary
    return (1 - smoothing) * nll_B - smoothing * means_B * any_B


def marginal_nll(
    gold: Tensor, relevance: Tensor, counted: Tensor, *, marginal: Literal["token", "sequence"] = "token"
) -> Tensor:
    """Compute ``realm_mlm_nll`` from ``gold``, log-probabilities of the labels ``[B, K, L]``.

    ``counted [B, L]`` is true at positions that count.
    """
    if marginal == "token":
        return token_nll(gold, relevance, counted).sum() / counted.sum().clamp_min(1)
    if marginal != "sequence":
        raise ValueError(f"marginal {marginal!r}: token or sequence")
    return sequence_nll(gold, relevance, counted).sum() / counted.any(-1).sum().clamp_min(1)


def span_nll(span_logits: Tensor, relevance: Tensor, correct: Tensor, *, hard: bool = False) -> Tensor:
    """Compute the loss of the correct spans, normalised over all passages together.

    P(z, s) is the softmax of ``span_logits + relevance`` over all spans of all passages, and the loss is -log of the
    sum over the correct spans (ORQA, Lee et al. 2019, section 4; REALM, Guu et al. 2020, section 3.2 and released
    code).

    Args:
        span_logits: ``[..., K, S]``; impossible spans have a very negative value.
        relevance: ``[..., K]``, score of the passage, added to each of its spans.
        correct: ``[..., K, S]`` bool, true for spans that are a gold answer.
        hard: count only the most probable correct span (hard EM, Min et al. 2019, section 3.2).

    Returns:
        ``[...]``; 0 where no span is correct.
    """
    return _correct_nll((span_logits + relevance.unsqueeze(-1)).flatten(-2), correct.flatten(-2), hard=hard)


def distilled_kl(score: Tensor, teacher: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Compute the divergence ``[...]`` from a teacher's softmax at ``temperature``.

    It is multiplied by the squared temperature, so that gradients keep their size (Hinton et al. 2015, section 2).
    ``score`` and ``teacher`` are ``[..., S]``; both are divided by the temperature.
    """
    log_p, log_q = (teacher / temperature).log_softmax(-1), (score / temperature).log_softmax(-1)
    return temperature**2 * (log_p.exp() * (log_p - log_q)).sum(-1)


def retrieval_nll(relevance: Tensor, has_answer: Tensor) -> Tensor:
    """Compute the loss of passages with an answer (ORQA's "early" loss, section 7.1).

    ``relevance [..., K]`` is of more passages than are read; ``has_answer [..., K]`` is true for those with an answer.
    The result ``[...]`` is 0 where there are none.
    """
    return _correct_nll(relevance, has_answer)


def _correct_nll(score: Tensor, correct: Tensor, *, hard: bool = False) -> Tensor:
    """Return -log of the softmax mass of the correct elements; 0 where there are none."""
    correct_score = score.masked_fill(~correct, torch.finfo(score.dtype).min)  # with -inf the gradient would be NaN
    nll = score.logsumexp(-1) - (correct_score.amax(-1) if hard else correct_score.logsumexp(-1))
    return torch.where(correct.any(-1), nll, torch.zeros_like(nll))


def in_batch_nll(queries: Tensor, passages: Tensor, positive: Tensor, *, masked: Tensor | None = None) -> Tensor:
    """Compute the loss of in-batch negatives (DPR, section 3.2; ORQA's inverse cloze).

    Args:
        queries: ``[B, D]``.
        passages: ``[P, D]``, positives and negatives.
        positive: ``[B]`` integers, the row of each query's passage.
        masked: ``[B, P]`` bool, true for passages that do not compete for a query; never for its own.

    Returns:
        A scalar, the mean over the queries.
    """
    score_BP = queries @ passages.T
    if masked is not None:
        score_BP = score_BP.masked_fill(masked, torch.finfo(score_BP.dtype).min)
    return cross_entropy(score_BP, positive)
