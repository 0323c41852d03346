"""Settings of masked language modelling."""

from dataclasses import dataclass
from pathlib import Path

from pipelines.common.config import Rules, TrainingConfig, require_positive, require_proper_share, require_text_length

_MASKINGS = ("words", "spans", "uniform")
"""Units of masking that need no tagger."""


@dataclass(frozen=True, kw_only=True)
class MaskedLMConfig(TrainingConfig):
    """Settings of masked language modelling.

    The paper has 256 texts of 512 tokens per step and 1,000,000 steps.
    """

    corpus: Path
    """Index directory of the passages."""
    encoder: Path
    """Directory with tokenizer.json, config.json, and weights to begin from unless ``fresh``."""
    fresh: bool = False
    """Begin from random weights."""
    batch: int = 256
    """Texts per step."""
    masking: str = "words"
    """Units of masking: words (whole words), spans (SpanBERT) or uniform (single wordpieces)."""
    rate: float = 0.15
    """Share of the wordpieces to predict."""
    max_text: int = 128
    """Wordpieces of a text, [CLS] and [SEP] included."""

    def rules(self) -> Rules:
        """Return the rules of all settings."""
        return {
            **super().rules(),
            "batch": require_positive(self.batch),
            "masking": (
                self.masking in _MASKINGS,
                f"one of {', '.join(_MASKINGS)}; salient masking is in pipelines.realm.pretrain",
            ),
            "rate": require_proper_share(self.rate),
            "max_text": require_text_length(self.max_text),
        }
