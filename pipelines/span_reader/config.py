"""The settings of a span reader's training: what it is trained from, and how."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipelines.common.config import TrainingConfig, require
from pipelines.common.data_sets import HELD_OUT_SHARE, list_question_files
from pipelines.common.mining import QuestionFile
from ragqa.errors import BadInput
from ragqa.reading.span import MAX_ANSWER

MOST_HARD = 0.8
"""Share of the steps that hard EM takes at most once it is warm (Min et al. 2019, released code)."""


@dataclass(frozen=True, kw_only=True)
class ReaderConfig(TrainingConfig):
    """What a reader is trained from and how. The defaults are reckoned, not tuned."""

    encoder: Path
    """Directory (config, safetensors, tokenizer.json) of the encoder it begins from, or of a reader that goes on."""
    train: tuple[Path, ...] = ()
    """Files of questions: SQuAD's .json, .jsonl with passages (QED's) or without them, pairs of question and answer."""
    patterns: tuple[Path, ...] = ()
    """Files whose answers are regular expressions (CuratedTREC)."""
    shares: tuple[float, ...] = ()
    """Of the questions, a number a file, those of ``patterns`` last; by default each counts by its size."""
    index: Path | None = None
    """Index directory that passages are found in; without it questions need passages, and negatives are random."""
    retriever: str | None = None
    """Who finds them; by default all that the index can do."""
    depth: int = 50
    """Passages of a question that are looked at."""
    pool: int = 20
    """Of these as many are kept that hold an answer, and that hold none; the best of them."""
    positives: int = 1
    """Passages with an answer that a question is read in, if it has gold ones: these first, then those found."""
    distant: int = 3
    """The same of a question that has none; the best of those found are drawn most often."""
    negatives: float = 1.0
    """Passages without one beside them, on average."""
    hard: float = 0.8
    """Share of these that are near the question: found for it, or of the same article; the others are any."""
    whole: float = 0.5
    """Share of the passages of a question with gold ones that are paragraphs, right and wrong ones; the others are
    blocks, cut as those of the index, so that their form says nothing."""
    untitled: float = 0.1
    """Share of the passages that are read without their title."""
    loss: Literal["marginal", "hard"] = "marginal"
    """Some right span, whichever; or the one that is thought best."""
    tau: float = 0.5
    """Share of the steps over which ``hard`` would take the place of ``marginal`` in more and more of them, up to
    ``MOST_HARD``."""
    apart: bool = False
    """Normalise the spans of each passage by itself (an ablation)."""
    relevance: float = 0.5
    """Weight of the loss that asks the first token whether its passage holds an answer."""
    teacher: Path | None = None
    """Directory of a larger reader, in torch, of the same wordpieces."""
    temperature: float = 2.0
    """At which its spans are compared."""
    taught: float = 0.5
    """Weight of what the teacher says; that of the answers is the rest."""
    steps: int = 8000
    batch: int = 32
    """Questions a step."""
    accumulate: int = 1
    """Parts of a batch, and of a process's share of it, that are computed one after the other."""
    lr: float = 2e-4
    max_input: int = 384
    """Wordpieces of question, title and passage that are read together."""
    max_span: int = MAX_ANSWER
    """Wordpieces of an answer."""
    freeze_embeddings: bool = True
    """Keep the encoder's embeddings, so that its export and the reader's share them."""
    dev: Path | None = None
    """File of held-out questions, asked over the index as training goes on; what stands there is not trained on."""
    refuse: tuple[Path, ...] = ()
    """Files of questions, those of the tests, say, that are neither trained on nor asked as training goes on."""
    read: int = 10
    """Passages of each that are read."""
    held_out: float = HELD_OUT_SHARE
    """Share of the articles of SQuAD's files, by a hash of the title, whose questions are not trained on but asked."""
    sample: int = 500
    """How many of each file are asked."""
    eval_every: int = 500
    patience: int | None = None
    """Evaluations without a better one after which training stops; the best weights are written in any case, of equal
    ones the last."""

    def __post_init__(self) -> None:
        """Raise BadInput for values that cannot be meant."""
        shares, counts = ("hard", "whole", "untitled", "taught"), ("positives", "distant")
        within = {name: (0 <= getattr(self, name) <= 1, "from 0 to 1") for name in shares}
        above = {name: (getattr(self, name) > 0, "above 0") for name in (*counts, "tau", "temperature")}
        files, even = len(self.sources), self.accumulate > 0 and self.batch % self.accumulate == 0
        require(
            self,
            **within,
            **above,
            held_out=(0 <= self.held_out < 1, "0 or more and below 1"),
            negatives=(self.negatives >= 0, "0 or more"),
            relevance=(self.relevance >= 0, "0 or more"),
            accumulate=(even, f"a divisor of the batch, {self.batch}"),
            apart=(not (self.apart and self.teacher), "without a teacher, whose spans are those of all passages"),
            patience=(self.patience is None or self.patience > 0, "above 0"),
            max_span=(0 < self.max_span <= MAX_ANSWER, f"from 1 to {MAX_ANSWER}, the longest that is ever answered"),
            shares=(not self.shares or (len(self.shares) == files and min(self.shares) > 0), f"{files} above 0"),
        )
        if not files:
            raise BadInput("--train or --patterns is needed: files of training questions")
        if self.dev and not self.index:
            raise BadInput("--dev is asked over an index: give --index, too")

    @property
    def sources(self) -> list[QuestionFile]:
        """Files of training questions."""
        return list_question_files(self.train, self.patterns)
