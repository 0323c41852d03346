"""RAG: a seq2seq that reads one passage at a time and marginalises over all of them (Lewis et al. 2020).

Legend: B questions, K passages per question, N = B * K pairs, T tokens of an answer, M positions that count.
"""

from collections.abc import Generator, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from ragqa.errors import BadInput
from ragqa.models.generation.decoding import Candidate, decode_sequence, decode_token, stream_token
from ragqa.models.generation.kinds import MAX_ANSWER, MAX_INPUT, GeneratorKind
from ragqa.models.generation.search import SearchSettings
from ragqa.models.generation.seq2seq import EncoderStates, Seq2Seq
from ragqa.models.generation.template import RAG, Template, assemble_inputs, fits_input
from ragqa.models.generation.tokenizer import Seq2SeqTokenizer
from ragqa.models.inputs import Inputs
from ragqa.objectives import IGNORED, gold_log_probs, label_means, rag_token_nll, sequence_nll, token_nll
from ragqa.types import Passage

Marginal = Literal["token", "sequence"]


class RagGenerator(nn.Module):
    """RAG-Token or RAG-Sequence over a seq2seq; with a template without passage (K = 1), the closed-book reader."""

    def __init__(
        self,
        seq2seq: Seq2Seq,
        *,
        marginal: Marginal = "token",
        template: Template = RAG,
        passages: int = 5,
        max_input: int = MAX_INPUT,
        max_answer: int = MAX_ANSWER,
        retriever: str | None = None,
        question_tokens: Seq2SeqTokenizer | None = None,
    ) -> None:
        """Wrap ``seq2seq`` with the settings of its training.

        Args:
            seq2seq: the model.
            marginal: ``token`` or ``sequence``.
            template: text of a pair.
            passages: number of passages per question, K.
            max_input: maximum length of a pair in tokens.
            max_answer: maximum length of an answer in tokens.
            retriever: fingerprint of the dual encoder whose scores were the prior; None if unknown.
            question_tokens: tokenizer of the question tower, if questions were respelled by it.
        """
        super().__init__()
        if marginal not in ("token", "sequence"):
            raise BadInput(f"marginal {marginal!r}: choose token or sequence")
        self.seq2seq, self.marginal, self.template = seq2seq, marginal, template
        self.passages, self.max_input = passages, min(max_input, seq2seq.max_tokens)
        self.max_answer, self.retriever = min(max_answer, seq2seq.max_tokens), retriever
        self.question_tokens = question_tokens

    @property
    def kind(self) -> GeneratorKind:
        """Kind of reader: RAG-Token, RAG-Sequence or closed book."""
        if self.template.closed:
            return GeneratorKind.CLOSED_BOOK
        return GeneratorKind.RAG_TOKEN if self.marginal == "token" else GeneratorKind.RAG_SEQUENCE

    def inputs(self, questions: Sequence[str], passages: Sequence[Sequence[Passage]]) -> Inputs:
        """Encode the pairs of questions and passages with ``assemble_inputs``."""
        return assemble_inputs(self.seq2seq.tokens, self.template, self._respell(questions), passages, self.max_input)

    def _respell(self, questions: Sequence[str]) -> Sequence[str]:
        return questions if self.question_tokens is None else self.question_tokens.respell(questions)

    def reads(self, question: str, passage: Passage, end: int) -> bool:
        """Tell whether the input contains the passage up to the character ``end``."""
        return fits_input(
            self.seq2seq.tokens, self.template, self._respell([question])[0], passage, end, self.max_input
        )

    def nll(
        self,
        inputs: Inputs,
        relevance_BK: Tensor,
        labels_BT: Tensor,
        *,
        marginal: Marginal | None = None,
        smoothing: float = 0.0,
    ) -> Tensor:
        """Return -log p(y|x) of each answer ``[B]``, see ``objectives.rag_token_nll`` and ``rag_sequence_nll``.

        Args:
            inputs: N pairs.
            relevance_BK: live scores, whose gradient trains the towers; -inf where there is no passage.
            labels_BT: labels, ``IGNORED`` after the answer's end.
            marginal: by default the generator's own.
            smoothing: share of label smoothing.
        """
        return self.scores(inputs, relevance_BK, labels_BT, marginal=marginal, smoothing=smoothing)[0]

    def scores(
        self,
        inputs: Inputs,
        relevance_BK: Tensor,
        labels_BT: Tensor,
        *,
        marginal: Marginal | None = None,
        smoothing: float = 0.0,
    ) -> tuple[Tensor, Tensor]:
        """Return ``nll``, and log p(y_i|x,z,y_<i) of the labels ``[B, K, T]``; 0 at positions that do not count."""
        states = self.seq2seq.encode(inputs)
        return score_answers(self.seq2seq, states, relevance_BK, labels_BT, marginal or self.marginal, smoothing)

    def generate(
        self, inputs: Inputs, relevance_BK: Tensor, search: SearchSettings, *, fast: bool = False
    ) -> list[list[Candidate]]:
        """Return the best answers of each question; ``fast`` is for RAG-Sequence, see ``decoding.decode_sequence``.

        Raises:
            BadInput: a question has no passage.
        """
        with torch.no_grad():
            states = self.seq2seq.encode(inputs)
        if self.marginal == "token":
            return decode_token(self.seq2seq, states, relevance_BK, search)
        return decode_sequence(self.seq2seq, states, relevance_BK, search, fast=fast)

    def stream(
        self, inputs: Inputs, relevance_BK: Tensor, search: SearchSettings
    ) -> Generator[Tensor, None, list[list[Candidate]]]:
        """Yield the tokens of greedy RAG-Token step by step, as ``stream_token`` does."""
        with torch.no_grad():
            states = self.seq2seq.encode(inputs)
        return (yield from stream_token(self.seq2seq, states, relevance_BK, search))


def score_answers(
    model: Seq2Seq, states: EncoderStates, relevance_BK: Tensor, labels_BT: Tensor, marginal: Marginal, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Compute ``RagGenerator.scores`` from encoded pairs; with K = 1 the two marginals are equal."""
    passages, counted_BT = relevance_BK.shape[1], labels_BT != IGNORED
    labels_NT = labels_BT.repeat_interleave(passages, 0)
    logits_MV = model.logits(states, model.decoder_inputs(labels_NT), labels_NT != IGNORED)
    chosen_BKT = counted_BT.unsqueeze(1).expand(-1, passages, -1)
    labels_M1 = labels_BT.unsqueeze(1).expand_as(chosen_BKT)[chosen_BKT].unsqueeze(1)
    gold_BKT = _scatter(gold_log_probs(logits_MV[:, None, None], labels_M1), chosen_BKT)
    if marginal == "token" and smoothing:
        return _smoothed_token_nll(logits_MV, relevance_BK, labels_BT, smoothing), gold_BKT
    if marginal == "token":
        return token_nll(gold_BKT, relevance_BK, counted_BT), gold_BKT
    means = _scatter(label_means(logits_MV[:, None, None], labels_M1), chosen_BKT) if smoothing else None
    nll_B = sequence_nll(
        gold_BKT, relevance_BK, counted_BT, smoothing=smoothing, means=means, vocabulary=logits_MV.shape[-1]
    )
    return nll_B, gold_BKT


def _scatter(values: Tensor, chosen_BKT: Tensor) -> Tensor:
    """Scatter values, in order, to the chosen positions; the others are 0."""
    return torch.zeros_like(chosen_BKT, dtype=values.dtype).masked_scatter(chosen_BKT, values.flatten())


def _smoothed_token_nll(logits_MV: Tensor, relevance_BK: Tensor, labels_BT: Tensor, smoothing: float) -> Tensor:
    """Compute RAG-Token with smoothing, question by question, because only counted positions have logits."""
    passages, counts = relevance_BK.shape[1], (labels_BT != IGNORED).sum(-1).tolist()
    blocks = logits_MV.split([passages * count for count in counts])
    losses = [
        rag_token_nll(block.view(1, passages, count, -1), relevance_1K, row[row != IGNORED][None], smoothing=smoothing)
        for block, count, relevance_1K, row in zip(blocks, counts, relevance_BK.split(1), labels_BT, strict=True)
    ]
    return torch.cat(losses)
