"""Readers that copy from passages, so that a retriever learns from them within a few steps."""

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import torch
from torch import Tensor, nn

from ragqa.models.generation.template import RAG
from ragqa.objectives import IGNORED, rag_sequence_nll, rag_token_nll
from ragqa.runtime.tokens import TextTokenizer
from ragqa.types import Passage


class CopyingReader(nn.Module):
    """A masked language model that predicts the objects in the passage at each mask."""

    max_tokens = 64

    def __init__(self, objects: list[int], vocabulary: int) -> None:
        super().__init__()
        self.is_object = torch.zeros(vocabulary, dtype=torch.bool).index_fill(0, torch.tensor(objects), True)

    def forward(self, ids_NL: Tensor, mask_NL: Tensor, types_NL: Tensor, positions_NM: Tensor) -> Tensor:
        """Return logits [N, M, V]: 8 for objects in the passage, 0 otherwise."""
        copied_NL = self.is_object[ids_NL] & (types_NL == 1)
        logits_NV = torch.zeros(len(ids_NL), len(self.is_object)).scatter_reduce(1, ids_NL, 8.0 * copied_NL, "amax")
        return logits_NV.unsqueeze(1).expand(-1, positions_NM.shape[1], -1)

    def save(self, out: Path) -> None:
        """Do nothing, because there are no weights."""


class CopyingGenerator(nn.Module):
    """A generator that gives high scores to the objects in a passage."""

    passages, template = 7, RAG

    def __init__(self, objects: list[str], tokenizer: TextTokenizer, marginal: Literal["token", "sequence"]) -> None:
        super().__init__()
        self.kind, self.marginal = f"rag-{marginal}", marginal
        self._ids = {name: tokenizer.tokenize(name).ids for name in objects}
        self._size = 1 + max(map(max, self._ids.values()))
        self.seq2seq = SimpleNamespace(tokens=SimpleNamespace(make_labels=self.labels))

    def labels(self, answers: list[str], longest: int) -> Tensor:
        return torch.tensor([self._ids[answer] for answer in answers])

    def make_inputs(self, texts: list[str], passages: list[list[Passage]]) -> "CopiedInputs":
        count = max(1, *map(len, passages))
        logits = torch.zeros(len(texts), count, 2, self._size)
        for row, found in enumerate(passages):
            for place, passage in enumerate(found):
                words = passage.text.split()
                for pair in pairwise(words):
                    for at, token in enumerate(self._ids.get(" ".join(pair), [])):
                        logits[row, place, at, token] = 8.0
        return CopiedInputs(logits)

    def score_labels(
        self, inputs: "CopiedInputs", relevance_BK: Tensor, labels_BT: Tensor, *, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        assert not (labels_BT == IGNORED).any()
        nll = rag_token_nll if self.marginal == "token" else rag_sequence_nll
        nll_B = nll(inputs.ids_NL, relevance_BK, labels_BT)
        labels = labels_BT[:, None, :, None].expand(*inputs.ids_NL.shape[:3], 1)
        return nll_B, inputs.ids_NL.log_softmax(-1).gather(-1, labels).squeeze(-1)


class CopiedInputs:
    """Inputs of the copying generator: logits in place of ids."""

    def __init__(self, ids_NL: Tensor) -> None:
        self.ids_NL = ids_NL

    def to(self, device: str) -> "CopiedInputs":
        return self
