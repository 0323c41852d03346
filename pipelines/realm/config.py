"""Settings of REALM's stages."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pipelines.common.config import (
    FROM_RECIPE,
    STAGE_DEFAULTS,
    STAGE_INDEX,
    HeldOutConfig,
    MaskingConfig,
    RefreshConfig,
    TrainingConfig,
    TrainingIndexConfig,
    require_text_length,
)
from pipelines.common.learning_rates import LearningRates
from ragqa.settings.checks import (
    report_together,
    require,
    require_choice,
    require_non_negative,
    require_positive,
    require_share,
)
from ragqa.settings.groups import FLAT


@dataclass(frozen=True, kw_only=True)
class ReaderWarmupConfig(TrainingConfig):
    """Settings of the reader's warm-up."""

    corpus: Path
    """Index directory of the passages."""
    encoder: Path
    """Directory of the masked language model that training begins from."""
    steps: int = 10_000
    """Optimizer steps."""
    batch: int = 512
    """Texts per step."""
    own_share: float = 0.5
    """Share of the texts read with their own passage; the other texts get a random passage.
    The share falls from 1 to this value in the first half of the steps."""
    keep_share: float = 0.5
    """Share of own passages that still contain the text; the text is cut out of the others.
    The share falls from 1 to this value in the first half of the steps."""
    max_block: int = 288
    """Wordpieces of a passage."""
    masking: Annotated[MaskingConfig, FLAT] = MaskingConfig()
    """Masking of the texts."""

    @report_together()
    def __post_init__(self) -> None:
        """Raise BadInput for values out of range."""
        super().__post_init__()
        require_positive(self, "batch")
        require_share(self, "own_share", "keep_share")
        require_text_length(self, "max_block")


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(TrainingConfig):
    """Settings of pretraining.

    The paper has 512 texts per step, 200,000 steps, 8 passages per text, and a refresh every 500 steps.
    """

    corpus: Path
    """Index directory of the passages Z that can be retrieved."""
    encoder: Path
    """Directory of the masked language model that reads text and passage."""
    retriever: Path
    """Directory of the retriever; it learns little unless the inverse cloze task trained it."""
    texts: Path | None = None
    """Index directory of the texts X that are masked; by default the passages themselves."""
    steps: int = 200_000
    """Optimizer steps."""
    batch: int = 512
    """Texts per step."""
    k: int = 8
    """Passages of a text, the null passage included."""
    null: bool = True
    """Add the empty passage to the candidates, for masked words that need no passage."""
    marginal: Literal["token", "sequence"] = "token"
    """Marginalise per masked token (the released code) or per text (the paper)."""
    lr: float = 3e-5
    """Peak learning rate of the reader."""
    retriever_lr: float | None = None
    """Peak learning rate of the towers; default: a fifth of ``lr``.
    A retriever that learns as fast as its reader collapses. The paper has one rate for both."""
    frozen: int | None = None
    """Steps before the retriever learns; default: half of all steps.
    The reader learns to use passages first. In the paper the retriever learns from the beginning: 0."""
    max_block: int = 288
    """Wordpieces of a passage."""
    masking: Annotated[MaskingConfig, FLAT] = MaskingConfig()
    """Masking of the texts."""
    index: Annotated[TrainingIndexConfig, FLAT] = TrainingIndexConfig()
    """Index that proposes passages."""
    refresh: Annotated[RefreshConfig, FLAT] = RefreshConfig()
    """Refreshes of the index."""
    held_out: Annotated[HeldOutConfig, FLAT] = HeldOutConfig(eval_every=500)
    """Held-out questions, on which recall is measured."""

    @report_together()
    def __post_init__(self) -> None:
        """Raise BadInput for values out of range."""
        super().__post_init__()
        require_positive(self, "batch")
        require(self, "k", self.k > int(self.null), "more than the null passage")
        require_choice(self, "marginal", ("token", "sequence"))
        require_non_negative(self, "retriever_lr", "frozen")
        require_text_length(self, "max_block")

    @property
    def proposed(self) -> int:
        """Number of passages of a text without the null passage."""
        return self.k - int(self.null)

    @property
    def rates(self) -> LearningRates:
        """Learning rates of retriever and reader."""
        return LearningRates(
            steps=self.steps,
            reader=self.lr,
            retriever=self.lr / 5 if self.retriever_lr is None else self.retriever_lr,
            frozen=self.steps // 2 if self.frozen is None else self.frozen,
            warmup=self.warmup,
        )


PRETRAIN = PretrainConfig(**STAGE_DEFAULTS, retriever=FROM_RECIPE, index=STAGE_INDEX)
"""Default settings of the pretraining stage."""
