"""Settings of RAG's recipes: training, and a generator made from a span reader."""

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
    """Settings of RAG's training; the paper uses DPR, BART-large, and 5 or 10 passages."""

    corpus: Path
    """Index directory of the passages."""
    retriever: Path
    """Directory of the dual encoder, for example from pipelines.dpr.train or pipelines.realm.pretrain."""
    questions: Path
    """File of questions with answers: .jsonl, .tsv, or SQuAD's .json."""
    writing: Annotated[WritingConfig, FLAT]
    """Generator that training begins from."""
    marginal: Literal["token", "sequence"] = "token"
    """Marginalise over passages per token (RAG-Token) or per answer (RAG-Sequence)."""
    learn_passages: bool = False
    """Train the passage tower as well, and refresh the index (not in the paper)."""
    batch: int = 8
    """Number of questions per step."""
    k: int = 5
    """Number of passages per question."""
    smoothing: float = 0.1
    """Weight of label smoothing over the vocabulary."""
    lr: float = 3e-5
    """Peak learning rate of the generator."""
    retriever_lr: float | None = None
    """Peak learning rate of the retriever; default: ``lr``, as in the paper."""
    frozen: int | None = 0
    """Number of steps before the retriever learns; None takes half of all steps.
    The paper has 0. An untrained generator must learn to use passages first."""
    weight_decay: float = 0.001
    """Weight decay; biases and layer norms have none."""
    clip: float = 0.1
    """Largest norm of the gradient; a larger gradient is scaled down."""
    max_block: int = 288
    """Largest length of a passage in wordpieces with [CLS] and [SEP], if the passage tower learns."""
    index: Annotated[TrainingIndexConfig, FLAT] = TrainingIndexConfig()
    """Index that proposes passages."""
    refresh: Annotated[RefreshConfig, FLAT] = RefreshConfig()
    """Refreshes of the index, if the passage tower learns."""
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
    """Settings of the training of a generator made from a span reader."""

    reader: Path
    """Directory of the torch weights of a span reader, from pipelines.span_reader.train."""
    questions: Path
    """File of questions with answers and gold passages; questions without a gold passage are left out."""
    held_out: Annotated[HeldOutConfig, FLAT] = HeldOutConfig()
    """Held-out questions."""
    decoder_layers: int = 1
    """Number of layers of the decoder."""
    template: str | None = None
    """Template of the input with {question}, {title} and {passage}.
    Default: question, separator token, title, slash and passage."""
    fitted: int = 1000
    """Number of questions on which the decoder's attention is fitted."""
    steps: int = 2000
    """Number of optimizer steps."""
    batch: int = 16
    """Number of questions per step."""
    lr: float = 1e-3
    """Peak learning rate of the decoder."""
    encoder_lr: float | None = None
    """Peak learning rate of the encoder; default: a tenth of ``lr``."""
    frozen: int | None = None
    """Number of steps before the encoder learns; default: a quarter of all steps."""
    warmup: int | None = None
    """Steps in which each learning rate rises; default: 100, but at most a tenth of the steps.
    The encoder's rate begins to rise when the encoder starts to learn."""
    guide: float = 1.0
    """Weight of the loss by which the decoder learns to attend to the answer in the passage."""
    max_input: int = 192
    """Largest length of a question with a passage in tokens."""
    max_answer: int = 20
    """Largest length of an answer in tokens, including the end token."""

    @property
    def frozen_steps(self) -> int:
        """Number of steps before the encoder learns."""
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
