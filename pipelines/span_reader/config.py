"""Settings of a span reader's training."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pipelines.common.config import TrainingConfig, require_input_length
from pipelines.common.examples.data_sets import HELD_OUT_SHARE, list_question_files
from pipelines.common.examples.mining import QuestionFile
from pipelines.common.examples.passage_sampler import PassageMix
from ragqa.errors import BadInput
from ragqa.reading.span_candidates import MAX_ANSWER
from ragqa.retrieval.registry import RetrieverKind
from ragqa.settings.checks import (
    report_together,
    require,
    require_choice,
    require_non_negative,
    require_positive,
    require_share,
    require_share_below_1,
)
from ragqa.settings.groups import FLAT

MAX_HARD_SHARE = 0.8
"""Maximum probability that a step uses hard EM (Min et al. 2019, released code)."""


@dataclass(frozen=True, kw_only=True)
class ReaderConfig(TrainingConfig):
    """Settings of a span reader's training; the defaults are estimates, not tuned values."""

    encoder: Path
    """Directory, with tokenizer.json, of the encoder, cross-encoder or reader from which training starts."""
    train: tuple[Path, ...] = ()
    """Files of questions with answers, with or without gold passages: SQuAD's .json, .jsonl, or DPR's .tsv."""
    patterns: tuple[Path, ...] = ()
    """Files whose answers are regular expressions (CuratedTREC)."""
    shares: tuple[float, ...] = ()
    """Share of each file among the questions, ``patterns`` last; default: in proportion to the sizes of the files."""
    index: Path | None = None
    """Index directory; without one, questions need gold passages, and other questions' gold passages are negatives."""
    retriever: Annotated[str | None, RetrieverKind] = None
    """Kind of retriever; default: the retriever of the index."""
    depth: int = 50
    """Number of passages to retrieve per question for mining."""
    rerank: Path | None = None
    """Directory of a reader that this recipe trained.
    Its relevance orders the mined positives of questions without gold passages."""
    pool: int = 20
    """Maximum number of mined passages with an answer per question, and of passages without one."""
    mix: Annotated[PassageMix, FLAT] = PassageMix()
    """Numbers and shares of the passages of a training question."""
    loss: Literal["marginal", "hard"] = "marginal"
    """Gold spans that count: all (marginal), or only the most probable one in a rising share of the steps (hard)."""
    hard_warmup: float = 0.5
    """Pace of hard EM: a step uses it with the probability step / (hard_warmup · steps), at most 0.8."""
    per_passage: bool = False
    """Normalise the spans of each passage separately (an ablation)."""
    relevance: float = 0.5
    """Weight of the loss of relevance, whose target is 1 for a passage with a gold span and 0 for others."""
    absence: float = 0.0
    """Weight of the loss of "no answer": all spans of a passage against the span of its first token."""
    early_layer: int | None = None
    """Number of layers after which relevance is scored early.
    Without this setting, a reader to continue from keeps its own early layer."""
    early: float = 0.25
    """Weight of the loss of the relevance after ``early_layer``."""
    teacher: Path | None = None
    """Directory of a better torch reader with the same wordpieces, whose scores the reader learns to imitate."""
    temperature: float = 2.0
    """Temperature at which the reader's and the teacher's distributions over spans are compared."""
    teacher_weight: float = 0.5
    """Weight of the loss against the teacher, from 0 to 1; the loss against the gold spans has the rest."""
    steps: int = 8000
    """Number of optimizer steps."""
    batch: int = 32
    """Number of questions per step."""
    accumulate: int = 1
    """Number of parts in which a process computes its share of a batch, to save memory."""
    lr: float = 2e-4
    """Peak learning rate."""
    max_input: int = 384
    """Maximum length of question, title and passage together in wordpieces; lowered to the limit of ``encoder``."""
    max_span: int = MAX_ANSWER
    """Maximum length of an answer in wordpieces."""
    freeze_embeddings: bool = True
    """The encoder's word embeddings are frozen by default, so that the exports of encoder and reader can share them."""
    dev: Path | None = None
    """File of held-out questions; training leaves them out, and evaluations answer a sample of them from the index."""
    exclude: tuple[Path, ...] = ()
    """Files of questions, for example test sets, to leave out of training and evaluation."""
    read: int = 10
    """Number of passages to read for each question of ``dev``."""
    held_out: float = HELD_OUT_SHARE
    """Share of SQuAD's articles to hold out for evaluation, chosen by a hash of the title."""
    sample: int = 500
    """Maximum number of held-out questions per file to evaluate on."""
    eval_every: int = 500
    """Number of steps between two evaluations."""
    patience: int | None = None
    """Number of evaluations without improvement after which training stops; default: all steps are taken.
    The weights of the best evaluation are written, of equally good ones the latest; without evaluations, the last."""

    @report_together()
    def __post_init__(self) -> None:
        """Raise BadInput for settings that cannot be used."""
        super().__post_init__()
        require_positive(self, "depth", "pool", "hard_warmup", "temperature", "batch", "read", "sample", "eval_every")
        require_positive(self, "patience", "early_layer")
        require_share(self, "teacher_weight")
        require_share_below_1(self, "held_out")
        require_non_negative(self, "relevance", "absence", "early")
        is_even = self.accumulate > 0 and self.batch % self.accumulate == 0
        require(self, "accumulate", is_even, f"a divisor of the batch, {self.batch}")
        has_comparable_teacher = not (self.per_passage and self.teacher)
        words = "without a teacher, whose scores are normalised over all passages"
        require(self, "per_passage", has_comparable_teacher, words)
        require_choice(self, "loss", ("marginal", "hard"))
        require_input_length(self, "max_input")
        words = f"from 1 to {MAX_ANSWER}, the longest answer that a reader gives"
        require(self, "max_span", 0 < self.max_span <= MAX_ANSWER, words)
        has_shares = not self.shares or (len(self.shares) == len(self.files) and min(self.shares) > 0)
        require(self, "shares", has_shares, f"{len(self.files)} above 0")
        if not self.files:
            raise BadInput("--train or --patterns is needed: files of training questions")
        if self.dev and not self.index:
            raise BadInput("--dev needs an index that finds passages: give --index as well")

    @property
    def files(self) -> list[QuestionFile]:
        """Files of training questions: ``train``, then ``patterns``."""
        return list_question_files(self.train, self.patterns)
