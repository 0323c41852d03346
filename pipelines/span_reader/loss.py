"""Losses of a span reader on spans, relevance, "no answer" and the scores of a teacher.

Legend: B questions, K passages of a question, S spans of a passage.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from pipelines.common.examples.spans import ReaderBatch, score_spans_by_ends
from pipelines.span_reader.config import MAX_HARD_SHARE, ReaderConfig
from ragqa.models.span_readers import SpanReader
from ragqa.objectives import distilled_kl, span_nll
from ragqa.training.precision import autocast


@dataclass(frozen=True)
class ReaderLosses:
    """Losses of each question in a part of a batch, in nats."""

    nll_B: Tensor
    """-log of the probability of the gold spans, or of the most probable one (hard EM); 0 without gold spans.
    With ``per_passage``, the mean over the passages with a gold span."""
    relevance_B: Tensor
    """Cross-entropy of relevance, mean over the passages of a question."""
    absence_B: Tensor
    """Cross-entropy of "no answer" against all spans of a passage, mean over the passages; 0 if it has no weight."""
    early_B: Tensor
    """Cross-entropy of the relevance after the early layer, mean over the passages; 0 without an early layer."""
    kl_B: Tensor
    """KL divergence from the teacher over all spans, times the squared temperature; 0 without a teacher."""
    has_gold_B: Tensor
    """True if at least one passage of the question has a gold span."""

    def total(self, config: ReaderConfig) -> Tensor:
        """Return the weighted sum of the losses as a mean over the questions, in nats."""
        spans_B = self.nll_B
        if config.teacher is not None:
            spans_B = (1 - config.teacher_weight) * self.nll_B + config.teacher_weight * self.kl_B
        passages_B = config.relevance * self.relevance_B + config.absence * self.absence_B + config.early * self.early_B
        return (spans_B + passages_B).mean()

    def measure(self, config: ReaderConfig) -> dict[str, float]:
        """Return the mean losses in nats for the log, without optional losses that are not in use.

        ``right`` is the share of questions with a gold span.
        """
        figures = {"loss": self.total(config), "span_nll": self.nll_B, "relevance_bce": self.relevance_B}
        optional = {"absence_bce": self.absence_B, "early_bce": self.early_B, "kl": self.kl_B}
        is_used = {
            "absence_bce": config.absence,
            "early_bce": self.early_B.any(),  # a reader to continue from can have an early layer
            "kl": config.teacher is not None,
        }
        figures["right"] = self.has_gold_B
        figures |= {name: value for name, value in optional.items() if is_used[name]}
        return {name: value.float().mean().item() for name, value in figures.items()}


def compute_losses(
    reader: SpanReader,
    teacher: SpanReader | None,
    batch: ReaderBatch,
    size: int,
    config: ReaderConfig,
    *,
    is_hard: bool,
) -> ReaderLosses:
    """Return the losses of a part of a batch.

    Args:
        reader: reader in training.
        teacher: reader whose scores the reader learns to imitate, or None.
        batch: windows of the questions.
        size: number of questions B.
        config: settings of the run.
        is_hard: True to count only the most probable gold span (hard EM, Min et al. 2019).
    """
    shape = size, int(batch.rank_N.max()) + 1
    with autocast(config.device):
        spans = score_spans_by_ends(reader, batch, shape)
    has_gold_BK = spans.correct_BKS.any(-1)
    kl_B = torch.zeros(size, device=spans.score_BKS.device)
    if teacher is not None:
        with torch.no_grad(), autocast(config.device):
            teacher_spans = score_spans_by_ends(teacher, batch, shape)
        student_BS = join_scores(spans.score_BKS, spans.relevance_BK)
        teacher_BS = join_scores(teacher_spans.score_BKS, teacher_spans.relevance_BK)
        kl_B = distilled_kl(student_BS, teacher_BS, temperature=config.temperature)
    score_BKS, relevance_BK, correct_BKS = spans.score_BKS, spans.relevance_BK, spans.correct_BKS
    if config.per_passage:
        score_BK1S, relevance_BK1 = score_BKS.unsqueeze(2), relevance_BK.unsqueeze(2)
        nll_BK = span_nll(score_BK1S, relevance_BK1, correct_BKS.unsqueeze(2), hard=is_hard)
        nll_B = nll_BK.sum(-1) / has_gold_BK.sum(-1).clamp_min(1)
    else:
        nll_B = span_nll(score_BKS, relevance_BK, correct_BKS, hard=is_hard)

    def compare(logit_BK: Tensor) -> Tensor:
        bce_BK = binary_cross_entropy_with_logits(logit_BK, has_gold_BK.float(), reduction="none")
        mean_B: Tensor = (bce_BK * spans.present_BK).sum(-1) / spans.present_BK.sum(-1).clamp_min(1)
        return mean_B

    return ReaderLosses(
        nll_B=nll_B,
        relevance_B=compare(relevance_BK),
        absence_B=compare(score_BKS.logsumexp(-1) - spans.absence_BK) if config.absence else torch.zeros_like(kl_B),
        early_B=torch.zeros_like(kl_B) if spans.early_BK is None else compare(spans.early_BK),
        kl_B=kl_B,
        has_gold_B=has_gold_BK.any(-1),
    )


def join_scores(score_BKS: Tensor, relevance_BK: Tensor) -> Tensor:
    """Return the sum of the score and the passage's relevance for each span, ``[B, K · S]``."""
    return (score_BKS + relevance_BK.unsqueeze(-1)).flatten(1)


def is_hard_step(step: int, config: ReaderConfig) -> bool:
    """Return True if a step uses hard EM, by a random choice from seed and step.

    With the loss ``hard``, the probability is step / (hard_warmup · steps), at most ``MAX_HARD_SHARE``; else it is 0.
    Steps are counted from 0.
    """
    if config.loss != "hard":
        return False
    share = min(step / (config.hard_warmup * config.steps), MAX_HARD_SHARE)
    return bool(np.random.default_rng([config.seed, 2, step]).random() < share)
