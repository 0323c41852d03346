"""Settings of joint training."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pipelines.common.config import (
    FROM_RECIPE,
    HeldOutConfig,
    RefreshConfig,
    TrainingConfig,
    TrainingIndexConfig,
    WritingConfig,
)
from pipelines.common.learning_rates import LearningRates
from pipelines.orqa.config import TUNE, FineTuneConfig
from pipelines.rag.config import RagConfig
from pipelines.realm.config import PRETRAIN as REALM
from pipelines.realm.config import PretrainConfig
from ragqa.settings.checks import report_together, require, require_non_negative, require_positive
from ragqa.settings.groups import FLAT

RAG = RagConfig(
    corpus=FROM_RECIPE,
    retriever=FROM_RECIPE,
    writing=WritingConfig(generator=FROM_RECIPE),
    questions=FROM_RECIPE,
    out=FROM_RECIPE,
    learn_passages=True,
)
"""Default settings of the loss of written answers (RAG)."""
SPAN = replace(TUNE, beam=5, batch=8)
"""Default settings of the loss of marked answers (span reader)."""


@dataclass(frozen=True, kw_only=True)
class JointConfig(TrainingConfig):
    """Settings of joint training: weights, schedule and shared settings of its losses."""

    corpus: Path
    """Index directory of the passages Z that can be retrieved."""
    encoder: Path
    """Directory of the masked language model that the readers begin from."""
    retriever: Path
    """Directory of the dual encoder, from pipelines.orqa.inverse_cloze; an untrained one would learn little."""
    questions: Path
    """File of questions with answers: .jsonl, .tsv, or SQuAD's .json."""
    generator: Path | None = None
    """Directory of a generator, or of a seq2seq model with its tokenizer.
    Default: the masked language model of this run becomes the generator when training on questions begins."""
    decoder_layers: int | None = None
    """Number of decoder layers of a generator made from the encoder; default: as many as the encoder has."""
    texts: Path | None = None
    """Index directory of the texts X to mask; default: the passages themselves."""
    mlm: float = 1.0
    """Weight λ_mlm of the loss of masked words; 0 leaves it out."""
    gen: float = 1.0
    """Weight λ_gen of the loss of written answers."""
    span: float = 1.0
    """Weight λ_span of the loss of marked answers; 0 leaves it out."""
    gen_from: float = 0.5
    """Share of the steps after which training on questions begins."""
    mlm_until: float = 1.0
    """Share of the steps after which no words are masked; if it equals ``gen_from``, RAG follows REALM."""
    steps: int = 200_000
    """Number of optimizer steps."""
    lr: float = 3e-5
    """Peak learning rate of all readers; the rate of a reader begins to rise when its loss begins."""
    retriever_lr: float | None = None
    """Peak learning rate of the retriever; default: a fifth of ``lr``."""
    frozen: int | None = None
    """Number of steps before the retriever learns, in which the reader of masked words learns to use passages.
    Default: half of the steps before questions begin, or half of all steps if questions begin at once."""
    realm: PretrainConfig = REALM
    """Settings of the loss of masked words, for example batch, k, marginal, masking, max_text and max_block."""
    rag: RagConfig = RAG
    """Settings of the loss of written answers, for example batch, k, marginal, smoothing and max_answer."""
    tune: FineTuneConfig = SPAN
    """Settings of the loss of marked answers, for example batch, beam, read, max_input, max_span and hidden."""
    index: Annotated[TrainingIndexConfig, FLAT] = TrainingIndexConfig()
    """Index that proposes passages."""
    refresh: Annotated[RefreshConfig, FLAT] = RefreshConfig()
    """Refreshes of the index."""
    held_out: Annotated[HeldOutConfig, FLAT] = HeldOutConfig()
    """Held-out questions."""

    @report_together()
    def __post_init__(self) -> None:
        """Raise BadInput for values out of range."""
        super().__post_init__()
        require_positive(self, "gen", "decoder_layers")
        require_non_negative(self, "retriever_lr", "frozen", "mlm", "span")
        begins = 0 <= self.gen_from < 1 and (self.mlm > 0 or self.gen_from == 0)
        words = "0 or more and below 1; 0 without masked words (mlm = 0), because there is nothing else to learn"
        require(self, "gen_from", begins, words)
        ends = not self.mlm or self.gen_from <= self.mlm_until <= 1
        require(self, "mlm_until", ends, f"from gen_from = {self.gen_from} to 1")

    @property
    def masked_until(self) -> int:
        """First step without masked words."""
        return round((self.mlm_until if self.mlm else 0.0) * self.steps)

    @property
    def first_question_step(self) -> int:
        """First step with questions."""
        return round(self.gen_from * self.steps)

    @property
    def rates(self) -> LearningRates:
        """Learning rates of the retriever and of all readers."""
        return LearningRates(
            steps=self.steps,
            reader=self.lr,
            retriever=self.lr / 5 if self.retriever_lr is None else self.retriever_lr,
            frozen=(self.first_question_step or self.steps) // 2 if self.frozen is None else self.frozen,
            warmup=self.warmup,
        )


@dataclass(frozen=True)
class JointSettings:
    """Settings of joint training and of each of its losses."""

    whole: JointConfig
    """Settings of the joint training."""
    masked: PretrainConfig
    """Settings of the loss of masked words."""
    written: RagConfig
    """Settings of the loss of written answers."""
    marked: FineTuneConfig
    """Settings of the loss of marked answers."""

    @classmethod
    def split(cls, config: JointConfig) -> "JointSettings":
        """Return the settings of each loss; shared settings have the values of ``config``."""
        names = ("corpus", "retriever", "out", "steps", "lr", "dropout", "device", "seed", "index")
        shared: dict[str, Any] = {name: getattr(config, name) for name in names}
        shared["retriever_lr"] = config.rates.retriever
        questions: dict[str, Any] = {"questions": config.questions, "held_out": config.held_out}
        refresh: dict[str, Any] = {
            "frozen": config.rates.frozen,
            "refresh": config.refresh,
            "gpus": config.gpus,
            "insecure": config.insecure,
        }
        masked = replace(config.realm, encoder=config.encoder, texts=config.texts, **refresh, **shared)
        writing = replace(config.rag.writing, generator=config.generator or FROM_RECIPE)
        written = replace(config.rag, writing=writing, **questions, **refresh, **shared)
        return cls(config, masked, written, replace(config.tune, encoder=config.encoder, **questions, **shared))
