"""Settings of DPR's training."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipelines.common.config import TrainingConfig, require_layer_width, require_text_length
from pipelines.common.examples.data_sets import list_question_files
from pipelines.common.examples.mining import QuestionFile
from ragqa.errors import BadInput
from ragqa.settings.checks import report_together, require, require_choice, require_non_negative, require_positive


@dataclass(frozen=True, kw_only=True)
class DprConfig(TrainingConfig):
    """Settings of DPR's training; the defaults are those of the paper for Natural Questions."""

    corpus: Path
    """Index directory of the passages, made with ``--retriever bm25``."""
    encoder: Path | None = None
    """Directory of the encoder that both towers begin from."""
    retriever: Path | None = None
    """Directory of a dual encoder to begin from instead of ``encoder``; width and pooling stay."""
    questions: tuple[Path, ...] = ()
    """Files of questions with answers or gold passages; see docs/evaluate.md."""
    patterns: tuple[Path, ...] = ()
    """Files whose answers are regular expressions (CuratedTREC)."""
    corpus_only: bool = False
    """Leave out gold passages that the corpus does not contain.
    Some of them lack a title, or their punctuation differs, so that a model recognises them by their form."""
    dev: Path | None = None
    """File of held-out questions to measure recall on, left out of training.
    Each round saves the weights with the best recall@5, or the last weights without this file."""
    dev_regex: bool = False
    """Treat the answers in ``dev`` as regular expressions (CuratedTREC)."""
    sample: int | None = 500
    """Number of questions of ``dev`` to evaluate on, a random sample."""
    rounds: int = 1
    """Rounds of training: the first has BM25's negatives, later rounds also have the retriever's."""
    continue_weights: bool = False
    """Begin later rounds with the weights of the round before (ANCE), not with the first weights (DPR)."""
    depth: int = 100
    """Number of passages to retrieve per question; its positive and negatives are chosen from them."""
    pool: int = 30
    """Negatives per question and retriever, highest-ranked first, to sample from."""
    epochs: float = 40.0
    """Passes over the questions in each round; the paper has 100 for small data sets (section 4.2)."""
    steps: int | None = None  # type: ignore[assignment]  # None: as many as ``epochs`` take
    """Optimizer steps of a round, instead of ``epochs``."""
    batch: int = 128
    """Questions per step."""
    hard: int = 1
    """Hard negatives of each question in a batch."""
    chunk: int = 128
    """Number of texts whose activations are in memory at the same time; it does not change results."""
    lr: float = 2e-5
    """Peak learning rate."""
    warmup: int | None = None
    """Warm-up steps; by default 1237, or a tenth of all steps if that is less."""
    weight_decay: float = 0.0
    """Weight decay of matrices; biases and norms have none."""
    clip: float = 2.0
    """Largest norm of the gradient."""
    width: int | None = None
    """Width of a projection of the vectors; default: no projection."""
    pooling: Literal["cls", "mean"] = "cls"
    """Pooling of a text's hidden states: [CLS], or the mean over all wordpieces."""
    shared: bool = False
    """Use one encoder for questions and passages."""
    max_query: int = 64
    """Wordpieces of a question, [CLS] and [SEP] included."""
    max_block: int = 256
    """Wordpieces of a passage, [CLS] and [SEP] included."""
    eval_every: int = 1000
    """Steps between two evaluations."""
    workers: int = 0
    """Number of Ray actors that embed passages for an evaluation or for mining; 0 embeds in this process."""
    no_export: bool = False
    """Do not export the retriever to 8 bits."""

    @report_together()
    def __post_init__(self) -> None:
        """Raise BadInput for settings that cannot be used."""
        super().__post_init__()
        require_positive(self, "sample", "rounds", "depth", "pool", "epochs", "batch", "chunk", "eval_every")
        has_negatives = self.batch > 1 or self.hard > 0
        require(self, "hard", self.hard >= 0 and has_negatives, "0 or more, and more than 0 with a batch of 1")
        require_layer_width(self, "width")
        require_choice(self, "pooling", ("cls", "mean"))
        require_text_length(self, "max_query", "max_block")
        require_non_negative(self, "workers")
        if (self.encoder is None) == (self.retriever is None):
            raise BadInput("give either --encoder or --retriever: training begins from its weights")
        if not self.files:
            raise BadInput("--questions or --patterns is needed: files of training questions")

    @property
    def files(self) -> list[QuestionFile]:
        """Files of training questions."""
        return list_question_files(self.questions, self.patterns)
