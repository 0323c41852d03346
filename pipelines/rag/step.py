"""Loss of RAG (Lewis et al. 2020): retrieve, score answers, measure retrieval.

Legend: B questions, K passages of a question, T tokens of an answer, D width.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from pipelines.common import generator_training
from pipelines.common.run import BatchLoss
from pipelines.common.training_index import TrainingIndex
from pipelines.rag.config import RagConfig
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.generation.rag import RagGenerator
from ragqa.models.tower import Tower
from ragqa.objectives import IGNORED, sequence_nll, token_nll
from ragqa.training.health import measure_retrieval
from ragqa.training.meter import count_flops
from ragqa.training.precision import autocast
from ragqa.types import Question


class Rag(nn.Module):
    """Modules of RAG in training: the question tower or both towers, and the generator."""

    def __init__(self, retriever: DualEncoder | Tower, generator: RagGenerator) -> None:
        """Combine a retriever, or only its question tower, with a generator."""
        super().__init__()
        self.retriever, self.generator = retriever, generator
        self.token_flops = generator_training.count_token_flops(generator.seq2seq)

    @property
    def questions(self) -> Tower:
        """Question tower."""
        return self.retriever if isinstance(self.retriever, Tower) else self.retriever.questions


@dataclass(frozen=True)
class AnswerLikelihoods:
    """Likelihoods of the answers to a batch of questions."""

    nll_B: Tensor
    """Loss of each question in nats, with label smoothing."""
    gold_BKT: Tensor
    """log p(y_i | x, z, y_<i) of token i of the answer y to question x, with passage z."""
    alone_B1T: Tensor
    """log p(y_i | x, y_<i) with an empty passage, without gradient."""
    relevance_BK: Tensor
    """Retrieval scores of the passages; -inf for a missing passage."""
    rows_BK: np.ndarray
    """Rows of the passages in the corpus; ``NOT_FOUND`` for a missing passage."""
    counted_BT: Tensor
    """True for tokens of the answers, False for padding."""
    tokens: int
    """Number of tokens of encoded passages, inputs and answers, with padding; the empty passage does not count."""
    flops: float
    """Floating-point operations of the step in this process."""


def score_answers(
    model: Rag, index: TrainingIndex, texts: list[str], answers: Sequence[str], config: RagConfig
) -> AnswerLikelihoods:
    """Compute the likelihood of each answer with each passage that its question retrieves.

    Args:
        model: modules in training.
        index: passages to search.
        texts: B questions.
        answers: answer to each question.
        config: settings of the run.
    """
    generator = model.generator
    query_BD = index.encode(model.questions, texts, config.device)
    rows_BK = index.propose(query_BD.detach().float().cpu().numpy(), config.k)
    passages = [index.passages(rows) for rows in rows_BK]
    rows_BK = rows_BK[:, : max(1, *map(len, passages))]
    relevance_BK = generator_training.mask_missing(index.score(query_BD, rows_BK), rows_BK)
    labels_BT = generator.seq2seq.tokens.make_labels(answers, config.writing.max_answer).to(config.device)
    inputs = generator.make_inputs(texts, passages).to(config.device)
    alone = generator.make_inputs(texts, [[] for _ in texts]).to(config.device)
    with autocast(config.device):
        nll_B, gold_BKT = generator.score_labels(inputs, relevance_BK, labels_BT, smoothing=config.smoothing)
        with torch.no_grad():  # measuring the worth of retrieval takes about 1 / (3 K) of the step
            _, alone_B1T = generator.score_labels(alone, torch.zeros_like(relevance_BK[:, :1]), labels_BT)
    read_flops, write_flops = model.token_flops
    tokens = inputs.ids_NL.numel() + rows_BK.size * labels_BT.shape[1]
    # A pass without gradient is a third of the operations of a training pass.
    flops = read_flops * (inputs.ids_NL.numel() + alone.ids_NL.numel() / 3)
    flops += write_flops * labels_BT.numel() * (rows_BK.shape[1] + 1 / 3)
    tokens += index.encoded_tokens
    flops += count_flops(model.retriever, index.encoded_tokens)
    counted_BT = labels_BT != IGNORED
    return AnswerLikelihoods(nll_B, gold_BKT, alone_B1T, relevance_BK, rows_BK, counted_BT, tokens, flops)


def compute_loss(
    model: Rag, index: TrainingIndex, questions: list[Question], answers: list[str], config: RagConfig
) -> BatchLoss:
    """Return RAG's loss of a batch, with figures of retrieval (section 2 of the paper).

    Three figures are means over the answers, in nats: ``loss`` is the loss to minimise, ``nll`` leaves out label
    smoothing, and ``nll_alone`` leaves out label smoothing and passages.

    The argument ``questions`` has this process's questions; other arguments are as for ``score_answers``.
    """
    scored = score_answers(model, index, [question.text for question in questions], answers, config)
    loss = scored.nll_B.mean()
    with torch.no_grad():
        marginal_nll = token_nll if config.marginal == "token" else sequence_nll
        nll = marginal_nll(scored.gold_BKT, scored.relevance_BK, scored.counted_BT).mean().item()
        one_passage_B1 = torch.zeros_like(scored.relevance_BK[:, :1])
        alone = marginal_nll(scored.alone_B1T, one_passage_B1, scored.counted_BT).mean().item()
    health = measure_retrieval(
        scored.gold_BKT,
        scored.alone_B1T,
        scored.relevance_BK,
        scored.counted_BT,
        scored.rows_BK,
        has_null=False,
    )
    figures = {"nll": nll, "nll_alone": alone, "loss": loss.item(), **health}
    counted_B = torch.ones_like(scored.nll_B)
    return BatchLoss.from_mean(loss, counted_B, tokens=scored.tokens, flops=scored.flops, **figures)
