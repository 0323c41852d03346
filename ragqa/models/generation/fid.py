"""Fusion-in-Decoder: encode each passage with its question, decode over all passages.

Source: Izacard & Grave 2021.

Legend: B questions, K passages per question, L tokens of a pair (question and passage), S tokens of all pairs of a
question, R answers, T tokens of an answer, D width.
"""

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ragqa.models import attention
from ragqa.models.generation.decoding import MAX_CACHED, Candidate, decode_token, stream_token
from ragqa.models.generation.generator_kinds import GeneratorKind
from ragqa.models.generation.rag import PassageGenerator, score_answers
from ragqa.models.generation.search import SearchSettings
from ragqa.models.generation.seq2seq import EncoderStates, Seq2Seq
from ragqa.models.generation.template import FID, Template
from ragqa.models.inputs import Inputs, pad_rows


class FusionInDecoder(PassageGenerator):
    """Generator whose decoder attends to all passages of a question (Fusion-in-Decoder)."""

    kind = GeneratorKind.FID

    def __init__(self, seq2seq: Seq2Seq, *, template: Template = FID, passages: int = 10, **settings: Any) -> None:
        """Combine a model and training settings; arguments: as for ``PassageGenerator``."""
        super().__init__(seq2seq, template=template, passages=passages, **settings)

    def compute_nll(self, inputs: Inputs, relevance_BK: Tensor, labels_BT: Tensor, *, smoothing: float = 0.0) -> Tensor:
        """Return -log p(y|x, all passages) of each answer ``[B]`` in nats.

        Arguments: as for ``RagGenerator.compute_nll``, but only -inf in ``relevance_BK`` has an effect.
        """
        states, _ = self._fuse(inputs, relevance_BK)
        alone_B1 = torch.zeros_like(relevance_BK[:, :1])
        return score_answers(self.seq2seq, states, alone_B1, labels_BT, "token", smoothing)[0]

    @torch.no_grad()
    def generate(self, inputs: Inputs, relevance_BK: Tensor, search: SearchSettings) -> list[list[Candidate]]:
        """Return the best answers of each question, best first.

        Arguments: as for ``RagGenerator.generate`` without ``fast``; only -inf in ``relevance_BK`` has an effect.
        """
        states, owner_BS = self._fuse(inputs, relevance_BK)
        candidates_B = decode_token(self.seq2seq, states, torch.zeros_like(relevance_BK[:, :1]), search)
        return self._attribute_passages(states, owner_BS, candidates_B, relevance_BK.shape[1])

    @torch.no_grad()
    def stream(
        self, inputs: Inputs, relevance_BK: Tensor, search: SearchSettings
    ) -> Generator[Tensor, None, list[list[Candidate]]]:
        """Yield the next token ``[B]`` of each answer at each step of a greedy search.

        Arguments and returned value: as for ``generate``, but ``search`` has one beam.
        """
        states, owner_BS = self._fuse(inputs, relevance_BK)
        candidates_B = yield from stream_token(self.seq2seq, states, torch.zeros_like(relevance_BK[:, :1]), search)
        return self._attribute_passages(states, owner_BS, candidates_B, relevance_BK.shape[1])

    def _fuse(self, inputs: Inputs, relevance_BK: Tensor) -> tuple[EncoderStates, Tensor]:
        """Return the joined states of each question's pairs, and each token's passage ``[B, S]``."""
        states = self.seq2seq.encode(inputs)
        questions, passages = relevance_BK.shape
        mask_BKL = states.mask_NL.view(questions, passages, -1) & ~relevance_BK.isneginf().unsqueeze(-1)
        mask_BS = mask_BKL.flatten(1)
        order_BS = (~mask_BS).byte().argsort(dim=-1, stable=True)[:, : int(mask_BS.sum(-1).max())]
        hidden_BSD = states.hidden_NLD.view(questions, mask_BS.shape[1], -1)
        hidden_BSD = hidden_BSD.gather(1, order_BS.unsqueeze(-1).expand(-1, -1, hidden_BSD.shape[-1]))
        return EncoderStates(hidden_BSD, mask_BS.gather(1, order_BS)), order_BS // mask_BKL.shape[2]

    def _attribute_passages(
        self, states: EncoderStates, owner_BS: Tensor, candidates_B: list[list[Candidate]], passages: int
    ) -> list[list[Candidate]]:
        """Set the posterior of each candidate to the shares of attention to its passages.

        FiD has no posterior over passages. The decoder's attention, averaged over layers, heads and the tokens of the
        answer, indicates a passage's relevance (Izacard & Grave 2021b, section 3.1).
        """
        rules, device = self.seq2seq.conventions, owner_BS.device
        answers = [(row, candidate) for row, candidates in enumerate(candidates_B) for candidate in candidates]
        inputs = pad_rows([[rules.start, *answer.ids[:-1]] for _, answer in answers], rules.pad).to(device)
        rows_R = torch.tensor([row for row, _ in answers], device=device)
        states_R = states[rows_R]
        config, size = self.seq2seq.decoder_config, inputs.ids_NL.shape[1] * states.mask_NL.shape[1]
        weights = config.num_hidden_layers * config.num_attention_heads * size
        parts = []
        for part in torch.arange(len(answers), device=device).split(max(1, MAX_CACHED // weights)):
            with attention.record_weights() as layers:
                self.seq2seq.compute_logits(states_R[part], inputs.ids_NL[part])
            parts.append(torch.stack([layer.mean(1) for layer in layers]).mean(0))
        weight_RTS = torch.cat(parts)
        mean_RS = (weight_RTS * inputs.mask_NL.unsqueeze(-1)).sum(1) * states_R.mask_NL
        share_RK = mean_RS.new_zeros(len(answers), passages).scatter_add_(1, owner_BS[rows_R], mean_RS)
        shares = iter((share_RK / share_RK.sum(-1, keepdim=True)).tolist())
        return [
            [replace(answer, posterior=tuple(next(shares))) for answer in candidates] for candidates in candidates_B
        ]
