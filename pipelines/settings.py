"""Settings that recipes share; each has defaults of its own where its paper does."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragqa.errors import BadInput
from ragqa.models.rag import MAX_INPUT
from ragqa.retrieval import mips

LONGEST = 32
"""Tokens of an answer that is written."""

MASKINGS = ("salient", "spans", "words", "uniform")

_POSITIVE = (
    *("steps", "epochs", "rounds", "batch", "chunk", "processes", "lr", "clip", "eval_every", "save_every"),
    *("refresh_every", "sample", "k", "read", "depth", "pool", "width", "hidden", "gain", "spans", "max_span"),
)
_NOT_NEGATIVE = (
    *("retriever_lr", "warmup", "frozen", "weight_decay", "max_staleness", "workers", "calibrate", "judged_by"),
)
_RULES: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(_POSITIVE, lambda value: value > 0),
    **dict.fromkeys(_NOT_NEGATIVE, lambda value: value >= 0),
    **dict.fromkeys(("rate", "thin"), lambda value: 0 < value < 1),
    **dict.fromkeys(("max_query", "max_text", "max_block"), lambda value: value > 3),  # more than [CLS] and [SEP]
    "dropout": lambda value: 0 <= value < 1,
    "max_input": lambda value: value >= 16,
    "max_answer": lambda value: value > 1,
    "pooling": lambda value: value in ("cls", "mean"),
    "masking": lambda value: value in MASKINGS,
    "marginal": lambda value: value in ("token", "sequence"),
}
"""Of settings that mean the same in all recipes; None is what a type may allow."""


def require(config: Any, **own: tuple[Any, bool]) -> None:
    """Raise BadInput for all settings at once that cannot be meant, by the rules of all recipes and its own.

    ``own``: by name, what is told of a setting, and whether it can be meant.
    """
    if kind := getattr(config, "kind", None):
        mips.check(kind, "cpu")
    values = {name: getattr(config, name, None) for name in _RULES}
    rules = {name: (value, _RULES[name](value)) for name, value in values.items() if value is not None}
    if values["warmup"] is not None and values["steps"] is not None and values["warmup"] > values["steps"]:
        rules["warmup"] = f"{values['warmup']}, of {values['steps']} steps", False
    rules |= own
    if wrong := [f"{name} = {told}" for name, (told, holds) in rules.items() if not holds]:
        raise BadInput(f"{', '.join(wrong)}: out of range (--help says what is meant)")


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Of every recipe, which checks them together with its own."""

    out: Path
    """Directory of the run; one found there goes on."""
    warmup: int | None = None
    """Steps; by default 1000, or a tenth of all if that is less."""
    weight_decay: float = 0.01
    clip: float = 1.0
    """Largest norm of the gradient."""
    dropout: float = 0.1
    """On a CPU a step takes less than half as long with 0."""
    processes: int = 1
    """That train together, a share of each batch in each, by Ray Train."""
    gpus: bool = False
    """A GPU for each process, and for each actor where actors embed."""
    save_every: int = 500
    device: str = "cpu"
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class MaskingConfig(TrainingConfig):
    """Of recipes that mask texts to be guessed beside passages."""

    corpus: Path
    """Index directory of the passages Z that can be read."""
    masking: str = "salient"
    """salient (names, dates, numbers), spans, words or uniform."""
    tagger: str = "rule"
    """What finds salient spans: rule, or spacy:MODEL."""
    spans: int = 1
    """Salient spans that are masked in a text."""
    rate: float = 0.15
    """Share of the wordpieces that are masked otherwise."""
    batch: int = 512
    """Texts a step."""
    max_text: int = 64
    """Wordpieces of a text, at most half of what the encoder reads."""
    max_block: int = 288
    """Wordpieces of a passage."""


@dataclass(frozen=True, kw_only=True)
class AnsweringConfig(TrainingConfig):
    """Of recipes that learn from questions and answers."""

    questions: Path
    """File of questions with answers: .jsonl, .tsv, or SQuAD's .json."""
    dev: Path | None = None
    """File of held-out questions, asked as training goes on: what is written in the end answers most of them."""
    sample: int = 500
    """How many of them."""
    regex: bool = False
    """Answers of ``dev`` are patterns (CuratedTREC), which can be found but not written."""
    eval_every: int = 1000


@dataclass(frozen=True, kw_only=True)
class WritingConfig(AnsweringConfig):
    """Of recipes whose answers are written."""

    generator: Path
    """Directory of a generator, or of a plain sequence-to-sequence model with its tokenizer."""
    max_input: int = MAX_INPUT
    """Tokens of question and passage that are read together."""
    max_answer: int = LONGEST
    """Tokens of an answer."""
