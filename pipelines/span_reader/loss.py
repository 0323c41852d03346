"""What questions teach a span reader: one softmax over all spans of all their passages, and relevance.

Legend: B questions, K passages a question, S spans of a passage.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from pipelines.common.spans import ReaderBatch, score_spans_by_ends
from pipelines.span_reader.config import MOST_HARD, ReaderConfig
from ragqa.models.span_reader import SpanReader
from ragqa.objectives import distilled_kl, span_nll
from ragqa.training.precision import autocast


@dataclass(frozen=True)
class Losses:
    """What the questions of a part teach."""

    nll_B: Tensor
    relevance_B: Tensor
    kl_B: Tensor
    right_B: Tensor
    """Whether there is a right span to be found."""

    def total(self, config: ReaderConfig) -> Tensor:
        """Mean over the questions; one without a right span teaches relevance, and what a teacher says of it."""
        spans_B = self.nll_B if config.teacher is None else (1 - config.taught) * self.nll_B + config.taught * self.kl_B
        return (spans_B + config.relevance * self.relevance_B).mean()


def losses(
    reader: SpanReader, teacher: SpanReader | None, reads: ReaderBatch, size: int, config: ReaderConfig, *, hard: bool
) -> Losses:
    """Of a part of ``size`` questions."""
    shape = size, int(reads.rank_N.max()) + 1
    with autocast(config.device):
        score_BKS, relevance_BK, correct_BKS = score_spans_by_ends(reader, reads, shape)
    right_BK = correct_BKS.any(-1)
    kl_B = torch.zeros(size, device=score_BKS.device)
    if teacher is not None:
        with torch.no_grad(), autocast(config.device):
            taught_BKS, deemed_BK, _ = score_spans_by_ends(teacher, reads, shape)
        ours_BS, theirs_BS = (joint(*each) for each in ((score_BKS, relevance_BK), (taught_BKS, deemed_BK)))
        kl_B = distilled_kl(ours_BS, theirs_BS, temperature=config.temperature)
    if config.apart:
        one_BK1S, alone_BK1, own_BK1S = score_BKS.unsqueeze(2), relevance_BK.unsqueeze(2), correct_BKS.unsqueeze(2)
        nll_BK = span_nll(one_BK1S, alone_BK1, own_BK1S, hard=hard)
        nll_B = nll_BK.sum(-1) / right_BK.sum(-1).clamp_min(1)
    else:
        nll_B = span_nll(score_BKS, relevance_BK, correct_BKS, hard=hard)
    present_BK = reads.arrange_by_question(torch.ones_like(reads.rank_N, dtype=torch.float), shape, 0.0)
    bce_BK = binary_cross_entropy_with_logits(relevance_BK, right_BK.float(), reduction="none")
    relevance_B = (bce_BK * present_BK).sum(-1) / present_BK.sum(-1).clamp_min(1)
    return Losses(nll_B, relevance_B, kl_B, right_BK.any(-1))


def joint(score_BKS: Tensor, relevance_BK: Tensor) -> Tensor:
    """``[B, K S]``: the scores of all spans of all passages of a question."""
    return (score_BKS + relevance_BK.unsqueeze(-1)).flatten(1)


def is_hard(step: int, config: ReaderConfig) -> bool:
    """Whether only the best right span counts: never at first, in the end in four steps of five."""
    if config.loss == "marginal":
        return False
    share = min(step / (config.tau * config.steps), MOST_HARD)
    return bool(np.random.default_rng([config.seed, 2, step]).random() < share)
