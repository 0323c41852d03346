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
    """Number of optimizer steps."""
    batch: int = 512
    """Number of texts per step."""
    own_share: float = 0.5
    """Share of the texts that are read with the passage they come from (own); the others get a random passage.
    The share falls from 1 to this value in the first half of the steps."""
    keep_share: float = 0.5
    """Share of own passages that still contain the text; the text is cut out of the others.
    The share falls from 1 to this value in the first half of the steps."""
    max_block: int = 288
    """Largest length of a passage in wordpieces, without special tokens."""
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
    """Directory of the dual encoder, from pipelines.orqa.inverse_cloze; an untrained one would learn little."""
    texts: Path | None = None
    """Index directory of the texts X to mask; default: the passages themselves."""
    steps: int = 200_000
    """Number of optimizer steps."""
    batch: int = 512
    """Number of texts per step."""
    k: int = 8
    """Number of passages per text; with ``null``, one of them is the null passage."""
    null: bool = True
    """Add the null passage, which is empty, for masked words that need no passage."""
    marginal: Literal["token", "sequence"] = "token"
    """Marginalise over the passages per masked token (the released code) or per text (the paper)."""
    lr: float = 3e-5
    """Peak learning rate of the reader."""
    retriever_lr: float | None = None
    """Peak learning rate of the retriever; default: a fifth of ``lr``.
    A retriever that learns as fast as its reader collapses. The paper has one rate for both."""
    frozen: int | None = None
    """Number of steps before the retriever learns; default: half of all steps.
    In these steps the reader learns to use passages. In the paper the number is 0."""
    max_block: int = 288
    """Largest length of a passage in wordpieces."""
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
        """Number of passages per text without the null passage."""
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
