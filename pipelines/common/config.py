"""Settings that recipes share.

Functions ``require…`` raise BadInput for values out of range, like the functions in ``ragqa.settings.checks``.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pipelines.common.learning_rates import compute_rate
from ragqa.models.generation.generator_kinds import MAX_ANSWER, MAX_INPUT
from ragqa.reading.windows import MIN_WINDOW
from ragqa.retrieval.vectors import mips
from ragqa.retrieval.vectors.index_kinds import DEFAULT_KIND, IndexKind
from ragqa.settings.checks import (
    report_together,
    require,
    require_all,
    require_choice,
    require_non_negative,
    require_positive,
    require_proper_share,
    require_share_below_1,
)

MASKINGS = ("salient", "spans", "words", "uniform")
"""Values of ``MaskingConfig.masking``."""


def require_text_length(config: Any, *names: str) -> None:
    """Require text lengths above 3 wordpieces in the settings ``names``; [CLS] and [SEP] count."""
    require_all(config, names, lambda value: value > 3, "more than 3, because [CLS] and [SEP] count")


def require_input_length(config: Any, *names: str) -> None:
    """Require input lengths of ``MIN_WINDOW`` tokens or more in the settings ``names``."""
    require_all(config, names, lambda value: value >= MIN_WINDOW, f"{MIN_WINDOW} or more")


def require_layer_width(config: Any, *names: str) -> None:
    """Require widths of vectors or layers from 1 to 65,536, or None, in the settings ``names``."""
    require_all(config, names, lambda value: value is None or 0 < value <= 65_536, "above 0 and at most 65,536")


class FromRecipe:
    """Default of a setting of a stage; the value of the whole recipe replaces it.

    ``python -m pipelines.realm --seed 3`` sets the seed of every stage, because a stage has ``NumberFromRecipe(0)`` as
    its default. With ``--tune.seed 0``, the stage ``tune`` has a plain 0, which the recipe does not replace.
    """


class TextFromRecipe(FromRecipe, str):
    """Default text of a stage; the text of the recipe replaces it."""


class NumberFromRecipe(FromRecipe, int):
    """Default number of a stage; the number of the recipe replaces it."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Settings that all training runs have."""

    out: Path
    """Directory of the run; an unfinished run in this directory continues."""
    steps: int = 100_000
    """Number of optimizer steps."""
    lr: float = 1e-4
    """Peak learning rate."""
    warmup: int | None = None
    """Steps in which the learning rate rises; default: 1000, but at most a tenth of all steps."""
    weight_decay: float = 0.01
    """Weight decay; biases and layer norms have none."""
    clip: float = 1.0
    """Largest norm of the gradient; a larger gradient is scaled down."""
    dropout: float = 0.1
    """Dropout; on a CPU, 0 makes a step more than twice as fast."""
    compile: bool = False
    """Compile the encoders. The start takes a minute longer, and each step takes a quarter less time."""
    processes: int = 1
    """Number of processes of Ray Train that share each batch."""
    gpus: bool = False
    """Give one GPU to each process and to each actor that embeds."""
    insecure: bool = False
    """Accept a Ray cluster that asks for no token; everybody who reaches the cluster can run code in it."""
    save_every: int = 500
    """Steps between two checkpoints; the same command continues from the newest one."""
    device: str = "cpu"
    """Device to train on: cpu, cuda or cuda:N."""
    seed: int = 0
    """Seed of all random numbers."""

    @report_together()
    def __post_init__(self) -> None:
        """Raise BadInput for values out of range."""
        require_non_negative(self, "weight_decay")
        require_share_below_1(self, "dropout")
        require_positive(self, "clip", "processes", "save_every", "steps", "lr")
        require(self, "seed", 0 <= self.seed < 2**63, "0 or more and below 2^63")
        require_non_negative(self, "warmup")
        if self.warmup is not None and self.steps is not None and self.warmup >= 0 < self.steps:
            require(self, "warmup", self.warmup <= self.steps, f"at most the {self.steps} steps")

    @property
    def single_device(self) -> str:
        """Device of a run in one process; with ``gpus``, cuda replaces cpu."""
        return "cuda" if self.gpus and self.device == "cpu" else str(self.device)

    def compute_rate(self, step: int, *, default_warmup: int = 1000) -> float:
        """Return the learning rate of a step: it rises linearly to ``lr``, then falls to 0.

        Args:
            step: number of the step, from 0.
            default_warmup: steps of the rise if ``warmup`` is None, but at most a tenth of all steps.
        """
        return compute_rate(step, peak=self.lr, warmup=self.warmup, total=self.steps, default_warmup=default_warmup)


@dataclass(frozen=True, kw_only=True)
class HeldOutConfig:
    """Settings of the held-out questions on which a model is evaluated during training."""

    dev: Path | None = None
    """File of held-out questions, which are left out of the training questions.
    Recipes that train a reader or a generator on questions keep the weights with the best exact match on this file."""
    sample: int | None = 500
    """Size of the random sample of held-out questions; None takes all."""
    regex: bool = False
    """Treat the answers as regular expressions (CuratedTREC)."""
    eval_every: int = 1000
    """Steps between two evaluations."""

    @report_together()
    def __post_init__(self) -> None:
        """Raise BadInput for values out of range."""
        require_positive(self, "sample", "eval_every")


@dataclass(frozen=True, kw_only=True)
class TrainingIndexConfig:
    """Settings of the index that training searches."""

    kind: Annotated[str, IndexKind] = DEFAULT_KIND
    """Kind of vector index."""
    workers: int = 0
    """Number of Ray actors that embed the passages; 0 embeds in the training process."""

    @report_together()
    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            BadInput: values are out of range.
            MissingExtra: the kind of index needs FAISS, which is not installed.
        """
        require_non_negative(self, "workers")
        if require_choice(self, "kind", tuple(IndexKind)):
            mips.check_kind(self.kind, "cpu")


@dataclass(frozen=True, kw_only=True)
class RefreshConfig:
    """Settings of index refreshes while the passage tower learns."""

    refresh_every: int | None = 500
    """Steps between two refreshes of the index; None never refreshes the index (an ablation)."""
    max_staleness: int | None = None
    """Largest age of the index in steps, after which training waits; default: twice ``refresh_every``."""

    @report_together()
    def __post_init__(self) -> None:
        """Raise BadInput for values out of range."""
        require_positive(self, "refresh_every")
        every, limit = self.refresh_every, self.max_staleness
        if limit is not None and every is None:
            require(self, "max_staleness", False, "without refresh_every there is no refresh to wait for")
        elif limit is not None and every is not None:
            require(self, "max_staleness", limit >= every, "refresh_every or more")

    @property
    def staleness_limit(self) -> int | None:
        """Largest age of the index in steps; None if the age has no limit."""
        return 2 * self.refresh_every if self.refresh_every and self.max_staleness is None else self.max_staleness


@dataclass(frozen=True, kw_only=True)
class MaskingConfig:
    """Settings of the masks in masked language modelling."""

    masking: str = "salient"
    """Unit of masking: salient (names, dates, numbers), spans, words or uniform."""
    tagger: str = "rule"
    """Tagger of salient spans: rule, or spacy:MODEL."""
    spans: int = 1
    """Number of salient spans to mask in a text."""
    rate: float = 0.15
    """Share of the wordpieces to mask; salient masking ignores it."""
    max_text: int = 64
    """Largest length of a text in wordpieces with [CLS] and [SEP].
    Its upper limit is half of the reader's input, so that a passage fits beside the text."""

    @report_together()
    def __post_init__(self) -> None:
        """Raise BadInput for values out of range."""
        require_choice(self, "masking", MASKINGS)
        require_positive(self, "spans")
        require_proper_share(self, "rate")
        require_text_length(self, "max_text")


@dataclass(frozen=True, kw_only=True)
class WritingConfig:
    """Settings of a generator in training."""

    generator: Path
    """Directory of the generator to begin from, or of a seq2seq model with its tokenizer."""
    max_input: int = MAX_INPUT
    """Largest length of a question with a passage in tokens."""
    max_answer: int = MAX_ANSWER
    """Largest length of an answer in tokens, including the end token."""

    @report_together()
    def __post_init__(self) -> None:
        """Raise BadInput for values out of range."""
        require_input_length(self, "max_input")
        require(self, "max_answer", self.max_answer > 1, "more than 1")


FROM_RECIPE = Path("(from the recipe)")
"""Default path of a stage; the path of the recipe replaces it."""
STAGE_DEFAULTS: dict[str, Any] = {
    "corpus": FROM_RECIPE,
    "encoder": FROM_RECIPE,
    "out": FROM_RECIPE,
    "device": TextFromRecipe("cpu"),
    "seed": NumberFromRecipe(0),
}
"""Defaults of the settings that a stage takes from the recipe."""
STAGE_INDEX = TrainingIndexConfig(kind=TextFromRecipe(DEFAULT_KIND))
"""Default index settings of a stage; the recipe replaces the kind."""
