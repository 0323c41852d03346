"""Settings of masked language modelling."""

from dataclasses import dataclass
from pathlib import Path

from pipelines.common.config import TrainingConfig, require_text_length
from ragqa.settings.checks import report_together, require, require_positive, require_proper_share

_MASKINGS = ("words", "spans", "uniform")
"""Units of masking that need no tagger."""


@dataclass(frozen=True, kw_only=True)
class MaskedLMConfig(TrainingConfig):
    """Settings of masked language modelling; BERT had 256 texts per step and 1,000,000 steps."""

    corpus: Path
    """Index directory of the passages."""
    encoder: Path
    """Directory of the encoder to begin from: tokenizer.json, config.json and, unless ``fresh`` is set, weights."""
    fresh: bool = False
    """Begin from random weights."""
    batch: int = 256
    """Number of texts per step."""
    masking: str = "words"
    """Unit of masking: words (whole words), spans (SpanBERT) or uniform (single wordpieces)."""
    rate: float = 0.15
    """Share of the wordpieces to predict."""
    max_text: int = 128
    """Largest length of a text in wordpieces, including [CLS] and [SEP]."""

    @report_together()
    def __post_init__(self) -> None:
        """Raise BadInput for values out of range."""
        super().__post_init__()
        require_positive(self, "batch")
        words = f"one of {', '.join(_MASKINGS)}; salient masking is in pipelines.realm.pretrain"
        require(self, "masking", self.masking in _MASKINGS, words)
        require_proper_share(self, "rate")
        require_text_length(self, "max_text")
