"""Extractive reader: an encoder over question and passage, and one linear head.

Legend: N passages, L tokens, W longest span in tokens, D width.
"""

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel

from ragqa.errors import DamagedArtefact
from ragqa.models.pretrained import (
    encoder_options,
    load_encoder_module,
    load_module_weights,
    max_input_tokens,
    save_module,
    segment_inputs,
)

IMPOSSIBLE = -1e4
"""Logit of an impossible span: e^-1e4 is 0 in float32, and unlike with -inf no gradient is NaN."""


class SpanReader(nn.Module):
    """Scores the start and the end of an answer at every token, and the passage as a whole.

    Start and end are scored as in BERT (Devlin et al. 2019, section 4.2), and the passage's relevance from its first
    token as in DPR's reader (Karpukhin et al. 2020, section 6.1).
    """

    kind: ClassVar[str] = "ends"
    prior: ClassVar[str] = "spread"
    outputs: ClassVar[tuple[str, ...]] = ("start", "end", "relevance")

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        config: Any = encoder.config
        self.config = config
        """Configuration of the encoder."""
        config.reader = self.kind
        self.head = nn.Linear(config.hidden_size, 3)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    @property
    def max_tokens(self) -> int:
        """Longest sequence in tokens."""
        return max_input_tokens(self.config)

    @property
    def max_span(self) -> int | None:
        """Longest answer in tokens of its training (``reader_span`` of the configuration), or None."""
        value = getattr(self.config, "reader_span", None)
        if value is not None and (not isinstance(value, int) or value < 1):
            raise DamagedArtefact(f"config.json of a reader has reader_span: {value!r}, not a number of wordpieces")
        return value

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Score three ``[N, L]`` integer tensors; return start ``[N, L]``, end ``[N, L]`` and relevance ``[N]``."""
        hidden_NLD = self.encoder(
            input_ids=input_ids, attention_mask=attention_mask, **segment_inputs(self.config, token_type_ids)
        ).last_hidden_state
        with torch.autocast(hidden_NLD.device.type, enabled=False):  # bfloat16 would round scores near 10 to 1/16
            logits_NL3 = self.head(hidden_NLD.float())
        return logits_NL3[..., 0], logits_NL3[..., 1], logits_NL3[:, 0, 2]

    @classmethod
    def from_encoder(cls, path: str | Path) -> "SpanReader":
        """Put a new head on the encoder at ``path`` (a directory or a hub name)."""
        return cls(load_encoder_module(path))

    def save(self, path: Path) -> None:
        """Write ``config.json`` (the encoder's) and ``model.safetensors`` into ``path``."""
        save_module(self, path)

    @classmethod
    def load(cls, path: Path) -> "SpanReader":
        """Load the reader that ``save`` wrote into ``path``.

        Raises:
            DamagedArtefact: the weights do not fit the configuration.
        """
        config = AutoConfig.from_pretrained(path)
        reader = cls(AutoModel.from_config(config, **encoder_options(config)))
        load_module_weights(reader, path)
        return reader


def compute_span_logits(start_NL: Tensor, end_NL: Tensor, inside_NL: Tensor, width: int) -> Tensor:
    """Add start and end scores to span scores.

    Args:
        start_NL: scores of starts.
        end_NL: scores of ends.
        inside_NL: bool, true on the tokens of the passage.
        width: longest span in tokens, W.

    Returns:
        ``[N, L, W]``; element (i, w) is the score of the tokens i … i + w, ``IMPOSSIBLE`` if they leave the passage.
    """
    end_NL = end_NL.masked_fill(~inside_NL, IMPOSSIBLE)
    end_NLW = nn.functional.pad(end_NL, (0, width - 1), value=IMPOSSIBLE).unfold(1, width, 1)
    score = start_NL.masked_fill(~inside_NL, IMPOSSIBLE).unsqueeze(-1) + end_NLW
    return score.clamp_min(IMPOSSIBLE)
