"""The extractive reader: an encoder over question and passage, and one linear head.

Legend: N passages, L tokens, W longest span in tokens, D width.
"""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel

from ragqa.models.options import encoder_options, load_encoder_module

IMPOSSIBLE = -1e4
"""Logit of a span that does not exist: e^-1e4 is 0 in float32, and no gradient is NaN."""


class SpanReader(nn.Module):
    """Scores the start and the end of an answer at every token, and the passage as a whole.

    Start and end as in BERT (Devlin et al. 2019, section 4.2); the passage's relevance is read
    from the first token as in DPR's reader (Karpukhin et al. 2020, section 6.1).
    """

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        config: Any = encoder.config
        self.config = config
        """The encoder's own configuration."""
        self.head = nn.Linear(config.hidden_size, 3)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    @property
    def max_tokens(self) -> int:
        """Longest sequence it should read: ``reader_tokens`` of its configuration, or what its positions allow."""
        longest = min(512, int(getattr(self.config, "max_position_embeddings", 512)))
        return min(longest, int(getattr(self.config, "reader_tokens", longest)))

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Three ``[N, L]`` integer tensors to start ``[N, L]``, end ``[N, L]``, relevance ``[N]``."""
        hidden_NLD = self.encoder(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        ).last_hidden_state
        logits_NL3 = self.head(hidden_NLD).float()
        return logits_NL3[..., 0], logits_NL3[..., 1], logits_NL3[:, 0, 2]

    @classmethod
    def from_encoder(cls, path: str | Path) -> "SpanReader":
        """A fresh head on the encoder at ``path`` (a directory or a hub name)."""
        return cls(load_encoder_module(path))

    def save(self, path: Path) -> None:
        """Write ``config.json`` (the encoder's) and ``model.safetensors`` into ``path``."""
        path.mkdir(parents=True, exist_ok=True)
        (path / "config.json").write_text(json.dumps(self.config.to_dict(), indent=1))
        weights = {name: value.contiguous() for name, value in self.state_dict().items()}
        save_file(weights, path / "model.safetensors")

    @classmethod
    def load(cls, path: Path) -> "SpanReader":
        """The reader that ``save`` wrote into ``path``."""
        config = AutoConfig.from_pretrained(path)
        reader = cls(AutoModel.from_config(config, **encoder_options(config)))
        reader.load_state_dict(load_file(path / "model.safetensors"))
        return reader


def span_logits(start_NL: Tensor, end_NL: Tensor, inside_NL: Tensor, width: int) -> Tensor:
    """Every span's score, start + end: ``[N, L, W]``, the span (i, w) being tokens i … i + w.

    ``inside_NL`` is true on the passage's own tokens; spans that leave them, or the sequence,
    score ``IMPOSSIBLE``.
    """
    end_NL = end_NL.masked_fill(~inside_NL, IMPOSSIBLE)
    end_NLW = nn.functional.pad(end_NL, (0, width - 1), value=IMPOSSIBLE).unfold(1, width, 1)
    score = start_NL.masked_fill(~inside_NL, IMPOSSIBLE).unsqueeze(-1) + end_NLW
    return score.clamp_min(IMPOSSIBLE)
