"""Extractive reader of ORQA and REALM, whose span score depends on start and end together.

Legend: N passages, L tokens, W longest span in tokens, H width of the scoring layer, D width of the encoder.
"""

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu
from transformers import AutoConfig, AutoModel

from ragqa.models.pretrained import (
    encoder_options,
    load_encoder_module,
    load_module_weights,
    max_input_tokens,
    save_module,
    segment_inputs,
)

HIDDEN, MAX_SPAN = 256, 10
"""H and W of ORQA and REALM."""


class MlpSpanReader(nn.Module):
    """Scores every span by linear(ReLU(linear(start) + linear(end)), normalised).

    This is the released code of ORQA (Lee et al. 2019, section 4.1), which REALM reuses. The retrieval score of a
    passage is added to the scores of its spans unscaled, since both are trained together.
    """

    kind: ClassVar[str] = "mlp"
    prior: ClassVar[str] = "raw"
    outputs: ClassVar[tuple[str, ...]] = ("spans",)

    def __init__(self, encoder: nn.Module, *, hidden: int = HIDDEN, max_span: int = MAX_SPAN) -> None:
        super().__init__()
        self.encoder = encoder
        config: Any = encoder.config
        self.config = config
        """Configuration of the encoder."""
        self.max_span = max_span
        config.reader, config.reader_hidden, config.reader_span = self.kind, hidden, max_span
        self.project = nn.Linear(config.hidden_size, 2 * hidden)
        self.norm = nn.LayerNorm(hidden, eps=1e-3)
        self.score = nn.Linear(hidden, 1)
        for layer in (self.project, self.score):
            nn.init.trunc_normal_(layer.weight, std=0.02, a=-0.04, b=0.04)
            nn.init.zeros_(layer.bias)

    @property
    def max_tokens(self) -> int:
        """Longest sequence in tokens."""
        return max_input_tokens(self.config)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """Score all spans of three ``[N, L]`` integer tensors.

        Returns:
            ``[N, L, W]``; element (i, w) is the score of the tokens i … i + w. Spans that leave their passage have
            scores, too; ``Window.find_possible_spans`` marks the allowed ones.
        """
        hidden_NLD = self.encoder(
            input_ids=input_ids, attention_mask=attention_mask, **segment_inputs(self.config, token_type_ids)
        ).last_hidden_state
        with torch.autocast(hidden_NLD.device.type, enabled=False):  # bfloat16 would round scores near 10 to 1/16
            start_NLH, end_NLH = self.project(hidden_NLD.float()).chunk(2, -1)
            length = end_NLH.shape[1]
            end_NLH = pad(end_NLH, (0, 0, 0, self.max_span - 1))
            end_NLWH = torch.stack([end_NLH[:, w : w + length] for w in range(self.max_span)], 2)
            score_NLW: Tensor = self.score(self.norm(relu(start_NLH.unsqueeze(2) + end_NLWH))).squeeze(-1)
        return score_NLW

    @classmethod
    def from_encoder(cls, path: str | Path, *, hidden: int = HIDDEN, max_span: int = MAX_SPAN) -> "MlpSpanReader":
        """Put a new scoring layer on the encoder at ``path`` (a directory or a hub name)."""
        return cls(load_encoder_module(path), hidden=hidden, max_span=max_span)

    def save(self, path: Path) -> None:
        """Write ``config.json`` (the encoder's, which names the reader) and ``model.safetensors`` into ``path``."""
        save_module(self, path)

    @classmethod
    def load(cls, path: Path) -> "MlpSpanReader":
        """Load the reader that ``save`` wrote into ``path``.

        Raises:
            DamagedArtefact: the weights do not fit the configuration.
        """
        config = AutoConfig.from_pretrained(path)
        encoder = AutoModel.from_config(config, **encoder_options(config))
        reader = cls(encoder, hidden=config.reader_hidden, max_span=config.reader_span)
        load_module_weights(reader, path)
        return reader
