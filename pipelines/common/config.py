"""Settings that recipes share.

A recipe's config inherits from ``TrainingConfig`` and holds the groups that it needs as fields. When a config is made,
it checks its own values and its groups', and reports all that are out of range at once.

A recipe's config inherits from ``TrainingConfig`` and holds the groups that it needs as fields. Every config checks its
own values and those of its groups when it is made, and reports all that are out of range at once.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.common.learning_rates import compute_rate
from ragqa.errors import BadInput
from ragqa.models.generation.generator_kinds import MAX_ANSWER, MAX_INPUT
from ragqa.reading.windows import MIN_WINDOW
from ragqa.retrieval.vectors import mips
from ragqa.retrieval.vectors.index_kinds import DEFAULT_KIND, IndexKind
from ragqa.settings.groups import collect_settings, get_flat_groups

MASKINGS = ("salient", "spans", "words", "uniform")

Rule = tuple[bool, str]
"""True if a value is in range, and the range in words."""
Rules = dict[str, Rule]
"""Rule of each setting, by its name."""


def check(config: Any, rules: Mapping[str, Rule]) -> None:
    """Raise BadInput that names every setting out of range, with its value and its rule."""
    settings = collect_settings(config)
    broken = {name: words for name, (holds, words) in rules.items() if not holds}
    if broken:
        values = ", ".join(f"{name} = {settings[name]}" for name in broken)
        raise BadInput(f"{values}: out of range ({'; '.join(f'{name}: {words}' for name, words in broken.items())})")


def require_positive(value: float | None) -> Rule:
    """Return the rule of counts and rates; None is in range."""
    return value is None or 0 < value < math.inf, "above 0"


def require_non_negative(value: float | None) -> Rule:
    """Return the rule of counts and weights that may be 0."""
    return value is None or value >= 0, "0 or more"


def require_share(value: float) -> Rule:
    """Return the rule of a share from 0 to 1."""
    return 0 <= value <= 1, "from 0 to 1"


def require_share_below_1(value: float) -> Rule:
    """Return the rule of a share that may be 0, but not 1."""
    return 0 <= value < 1, "0 or more and below 1"


def require_proper_share(value: float | None) -> Rule:
    """Return the rule of a share that is neither 0 nor 1; None is in range."""
    return value is None or 0 < value < 1, "between 0 and 1"


def require_text_length(value: int) -> Rule:
    """Return the rule of a limit of texts in wordpieces."""
    return value > 3, "more than 3: [CLS] and [SEP] are counted"


def require_input_length(value: int) -> Rule:
    """Return the rule of a limit of a reader's or generator's input, in tokens."""
    return value >= MIN_WINDOW, f"{MIN_WINDOW} or more"


def require_layer_width(value: int | None) -> Rule:
    """Return the rule of the width of vectors and layers."""
    return value is None or 0 < value <= 65_536, "above 0 and at most 65,536"


def require_choice(value: str, choices: Sequence[str]) -> Rule:
    """Return the rule of a setting that must be one of ``choices``."""
    return value in choices, f"one of {', '.join(choices)}"


def make_schedule_rules(steps: int | None, lr: float, warmup: int | None) -> Rules:
    """Return the rules of a learning rate that warms up and then falls to 0."""
    steps_rule, warmup_rule = require_positive(steps), require_non_negative(warmup)
    if steps is not None and steps_rule[0] and warmup is not None and warmup_rule[0]:
        warmup_rule = warmup <= steps, f"at most the {steps} steps"
    return {"steps": steps_rule, "lr": require_positive(lr), "warmup": warmup_rule}


class FromRecipe:
    """Mark of a stage's default that the value of the whole recipe replaces.

    ``python -m pipelines.realm --seed 3`` sets the seed of every stage, because each has the default
    ``NumberFromRecipe(0)``. After ``--tune.seed 0`` that stage has a plain 0, which is not replaced.
    """


class TextFromRecipe(FromRecipe, str):
    """Default text that the value of the recipe replaces."""


class NumberFromRecipe(FromRecipe, int):
    """Default number that the value of the recipe replaces."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Settings that every recipe has."""

    out: Path
    """Directory of the run; an unfinished run in it continues."""
    steps: int = 100_000
    """Optimizer steps."""
    lr: float = 1e-4
    """Peak learning rate."""
    warmup: int | None = None
    """Warm-up steps of the learning rate; default: 1000, or a tenth of all if that is less."""
    weight_decay: float = 0.01
    """Weight decay of weights; biases and norms have none."""
    clip: float = 1.0
    """Largest norm of the gradient."""
    dropout: float = 0.1
    """Dropout; on a CPU a step takes less than half as long with 0."""
    compile: bool = False
    """Compile the encoders: the first steps take a minute longer, the others a quarter less."""
    processes: int = 1
    """Processes that share each batch, by Ray Train."""
    gpus: bool = False
    """Give a GPU to each process, and to each actor that embeds."""
    insecure: bool = False
    """Accept a Ray cluster that asks for no token, in which everybody who reaches it can run code."""
    save_every: int = 500
    """Steps between two checkpoints, from which the same command continues."""
    device: str = "cpu"
    """Device to train on: cpu, cuda or cuda:N."""
    seed: int = 0
    """Seed of all random numbers."""

    def __post_init__(self) -> None:
        """Raise BadInput that names all values out of range, also in the groups of settings."""
        rules = self.rules()
        for name in get_flat_groups(type(self)):
            rules |= getattr(self, name).rules()
        check(self, rules)

    @property
    def single_device(self) -> str:
        """Device of a single process: a GPU also if only ``gpus`` asks for one."""
        return "cuda" if self.gpus and self.device == "cpu" else str(self.device)

    def rules(self) -> Rules:
        """Return the rules of all settings; recipes add theirs."""
        return {
            "weight_decay": require_non_negative(self.weight_decay),
            "clip": require_positive(self.clip),
            "dropout": require_share_below_1(self.dropout),
            "processes": require_positive(self.processes),
            "save_every": require_positive(self.save_every),
            "seed": (0 <= self.seed < 2**63, "0 or more and below 2^63"),
            **make_schedule_rules(self.steps, self.lr, self.warmup),
        }

    def compute_rate(self, step: int, *, default_warmup: int = 1000) -> float:
        """Return the learning rate of a step: it rises over ``warmup`` steps, then falls to 0.

        Args:
            step: number of the step, from 0.
            default_warmup: steps of warm-up if ``warmup`` is None, at most a tenth of all.
        """
        return compute_rate(step, peak=self.lr, warmup=self.warmup, total=self.steps, default_warmup=default_warmup)


@dataclass(frozen=True, kw_only=True)
class HeldOutConfig:
    """Held-out questions, on which a recipe is evaluated as training goes on."""

    dev: Path | None = None
    """File of held-out questions, left out of training; they select the best weights."""
    sample: int | None = 500
    """Number of held-out questions to evaluate on, a random sample."""
    regex: bool = False
    """Treat the answers as regular expressions (CuratedTREC)."""
    eval_every: int = 1000
    """Steps between two evaluations."""

    def rules(self) -> Rules:
        """Return the rules of these settings."""
        return {"sample": require_positive(self.sample), "eval_every": require_positive(self.eval_every)}


@dataclass(frozen=True, kw_only=True)
class TrainingIndexConfig:
    """Index of the passages that training searches."""

    kind: str = DEFAULT_KIND
    """Kind of index: flat, hnsw, ivf-flat, ivf-pq, ivf-rabitq, sq8."""
    workers: int = 0
    """Ray actors that embed the passages; 0 embeds in the training process."""

    def __post_init__(self) -> None:
        """Raise MissingExtra if the kind needs FAISS and it is not installed."""
        if self.kind in tuple(IndexKind):
            mips.check_kind(self.kind, "cpu")

    def rules(self) -> Rules:
        """Return the rules of these settings."""
        return {"kind": require_choice(self.kind, tuple(IndexKind)), "workers": require_non_negative(self.workers)}


@dataclass(frozen=True, kw_only=True)
class RefreshConfig:
    """Schedule of index refreshes while the passage encoder learns."""

    refresh_every: int | None = 500
    """Steps between two refreshes of the index; None never refreshes it (an ablation)."""
    max_staleness: int | None = None
    """Steps the index may lag before training waits; default: twice ``refresh_every``."""

    def rules(self) -> Rules:
        """Return the rules of these settings."""
        every, limit = self.refresh_every, self.max_staleness
        limit_rule = require_non_negative(limit)
        if limit is not None and every is None:
            limit_rule = False, "without refresh_every there is no refresh to wait for"
        elif limit is not None and every is not None and limit >= 0:
            limit_rule = limit >= every, "refresh_every or more"
        return {"refresh_every": require_positive(every), "max_staleness": limit_rule}

    @property
    def staleness_limit(self) -> int | None:
        """Steps the index may lag behind the weights; None without a limit."""
        return 2 * self.refresh_every if self.refresh_every and self.max_staleness is None else self.max_staleness


@dataclass(frozen=True, kw_only=True)
class MaskingConfig:
    """Masking of texts in masked language modelling with passages."""

    masking: str = "salient"
    """Unit of masking: salient (names, dates, numbers), spans, words or uniform."""
    tagger: str = "rule"
    """Tagger of salient spans: rule, or spacy:MODEL."""
    spans: int = 1
    """Number of salient spans to mask in a text."""
    rate: float = 0.15
    """Share of the wordpieces to mask, unless masking is salient."""
    max_text: int = 64
    """Wordpieces of a text, at most half of the encoder's input.
    It also limits the questions in training."""

    def rules(self) -> Rules:
        """Return the rules of these settings."""
        return {
            "masking": require_choice(self.masking, MASKINGS),
            "spans": require_positive(self.spans),
            "rate": require_proper_share(self.rate),
            "max_text": require_text_length(self.max_text),
        }


@dataclass(frozen=True, kw_only=True)
class WritingConfig:
    """Generator that training begins from, and limits of its texts."""

    generator: Path
    """Directory of a generator, or of a plain sequence-to-sequence model with its tokenizer."""
    max_input: int = MAX_INPUT
    """Tokens of a question and a passage, read together."""
    max_answer: int = MAX_ANSWER
    """Tokens of an answer, the end token included."""

    def rules(self) -> Rules:
        """Return the rules of these settings."""
        return {"max_input": require_input_length(self.max_input), "max_answer": (self.max_answer > 1, "more than 1")}


FROM_RECIPE = Path("(from the recipe)")
"""Default of a stage for a path that the recipe gives."""
STAGE_DEFAULTS: dict[str, Any] = {
    "corpus": FROM_RECIPE,
    "encoder": FROM_RECIPE,
    "out": FROM_RECIPE,
    "device": TextFromRecipe("cpu"),
    "seed": NumberFromRecipe(0),
}
"""Defaults of every stage for settings that the recipe gives."""
STAGE_INDEX = TrainingIndexConfig(kind=TextFromRecipe(DEFAULT_KIND))
"""Default index of a stage, whose kind the recipe gives."""
