"""RAG: read each passage separately, and marginalise over all passages (Lewis et al. 2020).

Legend: B questions, K passages per question, N = B * K pairs of question and passage (ordered by question), T tokens of
an answer, M positions that count.
"""

from collections.abc import Generator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ragqa.errors import BadInput
from ragqa.models.generation.decoding import Candidate, decode_sequence, decode_token, stream_token
from ragqa.models.generation.generator_kinds import MAX_ANSWER, MAX_INPUT, GeneratorKind
from ragqa.models.generation.search import SearchSettings
from ragqa.models.generation.seq2seq import EncoderStates, Seq2Seq
from ragqa.models.generation.template import RAG, PairEncoder, Template
from ragqa.models.generation.tokenizer import Seq2SeqTokenizer
from ragqa.models.inputs import Inputs
from ragqa.objectives import IGNORED, gold_log_probs, label_means, rag_token_nll, sequence_nll, token_nll
from ragqa.types import Passage

Marginal = Literal["token", "sequence"]


class PassageGenerator(nn.Module):
    """Base class of generators: a seq2seq model that answers questions from passages.

    A generator includes the settings of its training, such as the template and the number of passages.
    """

    def __init__(
        self,
        seq2seq: Seq2Seq,
        *,
        template: Template,
        passages: int,
        max_input: int = MAX_INPUT,
        max_answer: int = MAX_ANSWER,
        retriever: str | None = None,
        question_tokens: Seq2SeqTokenizer | None = None,
    ) -> None:
        """Combine a seq2seq model and the settings of its training.

        Args:
            seq2seq: the model.
            template: template of the text of a pair of question and passage.
            passages: number of passages per question, K.
            max_input: maximum length of a pair in tokens; the model can lower it.
            max_answer: maximum length of an answer in tokens, including the end; the model can lower it.
            retriever: fingerprint of the dual encoder whose scores were the prior in training, or name of the published
                RAG checkpoint; None if unknown.
            question_tokens: tokenizer of the question tower, if training used questions in its spelling.
        """
        super().__init__()
        self.seq2seq, self.template, self.passages = seq2seq, template, passages
        self.max_input, self.max_answer = min(max_input, seq2seq.max_tokens), min(max_answer, seq2seq.max_tokens)
        self.retriever, self.question_tokens = retriever, question_tokens

    def make_inputs(self, questions: Sequence[str], passages: Sequence[Sequence[Passage]]) -> Inputs:
        """Encode the N pairs of B questions and their passages, ordered by question.

        Args:
            questions: B questions.
            passages: passages of each question, at most K.

        Raises:
            BadInput: the template alone is longer than the input.
        """
        return self._pairs.encode(self._respell(questions), passages)

    def can_read(self, question: str, passage: Passage, end: int) -> bool:
        """Return True if the input of a pair contains all characters of the passage before ``end``.

        Raises:
            BadInput: as for ``make_inputs``.
        """
        return self._pairs.can_read(self._respell([question])[0], passage, end)

    @property
    def _pairs(self) -> PairEncoder:
        return PairEncoder(self.seq2seq.tokens, self.template, self.max_input)

    def _respell(self, questions: Sequence[str]) -> Sequence[str]:
        return questions if self.question_tokens is None else self.question_tokens.respell(questions)


class RagGenerator(PassageGenerator):
    """RAG-Token, RAG-Sequence, or a closed book if the template has no passage (then K = 1)."""

    def __init__(
        self,
        seq2seq: Seq2Seq,
        *,
        marginal: Marginal = "token",
        template: Template = RAG,
        passages: int = 5,
        **settings: Any,
    ) -> None:
        """Combine a seq2seq model, a marginal and the settings of ``PassageGenerator``.

        The marginal is ``token`` (RAG-Token) or ``sequence`` (RAG-Sequence). Other arguments: as for
        ``PassageGenerator``.

        Raises:
            BadInput: the marginal is unknown.
        """
        if marginal not in ("token", "sequence"):
            raise BadInput(f"marginal {marginal!r}: choose token or sequence")
        super().__init__(seq2seq, template=template, passages=passages, **settings)
        self.marginal = marginal

    @property
    def kind(self) -> GeneratorKind:
        """Kind of generator: RAG-Token, RAG-Sequence or closed book."""
        if self.template.is_closed_book:
            return GeneratorKind.CLOSED_BOOK
        return GeneratorKind.RAG_TOKEN if self.marginal == "token" else GeneratorKind.RAG_SEQUENCE

    def compute_nll(self, inputs: Inputs, relevance_BK: Tensor, labels_BT: Tensor, *, smoothing: float = 0.0) -> Tensor:
        """Return -log p(y|x) of each answer ``[B]`` in nats, marginalised over passages.

        Args:
            inputs: N pairs.
            relevance_BK: ``[B, K]`` scores of the passages, which get gradients; -inf where there is no passage.
            labels_BT: ``[B, T]`` labels, ``IGNORED`` after the answer's end.
            smoothing: weight of label smoothing, from 0 to 1.
        """
        return self.score_labels(inputs, relevance_BK, labels_BT, smoothing=smoothing)[0]

    def score_labels(
        self, inputs: Inputs, relevance_BK: Tensor, labels_BT: Tensor, *, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Return the losses of answers, and their log-probabilities under each passage.

        Arguments: as for ``compute_nll``.

        Returns:
            The losses -log p(y|x) ``[B]`` with label smoothing, and log p(y_i|x,z,y_<i) ``[B, K, T]`` without it, which
            is 0 at ``IGNORED``; both in nats.
        """
        states = self.seq2seq.encode(inputs)
        return score_answers(self.seq2seq, states, relevance_BK, labels_BT, self.marginal, smoothing)

    @torch.no_grad()
    def generate(
        self, inputs: Inputs, relevance_BK: Tensor, search: SearchSettings, *, fast: bool = False
    ) -> list[list[Candidate]]:
        """Return the best answers of each question, best first.

        Args:
            inputs: N pairs.
            relevance_BK: ``[B, K]`` scores of the passages; -inf where there is no passage.
            search: settings of the search.
            fast: True for fast decoding (see ``decode_sequence``); it has an effect on RAG-Sequence only.

        Raises:
            BadInput: a question has no passage.
        """
        states = self.seq2seq.encode(inputs)
        if self.marginal == "token":
            return decode_token(self.seq2seq, states, relevance_BK, search)
        return decode_sequence(self.seq2seq, states, relevance_BK, search, fast=fast)

    @torch.no_grad()
    def stream(
        self, inputs: Inputs, relevance_BK: Tensor, search: SearchSettings
    ) -> Generator[Tensor, None, list[list[Candidate]]]:
        """Yield the next token ``[B]`` of each answer at each step of greedy decoding.

        RAG-Sequence is decoded like RAG-Token. Arguments, returned value and errors: as for ``generate``, without
        ``fast`` and with one beam in ``search``.
        """
        return (yield from stream_token(self.seq2seq, self.seq2seq.encode(inputs), relevance_BK, search))


def score_answers(
    model: Seq2Seq, states: EncoderStates, relevance_BK: Tensor, labels_BT: Tensor, marginal: Marginal, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Return the losses of answers, and their log-probabilities under each passage.

    Arguments and returned tensors: as for ``RagGenerator.score_labels``, with the encoded pairs ``states`` instead of
    inputs. Both marginals are equal with K = 1.
    """
    passages, counted_BT = relevance_BK.shape[1], labels_BT != IGNORED
    labels_NT = labels_BT.repeat_interleave(passages, 0)
    logits_MV = model.compute_logits(states, model.shift_labels(labels_NT), labels_NT != IGNORED)
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
    """Put values in order at the chosen positions; other positions are 0."""
    return torch.zeros_like(chosen_BKT, dtype=values.dtype).masked_scatter(chosen_BKT, values.flatten())


def _smoothed_token_nll(logits_MV: Tensor, relevance_BK: Tensor, labels_BT: Tensor, smoothing: float) -> Tensor:
    """Compute the RAG-Token loss with label smoothing, one question at a time.

    Only counted positions have logits, and questions differ in the number of these positions.
    """
    passages, counts = relevance_BK.shape[1], (labels_BT != IGNORED).sum(-1).tolist()
    blocks = logits_MV.split([passages * count for count in counts])
    losses = [
        rag_token_nll(block.view(1, passages, count, -1), relevance_1K, row[row != IGNORED][None], smoothing=smoothing)
        for block, count, relevance_1K, row in zip(blocks, counts, relevance_BK.split(1), labels_BT, strict=True)
    ]
    return torch.cat(losses)
