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
    """Settings of DPR's training; most defaults follow the released code for Natural Questions."""

    corpus: Path
    """Index directory of the passages, made with ``--retriever bm25``."""
    encoder: Path | None = None
    """Directory of the encoder that both towers begin from; give either this or ``retriever``."""
    retriever: Path | None = None
    """Directory of a dual encoder to begin from; it keeps its width, pooling and number of towers."""
    questions: tuple[Path, ...] = ()
    """Files of questions with answers or gold passages; see docs/evaluate.md."""
    patterns: tuple[Path, ...] = ()
    """Files whose answers are regular expressions (CuratedTREC)."""
    corpus_only: bool = False
    """Leave out gold passages that the corpus does not contain.
    Their form can differ from the corpus, for example by a missing title, and the model would learn the difference."""
    dev: Path | None = None
    """File of held-out questions, which are left out of training; recall is measured on a sample of them.
    Each round saves the weights with the best recall@5; without this file, it saves the last weights."""
    dev_regex: bool = False
    """Treat the answers in ``dev`` as regular expressions (CuratedTREC)."""
    sample: int | None = 500
    """Size of the random sample of ``dev`` to evaluate on; None takes all."""
    rounds: int = 1
    """Number of rounds. The first has negatives of BM25; later rounds also have negatives of the retriever."""
    continue_weights: bool = False
    """Begin a later round with the weights of the previous round (ANCE), not with the first weights (DPR)."""
    depth: int = 100
    """Number of passages to retrieve per question, from which positives and negatives are chosen."""
    pool: int = 30
    """Number of best-ranked negatives of each question and retriever, from which a batch samples."""
    epochs: float = 40.0
    """Number of passes over the questions in each round; the paper has 100 for small data sets (section 5)."""
    steps: int | None = None  # type: ignore[assignment]  # None: as many as ``epochs`` take
    """Number of optimizer steps of each round, instead of ``epochs``."""
    batch: int = 128
    """Number of questions per step."""
    hard: int = 1
    """Number of hard negatives of each question in a batch."""
    chunk: int = 128
    """Number of texts whose activations are in memory at the same time; without dropout, it changes only rounding."""
    lr: float = 2e-5
    """Peak learning rate."""
    warmup: int | None = None
    """Steps in which the learning rate rises; default: 1237, but at most a tenth of all steps."""
    weight_decay: float = 0.0
    """Weight decay; biases and layer norms have none."""
    clip: float = 2.0
    """Largest norm of the gradient; a larger gradient is scaled down."""
    width: int | None = None
    """Width of the vectors after a projection; default: no projection."""
    pooling: Literal["cls", "mean"] = "cls"
    """Pooling of hidden states: the state of [CLS], or the mean over all wordpieces."""
    shared: bool = False
    """Use one encoder for questions and passages."""
    max_query: int = 64
    """Largest length of a question in wordpieces, including [CLS] and [SEP]."""
    max_block: int = 256
    """Largest length of a passage in wordpieces, including [CLS] and [SEP]."""
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
