"""Settings of denoising."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipelines.common.config import TrainingConfig
from ragqa.settings.checks import report_together, require, require_choice, require_positive, require_proper_share


@dataclass(frozen=True, kw_only=True)
class DenoiseConfig(TrainingConfig):
    """Settings of pretraining by denoising.

    In the papers, T5 has 128 texts of 512 tokens per step and 524,288 steps; BART has 8,000 texts and 500,000 steps.
    """

    corpus: Path
    """Index directory of the passages."""
    generator: Path | None = None
    """Directory of the model to begin from: config.json, a tokenizer and, unless ``fresh`` is set, weights."""
    fresh: bool = False
    """Begin from random weights."""
    encoder: Path | None = None
    """Directory of a BERT or RoBERTa to make a generator from; give either this or ``generator``."""
    decoder_layers: int | None = None
    """Number of decoder layers of a generator made from ``encoder``; default: as many as the encoder has."""
    objective: Literal["spans", "infilling"] = "spans"
    """Objective: write the missing spans (spans, T5), or the whole text (infilling, BART)."""
    rate: float | None = None
    """Share of the tokens that are missing; default: 0.15 (spans) or 0.3 (infilling)."""
    mean_span: float = 3.0
    """Mean length of a missing span in tokens."""
    permute: bool = False
    """Put the sentences of the input into random order (infilling)."""
    batch: int = 128
    """Number of texts per step."""
    max_text: int = 288
    """Largest length of a text in tokens, including special tokens."""

    @report_together()
    def __post_init__(self) -> None:
        """Raise BadInput for values out of range."""
        super().__post_init__()
        layers, has_encoder = self.decoder_layers, self.encoder is not None
        require_positive(self, "batch")
        has_one_start = (self.generator is None) == has_encoder
        require(self, "generator", has_one_start, "give either a generator or an encoder")
        require(self, "fresh", not (self.fresh and has_encoder), "for a generator only")
        require(self, "decoder_layers", layers is None or (has_encoder and layers > 0), "above 0, with an encoder")
        require_choice(self, "objective", ("spans", "infilling"))
        require_proper_share(self, "rate")
        require(self, "mean_span", self.mean_span >= 1, "1 or more")
        require(self, "permute", not self.permute or self.objective == "infilling", "for infilling only")
        require(self, "max_text", self.max_text > 5, "more than 5")
