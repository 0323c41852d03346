"""Settings of the recipes of RAG: training, and making a generator from a span reader."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pipelines.common.config import (
    HeldOutConfig,
    RefreshConfig,
    TrainingConfig,
    TrainingIndexConfig,
    WritingConfig,
    require_input_length,
    require_text_length,
)
from pipelines.common.learning_rates import LearningRates
from ragqa.settings.checks import (
    report_together,
    require,
    require_choice,
    require_non_negative,
    require_positive,
    require_share_below_1,
)
from ragqa.settings.groups import FLAT


@dataclass(frozen=True, kw_only=True)
class RagConfig(TrainingConfig):
    """Settings of RAG's training.

    The paper begins from DPR and BART-large, reads 5 or 10 passages, and has at most 100 epochs.
    """

    corpus: Path
    """Index directory of the passages."""
    retriever: Path
    """Directory of the dual encoder, from pipelines.dpr.train or pipelines.realm.pretrain."""
    questions: Path
    """File of questions with answers: .jsonl, .tsv, or SQuAD's .json."""
    writing: Annotated[WritingConfig, FLAT]
    """Generator that training begins from."""
    marginal: Literal["token", "sequence"] = "token"
    """Marginalise over passages per token (RAG-Token) or per answer (RAG-Sequence)."""
    learn_passages: bool = False
    """Train the passage encoder as well, and refresh the index (not in the paper)."""
    batch: int = 8
    """Questions per step."""
    k: int = 5
    """Passages per question."""
    smoothing: float = 0.1
    """Label smoothing: the share of the loss that is spread over all tokens."""
    lr: float = 3e-5
    """Peak learning rate of the generator."""
    retriever_lr: float | None = None
    """Peak learning rate of the retriever; by default ``lr``, as in the paper."""
    frozen: int | None = 0
    """Steps before the retriever learns; the paper, which begins from BART, has none.
    An untrained generator must learn to use passages first."""
    weight_decay: float = 0.001
    """Weight decay of matrices; biases and norms have none."""
    clip: float = 0.1
    """Largest norm of the gradient."""
    max_block: int = 288
    """Wordpieces of a passage, if the passage encoder learns."""
    index: Annotated[TrainingIndexConfig, FLAT] = TrainingIndexConfig()
    """Index that proposes passages."""
    refresh: Annotated[RefreshConfig, FLAT] = RefreshConfig()
    """Refreshes of the index, if the passage encoder learns."""
    held_out: Annotated[HeldOutConfig, FLAT] = HeldOutConfig()
    """Held-out questions."""

    @report_together()
    def __post_init__(self) -> None:
        """Raise BadInput for values out of range."""
        super().__post_init__()
        require_positive(self, "batch", "k")
        require_choice(self, "marginal", ("token", "sequence"))
        require_non_negative(self, "retriever_lr", "frozen")
        require_share_below_1(self, "smoothing")
        require_text_length(self, "max_block")

    @property
    def rates(self) -> LearningRates:
        """Learning rates of retriever and generator."""
        return LearningRates(
            steps=self.steps,
            reader=self.lr,
            retriever=self.lr if self.retriever_lr is None else self.retriever_lr,
            frozen=self.steps // 2 if self.frozen is None else self.frozen,
            warmup=self.warmup,
        )


@dataclass(frozen=True, kw_only=True)
class WarmGeneratorConfig(TrainingConfig):
    """Settings of the training of a generator that is made from a span reader."""

    reader: Path
    """Directory of a span reader in torch, from pipelines.span_reader.train."""
    questions: Path
    """File of questions with answers and gold passages; questions without one are left out."""
    held_out: Annotated[HeldOutConfig, FLAT] = HeldOutConfig()
    """Held-out questions."""
    decoder_layers: int = 1
    """Layers of the decoder."""
    template: str | None = None
    """Template of the input with {question}, {title} and {passage}.
    By default question, separator, title and passage, as in the training of the reader."""
    fitted: int = 1000
    """Number of questions on which the decoder's attention is fitted."""
    steps: int = 2000
    """Optimizer steps."""
    batch: int = 16
    """Questions per step."""
    lr: float = 1e-3
    """Peak learning rate of the decoder."""
    encoder_lr: float | None = None
    """Peak learning rate of the encoder; by default a tenth of ``lr``."""
    frozen: int | None = None
    """Steps before the encoder learns; default: a quarter of all steps."""
    warmup: int | None = None
    """Warm-up steps; default: 100, or a tenth of all if that is less.
    The encoder's warm-up begins when it starts to learn."""
    guide: float = 1.0
    """Weight of the loss that makes the decoder attend to the answer in the passage."""
    max_input: int = 192
    """Tokens of a question and a passage, read together."""
    max_answer: int = 20
    """Tokens of an answer, the end token included."""

    @property
    def frozen_steps(self) -> int:
        """Steps before the encoder learns."""
        return self.steps // 4 if self.frozen is None else self.frozen

    @report_together()
    def __post_init__(self) -> None:
        """Raise BadInput for values out of range."""
        super().__post_init__()
        require_positive(self, "batch", "decoder_layers", "fitted")
        require_non_negative(self, "frozen")
        require_input_length(self, "max_input")
        require(self, "max_answer", self.max_answer > 1, "more than 1")
        require(self, "encoder_lr", self.encoder_lr is None or 0 <= self.encoder_lr < math.inf, "0 or more")
        require(self, "guide", 0 <= self.guide < math.inf, "0 or more")
        if self.template is not None:
            from ragqa.models.generation.template import Template  # needs torch, and --help does not

            require(self, "template", not Template(self.template).is_closed_book, "with {passage}")
