"""Losses as pure functions on tensors, in nats.

Dimensions: B questions, K passages per question, L positions, T positions of an answer, V vocabulary, S candidate spans
per passage, P passages of a batch, D width; ``...`` stands for any leading dimensions. ``relevance`` is the score
f(x, z) of a passage z for a question x by the encoders in training. p(z|x) is the softmax of ``relevance`` over K
(REALM, Guu et al. 2020, section 3.2).
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
    """Compute the masked language modelling loss of REALM, marginalised over the passages.

    Training calls ``marginal_nll`` instead, which does not need all logits at once.

    Args:
        logits: ``[B, K, L, V]``, logits of the knowledge-augmented encoder.
        relevance: ``[B, K]``, scores of the passages.
        labels: ``[B, L]``, ``IGNORED`` at positions that do not count.
        marginal: ``token`` (REALM's released code) averages -log Σ_z p(z|x) p(y_j|z,x) over the masked tokens.
            ``sequence`` (the paper, section 3.2) averages -log Σ_z p(z|x) Π_j p(y_j|z,x) over the questions with masked
            tokens.

    Returns:
        A scalar; 0 if no position counts.

    Raises:
        ValueError: the marginal is unknown.
    """
    return marginal_nll(gold_log_probs(logits, labels), relevance, labels != IGNORED, marginal=marginal)


def rag_sequence_nll(logits: Tensor, relevance: Tensor, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """Compute -log p(y|x) of RAG-Sequence: one passage explains the whole answer.

    Training calls ``sequence_nll`` instead, which does not need all logits at once. Source: Lewis et al. 2020, section
    2.1.

    Args:
        logits: ``[B, K, T, V]``, logits of the generator; position t predicts label t.
        relevance: ``[B, K]``, scores of the passages; -inf where a question has fewer than K passages.
        labels: ``[B, T]``, ``IGNORED`` at positions that do not count.
        smoothing: weight of label smoothing over the vocabulary. As in RAG's released code, the prior p(z|x) counts
            once per vocabulary entry. RAG was trained with 0.1.

    Returns:
        ``[B]``, the loss of each question; 0 for a question without positions that count.
    """
    gold_BKT, counted_BT = gold_log_probs(logits, labels), labels != IGNORED
    means_BKT, vocabulary = label_means(logits, labels) if smoothing else None, logits.shape[-1]
    return sequence_nll(gold_BKT, relevance, counted_BT, smoothing=smoothing, means=means_BKT, vocabulary=vocabulary)


def rag_token_nll(logits: Tensor, relevance: Tensor, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """Compute -log p(y|x) of RAG-Token: each token can come from a different passage.

    Without label smoothing, training calls ``token_nll`` instead, which does not need all logits at once. Source: Lewis
    et al. 2020, section 2.1.

    Args:
        logits: ``[B, K, T, V]``, logits of the generator; position t predicts label t.
        relevance: ``[B, K]``, scores of the passages; -inf where a question has fewer than K passages.
        labels: ``[B, T]``, ``IGNORED`` at positions that do not count.
        smoothing: weight of label smoothing, which is applied to the mixture over the passages.

    Returns:
        ``[B]``, the loss of each question; 0 for a question without positions that count.
    """
    nll_B = token_nll(gold_log_probs(logits, labels), relevance, labels != IGNORED)
    if not smoothing:
        return nll_B
    prior_BK11 = relevance.log_softmax(-1)[..., None, None]
    mixed_BTV = (logits.log_softmax(-1) + prior_BK11).logsumexp(1)
    return (1 - smoothing) * nll_B - smoothing * (mixed_BTV.mean(-1) * (labels != IGNORED)).sum(-1)


def gold_log_probs(logits: Tensor, labels: Tensor) -> Tensor:
    """Return log p(y_j|z,x) of the labels, ``[B, K, L]``; 0 at positions that do not count.

    Args:
        logits: ``[B, K, L, V]``.
        labels: ``[B, L]``, ``IGNORED`` at positions that do not count.
    """
    target_BKL = labels.unsqueeze(1).expand(logits.shape[:-1])
    flat = cross_entropy(logits.flatten(0, -2), target_BKL.flatten(), ignore_index=IGNORED, reduction="none")
    return -flat.view(target_BKL.shape)


def label_means(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean of log p(v|z,x) over the vocabulary, ``[B, K, L]``, for label smoothing.

    Args:
        logits: ``[B, K, L, V]``.
        labels: ``[B, L]``; the mean is 0 where the label is ``IGNORED``.
    """
    return (logits.mean(-1) - logits.logsumexp(-1)) * (labels != IGNORED).unsqueeze(1)


def token_nll(gold: Tensor, relevance: Tensor, counted: Tensor) -> Tensor:
    """Return -log Π_j Σ_z p(z|x) p(y_j|z,x), ``[B]``: positions can have different passages.

    Args:
        gold: ``[B, K, L]``, log-probabilities of the labels.
        relevance: ``[B, K]``, scores of the passages.
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
        gold: ``[B, K, L]``, log-probabilities of the labels.
        relevance: ``[B, K]``, scores of the passages.
        counted: ``[B, L]`` bool, true at positions that count.
        smoothing: weight of label smoothing, see ``rag_sequence_nll``.
        means: ``[B, K, L]``, result of ``label_means``; required for smoothing.
        vocabulary: size of the vocabulary; required for smoothing.
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
    """Compute the loss of ``realm_mlm_nll`` from the log-probabilities of the labels.

    Args:
        gold: ``[B, K, L]``, log-probabilities of the labels.
        relevance: ``[B, K]``, scores of the passages.
        counted: ``[B, L]`` bool, true at positions that count.
        marginal: ``token`` or ``sequence``, see ``realm_mlm_nll``.

    Returns:
        A scalar; 0 if no position counts.

    Raises:
        ValueError: the marginal is unknown.
    """
    if marginal == "token":
        return token_nll(gold, relevance, counted).sum() / counted.sum().clamp_min(1)
    if marginal != "sequence":
        raise ValueError(f"marginal {marginal!r}: token or sequence")
    return sequence_nll(gold, relevance, counted).sum() / counted.any(-1).sum().clamp_min(1)


def span_nll(span_logits: Tensor, relevance: Tensor, correct: Tensor, *, hard: bool = False) -> Tensor:
    """Compute the reader's loss: -log of the sum of the probabilities of the correct spans.

    P(z, s) is the softmax of ``span_logits + relevance`` over all spans s of all passages z. Sources: ORQA (Lee et al.
    2019, section "Learning"), REALM (Guu et al. 2020, section 3.2, and the released code).

    Args:
        span_logits: ``[..., K, S]``; impossible spans have a very negative value.
        relevance: ``[..., K]``, score of each passage, which is added to the logits of its spans.
        correct: ``[..., K, S]`` bool, true for spans that are a gold answer.
        hard: True to use only the most probable correct span instead of the sum (Min et al. 2019, section 3.2).

    Returns:
        ``[...]``, the loss of each question; 0 for a question without correct spans.
    """
    return _correct_nll((span_logits + relevance.unsqueeze(-1)).flatten(-2), correct.flatten(-2), hard=hard)


def distilled_kl(score: Tensor, teacher: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Compute the Kullback–Leibler divergence KL(teacher ‖ student) of softmax distributions.

    Args:
        score: ``[..., S]``, scores of S candidates by the student.
        teacher: ``[..., S]``, scores of the same candidates by the teacher.
        temperature: number by which both scores are divided before the softmax over S.

    Returns:
        ``[...]``, the divergence times the squared temperature, so that the size of the gradients hardly depends on the
        temperature (Hinton et al. 2015, section 2).
    """
    log_p, log_q = (teacher / temperature).log_softmax(-1), (score / temperature).log_softmax(-1)
    return temperature**2 * (log_p.exp() * (log_p - log_q)).sum(-1)


def retrieval_nll(relevance: Tensor, has_answer: Tensor) -> Tensor:
    """Compute the retriever's loss: -log of the sum of p(z|x) over passages with an answer.

    This is the "early update" of ORQA (Lee et al. 2019, section "Learning"), for more passages than the reader reads.

    Args:
        relevance: ``[..., K]``, scores of the retrieved passages.
        has_answer: ``[..., K]`` bool, true for passages that contain an answer.

    Returns:
        ``[...]``, the loss of each question; 0 if no passage of a question has an answer.
    """
    return _correct_nll(relevance, has_answer)


def _correct_nll(score: Tensor, correct: Tensor, *, hard: bool = False) -> Tensor:
    correct_score = score.masked_fill(~correct, torch.finfo(score.dtype).min)  # with -inf the gradient would be NaN
    nll = score.logsumexp(-1) - (correct_score.amax(-1) if hard else correct_score.logsumexp(-1))
    return torch.where(correct.any(-1), nll, torch.zeros_like(nll))


def in_batch_nll(queries: Tensor, passages: Tensor, positive: Tensor, *, masked: Tensor | None = None) -> Tensor:
    """Compute the contrastive loss with in-batch negatives.

    Source: DPR (Karpukhin et al. 2020, section 3.2); ORQA's inverse cloze uses the same loss.

    Args:
        queries: ``[B, D]``, vectors of the questions.
        passages: ``[P, D]``, vectors of the positive and negative passages.
        positive: ``[B]`` integers, the row of each question's positive passage.
        masked: ``[B, P]`` bool, true for passages to ignore for a question; false for its positive passage.

    Returns:
        A scalar, the mean over the questions.
    """
    score_BP = queries @ passages.T
    if masked is not None:
        score_BP = score_BP.masked_fill(masked, torch.finfo(score_BP.dtype).min)
    return cross_entropy(score_BP, positive)
