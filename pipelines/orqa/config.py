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
    """Settings of the inverse cloze task; batch and steps have the values of the paper."""

    corpus: Path
    """Index directory of the passages (``ragqa index --retriever bm25`` makes one)."""
    encoder: Path
    """Directory of the encoder that the towers begin from."""
    batch: int = 4096
    """Number of pairs of a sentence and its passage per step."""
    chunk: int = 128
    """Number of texts whose activations are in memory at the same time."""
    width: int = 128
    """Width of the vectors."""
    pooling: Literal["cls", "mean"] = "cls"
    """Pooling of hidden states: the state of [CLS], or the mean. A small encoder learns sooner with the mean."""
    gain: float = 1.0
    """Initial weight of the layer norms; small towers with random weights learn faster with width ** -0.25."""
    shared: bool = False
    """Use one encoder for questions and passages."""
    keep_rate: float = KEEP_RATE
    """Share of the pairs in which the passage still contains the sentence."""
    drop_rate: float | None = None
    """Share of a passage's wordpieces to drop.
    If it is given, the query is the remaining wordpieces instead of a sentence, and the passage stays whole."""
    max_query: int = 64
    """Largest length of a query in wordpieces, including [CLS] and [SEP]."""
    max_block: int = 288
    """Largest length of a passage in wordpieces, including [CLS] and [SEP]."""
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
    """Settings of fine-tuning; most defaults have the values of ORQA and REALM."""

    corpus: Path
    """Index directory of the passages."""
    retriever: Path
    """Directory of the dual encoder from the inverse cloze task or from REALM's pretraining."""
    encoder: Path
    """Directory of the encoder that the reader begins from; in REALM, the pretrained masked language model."""
    questions: Path
    """File of questions with answers: .jsonl, .tsv, or SQuAD's .json."""
    steps: int = 160_000
    """Number of optimizer steps."""
    batch: int = 1
    """Number of questions per step."""
    beam: int = 5000
    """Number of passages to retrieve per question; the question tower learns to rank passages with an answer first."""
    read: int = 5
    """Number of the beam's best passages to read."""
    max_input: int = 320
    """Largest length of question, title and passage together in wordpieces."""
    max_span: int = 10
    """Largest length of an answer in wordpieces."""
    hidden: int = 256
    """Width of the layer that scores spans."""
    freeze_retriever: bool = False
    """Train only the reader (an ablation)."""
    lr: float = 1e-5
    """Peak learning rate."""
    warmup: int | None = None
    """Steps in which the learning rates rise; default: 10,000, but at most a tenth of all steps."""
    retriever_lr: float | None = None
    """Peak learning rate of the question tower; default: ``lr``."""
    held_out: Annotated[HeldOutConfig, FLAT] = HeldOutConfig()
    """Held-out questions; the setting ``regex`` also holds for ``questions``."""
    index: Annotated[TrainingIndexConfig, FLAT] = TrainingIndexConfig()
    """Index to search, made once."""

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
    """File of held-out questions, which measure recall, select the best weights and calibrate confidence."""
    regex: bool = False
    """Treat answers as regular expressions (CuratedTREC)."""
    kind: Annotated[str, IndexKind] = DEFAULT_KIND
    """Kind of the vector indexes."""
    device: str = "cpu"
    """Device to train on: cpu, cuda or cuda:N."""
    seed: int = 0
    """Seed of all random numbers."""
    cloze: InverseClozeConfig = CLOZE
    """Settings of the inverse cloze task, which override the settings of the whole recipe."""
    tune: FineTuneConfig = TUNE
    """Settings of fine-tuning, which override the settings of the whole recipe."""
