"""Losses as pure functions on tensors, in nats.

Legend: B questions, K passages a question, L positions, V vocabulary, S candidate spans a passage, P passages of a
batch, D width; where a shape begins with ``...``, leading dimensions are free. ``relevance`` is the score f(x, z) of
a passage by the live towers: p(z|x) is its softmax over K (REALM, Guu et al. 2020, section 3.2).
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
    """Negative log-likelihood of masked tokens, marginalised over the passages.

    ``token`` (the released code of REALM): -log of the sum over z of p(z|x) p(y_j|z,x), mean over the masked tokens.
    ``sequence`` (the paper, section 3.2): p(y|z,x) is the product over the masked tokens of x; mean over the
    questions that have any. Probabilities are mixed, never logits.

    Args:
        logits: ``[B, K, L, V]`` of the knowledge-augmented encoder.
        relevance: ``[B, K]``.
        labels: ``[B, L]``, ``IGNORED`` where a position does not count.
        marginal: see above.

    Returns:
        A scalar; 0 where nothing counts.
    """
    gold_BKL = gold_log_probs(logits, labels)
    counted_BL = labels != IGNORED
    return marginal_nll(gold_BKL, relevance, counted_BL, marginal=marginal)


def rag_sequence_nll(logits: Tensor, relevance: Tensor, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """-log p(y|x) of RAG-Sequence: one passage gives the whole answer (Lewis et al. 2020, section 2.1).

    Args:
        logits: ``[B, K, T, V]`` of the generator, each position predicting the label that stands there.
        relevance: ``[B, K]``; -inf where a question has fewer than K passages.
        labels: ``[B, T]``, ``IGNORED`` where a position does not count.
        smoothing: share of the loss that asks for every entry of the vocabulary alike, as in RAG's released code. It
            counts the passage's prior once for every entry, which is followed here: at 0.1 that is what RAG trained
            with.

    Returns:
        ``[B]``; 0 where nothing counts.
    """
    evenly = label_means(logits, labels) if smoothing else None
    return sequence_nll(
        gold_log_probs(logits, labels),
        relevance,
        labels != IGNORED,
        smoothing=smoothing,
        evenly=evenly,
        vocabulary=logits.shape[-1],
    )


def rag_token_nll(logits: Tensor, relevance: Tensor, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """-log p(y|x) of RAG-Token: each token is given by any passage (section 2.1); see ``rag_sequence_nll``.

    ``smoothing`` is of the mixture over the passages, whose probabilities it needs for the whole vocabulary; without
    it nothing of that size is made.
    """
    nll_B = token_nll(gold_log_probs(logits, labels), relevance, labels != IGNORED)
    if not smoothing:
        return nll_B
    prior_BK11 = relevance.log_softmax(-1)[..., None, None]
    mixed_BTV = (logits.log_softmax(-1) + prior_BK11).logsumexp(1)
    return (1 - smoothing) * nll_B - smoothing * (mixed_BTV.mean(-1) * (labels != IGNORED)).sum(-1)


def gold_log_probs(logits: Tensor, labels: Tensor) -> Tensor:
    """``[B, K, L]``: log p(y_j|z,x) of the labels ``[B, L]``; 0 at positions that do not count."""
    target_BKL = labels.unsqueeze(1).expand(logits.shape[:-1])
    flat = cross_entropy(logits.flatten(0, -2), target_BKL.flatten(), ignore_index=IGNORED, reduction="none")
    return -flat.view(target_BKL.shape)


def label_means(logits: Tensor, labels: Tensor) -> Tensor:
    """``[B, K, L]``: log p(v|z,x), mean over the vocabulary; 0 at positions that do not count."""
    return (logits.mean(-1) - logits.logsumexp(-1)) * (labels != IGNORED).unsqueeze(1)


def token_nll(gold: Tensor, relevance: Tensor, counted: Tensor) -> Tensor:
    """``[B]``: -log of the product over positions of the sum over z of p(z|x) p(y_j|z,x).

    ``gold [B, K, L]`` are the labels' own log-probabilities, ``counted [B, L]`` says which of them count.
    """
    nll_BL = -(gold + relevance.log_softmax(-1).unsqueeze(-1)).logsumexp(1)
    return (nll_BL * counted).sum(-1)


def sequence_nll(
    gold: Tensor,
    relevance: Tensor,
    counted: Tensor,
    *,
    smoothing: float = 0.0,
    evenly: Tensor | None = None,
    vocabulary: int = 1,
) -> Tensor:
    """``[B]``: -log of the sum over z of p(z|x) times the product over positions of p(y_j|z,x); see ``token_nll``.

    ``smoothing`` needs ``evenly [B, K, L]``, the ``label_means``, and the size of the vocabulary.
    """
    prior_BK = relevance.log_softmax(-1)
    any_B = counted.any(-1)
    nll_B = -((gold * counted.unsqueeze(1)).sum(-1) + prior_BK).logsumexp(-1) * any_B
    if not smoothing:
        return nll_B
    assert evenly is not None
    together_BK = (evenly * counted.unsqueeze(1)).sum(-1)
    evenly_B = (vocabulary * (together_BK + prior_BK)).logsumexp(-1) / vocabulary
    return (1 - smoothing) * nll_B - smoothing * evenly_B * any_B


def marginal_nll(
    gold: Tensor, relevance: Tensor, counted: Tensor, *, marginal: Literal["token", "sequence"] = "token"
) -> Tensor:
    """``realm_mlm_nll`` from the labels' own log-probabilities ``[B, K, L]``, where ``counted [B, L]``."""
    if marginal == "token":
        return token_nll(gold, relevance, counted).sum() / counted.sum().clamp_min(1)
    if marginal != "sequence":
        raise ValueError(f"marginal {marginal!r}: token or sequence")
    return sequence_nll(gold, relevance, counted).sum() / counted.any(-1).sum().clamp_min(1)


def span_nll(span_logits: Tensor, relevance: Tensor, correct: Tensor, *, hard: bool = False) -> Tensor:
    """Negative log-likelihood of the correct spans, normalised over all passages together.

    P(z, s) is the softmax over every span of every passage of ``span_logits + relevance``; the
    loss is -log of the sum over the correct spans (ORQA, Lee et al. 2019, section 4; REALM,
    Guu et al. 2020, section 3.2 and released code).

    Args:
        span_logits: ``[..., K, S]``; spans that do not exist carry a very negative value.
        relevance: ``[..., K]``, the passage's own score, added to each of its spans.
        correct: ``[..., K, S]`` bool, the spans that are a gold answer.
        hard: of the correct spans only the most probable one counts (hard EM, Min et al. 2019, section 3.2).

    Returns:
        ``[...]``; 0 where no span is correct.
    """
    return _nll_of((span_logits + relevance.unsqueeze(-1)).flatten(-2), correct.flatten(-2), hard=hard)


def distilled_kl(score: Tensor, taught: Tensor, *, temperature: float = 1.0) -> Tensor:
    """How far the softmax of ``score`` is from that of a teacher's scores, both ``[..., S]``: ``[...]``.

    The Kullback-Leibler divergence at ``temperature``, times its square, so that gradients keep their size (Hinton et
    al. 2015, section 2).
    """
    log_p, log_q = (taught / temperature).log_softmax(-1), (score / temperature).log_softmax(-1)
    return temperature**2 * (log_p.exp() * (log_p - log_q)).sum(-1)


def retrieval_nll(relevance: Tensor, has_answer: Tensor) -> Tensor:
    """Negative log-likelihood of the passages that hold an answer (ORQA's "early" term, section 7.1).

    Args:
        relevance: ``[..., K]`` of a larger beam than is read.
        has_answer: ``[..., K]`` bool.

    Returns:
        ``[...]``; 0 where no passage holds one.
    """
    return _nll_of(relevance, has_answer)


def _nll_of(score: Tensor, right: Tensor, *, hard: bool = False) -> Tensor:
    """-log of the share of the softmax that is ``right``, over the last dimension; 0 where nothing is."""
    log_rights = score.masked_fill(~right, torch.finfo(score.dtype).min)
    nll = score.logsumexp(-1) - (log_rights.amax(-1) if hard else log_rights.logsumexp(-1))
    return torch.where(right.any(-1), nll, torch.zeros_like(nll))


def in_batch_nll(queries: Tensor, passages: Tensor, positive: Tensor, *, masked: Tensor | None = None) -> Tensor:
    """Cross-entropy of each query's own passage among all of the batch (DPR, section 3.2; ORQA's inverse cloze).

    Args:
        queries: ``[B, D]``.
        passages: ``[P, D]``, the positives and whatever negatives there are.
        positive: ``[B]`` integers: the row of each query's passage.
        masked: ``[B, P]`` bool: passages that do not compete for a query, its own not among them.

    Returns:
        A scalar, the mean over the queries.
    """
    score_BP = queries @ passages.T
    if masked is not None:
        score_BP = score_BP.masked_fill(masked, torch.finfo(score_BP.dtype).min)
    return cross_entropy(score_BP, positive)
