"""Settings that recipes share; each has defaults of its own where its paper does."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragqa.errors import BadInput
from ragqa.models.generation.limits import MAX_ANSWER, MAX_INPUT
from ragqa.reading.windows import MIN_WINDOW
from ragqa.retrieval.vectors import mips
from ragqa.retrieval.vectors.kinds import DEFAULT_KIND, IndexKind

MASKINGS = ("salient", "spans", "words", "uniform")

Rule = tuple[Callable[[Any], bool], str]
"""What a setting has to be, and that in words."""
_ABOVE_0: Rule = (lambda value: 0 < value < math.inf, "above 0")
_0_OR_MORE: Rule = (lambda value: value >= 0, "0 or more")
_WITHIN: Rule = (lambda value: 0 < value < 1, "between 0 and 1")
_WIDTH: Rule = (lambda value: 0 < value <= 65_536, "above 0 and at most 65,536")
_TEXT: Rule = (lambda value: value > 3, "more than 3: [CLS] and [SEP] are counted")


def _one_of(values: Sequence[str]) -> Rule:
    return lambda value: value in values, f"one of {', '.join(values)}"


_RULES: dict[str, Rule] = {
    **dict.fromkeys(("steps", "epochs", "rounds", "batch", "chunk", "processes", "lr", "clip", "eval_every"), _ABOVE_0),
    **dict.fromkeys(("save_every", "refresh_every", "sample", "k", "read", "depth", "pool"), _ABOVE_0),
    **dict.fromkeys(("gain", "spans", "max_span"), _ABOVE_0),
    **dict.fromkeys(("width", "hidden"), _WIDTH),
    "seed": (lambda value: 0 <= value < 2**63, "0 or more and below 2^63"),
    **dict.fromkeys(("retriever_lr", "warmup", "frozen", "weight_decay", "max_staleness"), _0_OR_MORE),
    **dict.fromkeys(("workers", "calibrate", "judged_by"), _0_OR_MORE),
    **dict.fromkeys(("rate", "thin"), _WITHIN),
    **dict.fromkeys(("max_query", "max_text", "max_block"), _TEXT),
    "dropout": (lambda value: 0 <= value < 1, "0 or more and below 1"),
    "max_input": (lambda value: value >= MIN_WINDOW, f"{MIN_WINDOW} or more"),
    "max_answer": (lambda value: value > 1, "more than 1"),
    "kind": _one_of(tuple(IndexKind)),
    "masking": _one_of(MASKINGS),
    "pooling": _one_of(("cls", "mean")),
    "marginal": _one_of(("token", "sequence")),
}
"""Of settings that mean the same in all recipes; None is what a type may allow."""


def require(config: Any, **own: tuple[bool, str]) -> None:
    """Raise BadInput for all settings at once that cannot be meant, by the rules of all recipes and its own.

    ``own``: by name, whether a setting can be meant, and what it has to be.
    """
    values = {name: getattr(config, name, None) for name in _RULES}
    rules = {name: (holds(values[name]), words) for name, (holds, words) in _RULES.items() if values[name] is not None}
    rules |= {name: each for name, each in _pairs(values).items() if rules[name][0]} | own
    wrong = {name: words for name, (holds, words) in rules.items() if not holds}
    if wrong:
        told = ", ".join(f"{name} = {getattr(config, name)}" for name in wrong)
        raise BadInput(f"{told}: out of range ({'; '.join(f'{name}: {words}' for name, words in wrong.items())})")
    if values["kind"] is not None:
        mips.check_kind(values["kind"], "cpu")


def _pairs(values: Mapping[str, Any]) -> dict[str, tuple[bool, str]]:
    """Rules of settings that depend on each other."""
    steps, every, warmup, bound = (values[name] for name in ("steps", "refresh_every", "warmup", "max_staleness"))
    found = {}
    if steps is not None and warmup is not None:
        found["warmup"] = warmup <= steps, f"at most the {steps} steps"
    if bound is not None and every is None:
        found["max_staleness"] = False, "without refresh_every there is no refresh to wait for"
    elif bound is not None:
        found["max_staleness"] = bound >= every, "refresh_every or more"
    return found


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Of every recipe, which checks them together with its own."""

    out: Path
    """Directory of the run; one found there goes on."""
    warmup: int | None = None
    """Steps; by default 1000, or a tenth of all if that is less."""
    weight_decay: float = 0.01
    """Of weights; biases and norms have none."""
    clip: float = 1.0
    """Largest norm of the gradient."""
    dropout: float = 0.1
    """On a CPU a step takes less than half as long with 0."""
    compile: bool = False
    """Compile the encoders: the first steps take a minute longer, the others a quarter less (docs/decisions.md)."""
    processes: int = 1
    """That train together, a share of each batch in each, by Ray Train."""
    gpus: bool = False
    """A GPU for each process, and for each actor where actors embed."""
    save_every: int = 500
    """Steps between two checkpoints, from which the same command goes on."""
    device: str = "cpu"
    """cpu, cuda or cuda:N."""
    seed: int = 0
    """Of all that is random."""


@dataclass(frozen=True, kw_only=True)
class FollowingConfig(TrainingConfig):
    """Of recipes whose retriever learns from what a reader makes of its passages, and so has to follow it."""

    steps: int
    """Optimizer steps."""
    lr: float
    """Learning rate at its peak, of what reads."""
    retriever_lr: float | None = None
    """Of the towers; by default a fifth of ``lr``: one that learns as fast as its reader collapses
    (docs/train/realm.md). REALM has one rate for both."""
    frozen: int | None = None
    """Steps before the retriever learns, and its rate warms up; by default half of them: the reader has to use
    passages first. 0 where it does from the beginning, as in REALM."""
    refresh_every: int | None = 500
    """Steps between two refreshes of the index; None never refreshes it (an ablation)."""
    max_staleness: int | None = None
    """Steps that the index may be behind before training waits for it; by default twice ``refresh_every``."""
    kind: str = DEFAULT_KIND
    """Of the index: flat, hnsw, ivf-flat, ivf-pq, ivf-rabitq, sq8."""
    workers: int = 0
    """Ray actors that embed for the next index while training goes on; 0 stops training for it."""

    @property
    def waits(self) -> int:
        """Steps before the retriever learns."""
        return self.steps // 2 if self.frozen is None else self.frozen

    @property
    def retriever_peak(self) -> float:
        """The retriever's learning rate at its peak."""
        return self.lr / 5 if self.retriever_lr is None else self.retriever_lr


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
    """Wordpieces of a text, at most half of what the encoder reads, and what the tower of questions was trained on."""
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
    """Steps between two evaluations on ``dev``."""


@dataclass(frozen=True, kw_only=True)
class WritingConfig(AnsweringConfig):
    """Of recipes whose answers are written."""

    generator: Path
    """Directory of a generator, or of a plain sequence-to-sequence model with its tokenizer."""
    max_input: int = MAX_INPUT
    """Tokens of question and passage that are read together."""
    max_answer: int = MAX_ANSWER
    """Tokens of an answer, its end included."""
