"""Settings of ORQA's stages."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pipelines.common.config import (
    FROM_RECIPE,
    STAGE_DEFAULTS,
    STAGE_INDEX,
    HeldOutConfig,
    TrainingConfig,
    TrainingIndexConfig,
    require_input_length,
    require_layer_width,
    require_text_length,
)
from ragqa.pretraining.inverse_cloze import KEEP_RATE
from ragqa.retrieval.vectors.index_kinds import DEFAULT_KIND, IndexKind
from ragqa.settings.checks import (
    report_together,
    require,
    require_choice,
    require_non_negative,
    require_positive,
    require_proper_share,
    require_share,
)
from ragqa.settings.groups import FLAT


@dataclass(frozen=True, kw_only=True)
class InverseClozeConfig(TrainingConfig):
    """Settings of the inverse cloze task. The paper has 4,096 pairs per step and 100,000 steps."""

    corpus: Path
    """Index directory of the passages (``ragqa index --retriever bm25`` makes one)."""
    encoder: Path
    """Directory of the encoder that the towers begin from."""
    batch: int = 4096
    """Pairs of sentence and passage per step."""
    chunk: int = 128
    """Number of texts whose activations are in memory at the same time."""
    width: int = 128
    """Width of the vectors."""
    pooling: Literal["cls", "mean"] = "cls"
    """Pooling of hidden states: [CLS], or their mean, with which a small encoder learns sooner."""
    gain: float = 1.0
    """Initial gain of the layer norms; small random towers need ``width ** -0.25``."""
    shared: bool = False
    """Use one encoder for questions and passages."""
    keep_rate: float = KEEP_RATE
    """Share of the pairs whose passage still contains the sentence."""
    drop_rate: float | None = None
    """Share of a passage's wordpieces to drop; the others are the query, instead of a sentence."""
    max_query: int = 64
    """Wordpieces of a sentence, [CLS] and [SEP] included."""
    max_block: int = 288
    """Wordpieces of a passage, [CLS] and [SEP] included."""
    held_out: Annotated[HeldOutConfig, FLAT] = HeldOutConfig(eval_every=100_000)
    """Held-out questions to measure recall on; each evaluation embeds all passages."""

    @report_together()
    def __post_init__(self) -> None:
        """Raise BadInput for values out of range."""
        super().__post_init__()
        require(self, "batch", self.batch > 1, "more than 1: the other pairs are the wrong answers")
        require_positive(self, "chunk", "gain")
        require_layer_width(self, "width")
        require_choice(self, "pooling", ("cls", "mean"))
        require_share(self, "keep_rate")
        require_proper_share(self, "drop_rate")
        require_text_length(self, "max_query", "max_block")


@dataclass(frozen=True, kw_only=True)
class FineTuneConfig(TrainingConfig):
    """Settings of fine-tuning; the defaults are those of ORQA and REALM."""

    corpus: Path
    """Index directory of the passages."""
    retriever: Path
    """Directory of the dual encoder that the inverse cloze task or pretraining trained."""
    encoder: Path
    """Directory of the reader's initial encoder; in REALM the pretrained masked language model."""
    questions: Path
    """File of questions with answers: .jsonl, .tsv, or SQuAD's .json."""
    steps: int = 160_000
    """Optimizer steps."""
    batch: int = 1
    """Questions per step."""
    beam: int = 5000
    """Number of passages that the question tower learns to rank: passages with an answer first."""
    read: int = 5
    """Number of the beam's best passages to read."""
    max_input: int = 320
    """Wordpieces of question, title and passage that are read together."""
    max_span: int = 10
    """Wordpieces of an answer."""
    hidden: int = 256
    """Width of the layer that scores spans."""
    freeze_retriever: bool = False
    """Train the reader alone (an ablation)."""
    lr: float = 1e-5
    """Peak learning rate."""
    warmup: int | None = None
    """Steps of warm-up; by default 10,000, or a tenth of all if that is less."""
    retriever_lr: float | None = None
    """Peak learning rate of the question encoder; by default ``lr``."""
    held_out: Annotated[HeldOutConfig, FLAT] = HeldOutConfig()
    """Held-out questions; ``regex`` holds for ``questions`` as well."""
    index: Annotated[TrainingIndexConfig, FLAT] = TrainingIndexConfig()
    """Index that proposes passages, made once."""

    @report_together()
    def __post_init__(self) -> None:
        """Raise BadInput for values out of range."""
        super().__post_init__()
        require_positive(self, "batch", "read", "max_span")
        require(self, "beam", self.beam >= self.read, "read or more")
        require_input_length(self, "max_input")
        require_layer_width(self, "hidden")
        require_non_negative(self, "retriever_lr")


CLOZE = InverseClozeConfig(**STAGE_DEFAULTS)
"""Default settings of the inverse cloze stage."""
TUNE = FineTuneConfig(**STAGE_DEFAULTS, retriever=FROM_RECIPE, questions=FROM_RECIPE, index=STAGE_INDEX)
"""Default settings of the fine-tuning stage."""


@dataclass(frozen=True, kw_only=True)
class OrqaConfig:
    """Settings of ORQA; its stages have the paper's defaults."""

    corpus: Path
    """Index directory of the passages."""
    encoder: Path
    """Directory of the encoder that the towers and the reader begin from."""
    questions: Path
    """File of questions with answers."""
    out: Path
    """Directory of the stages and of the finished ``system``; finished stages are skipped."""
    dev: Path | None = None
    """File of held-out questions for recall, the best weights, and calibration."""
    regex: bool = False
    """Treat answers as regular expressions (CuratedTREC)."""
    kind: Annotated[str, IndexKind] = DEFAULT_KIND
    """Kind of the vector indexes."""
    device: str = "cpu"
    """Device to train on: cpu, cuda or cuda:N."""
    seed: int = 0
    """Seed of all random numbers."""
    cloze: InverseClozeConfig = CLOZE
    """Settings of the inverse cloze task; they override the settings of the whole recipe."""
    tune: FineTuneConfig = TUNE
    """Settings of fine-tuning; they override the settings of the whole recipe."""
