"""Settings of Fusion-in-Decoder and of the closed book."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pipelines.common.config import HeldOutConfig, TrainingConfig, WritingConfig
from ragqa.retrieval.registry import RetrieverKind
from ragqa.settings.checks import report_together, require_non_negative, require_positive
from ragqa.settings.groups import FLAT


@dataclass(frozen=True, kw_only=True)
class FidConfig(TrainingConfig):
    """Settings of the training of FiD or of a closed book; in the papers, both begin from T5.

    The paper of FiD has 100 passages of 250 tokens, 64 questions per step and 10,000 steps. The paper of the closed
    book has 10,000 to 20,000 steps.
    """

    questions: Path
    """File of questions with answers: .jsonl, .tsv, or SQuAD's .json."""
    writing: Annotated[WritingConfig, FLAT]
    """Generator that training begins from."""
    index: Path | None = None
    """Index directory of the passages; without an index, the recipe trains a closed book.
    With an index, the recipe also writes a pipeline."""
    retriever: Annotated[str | None, RetrieverKind] = None
    """Kind of retriever; default: the retriever of the index."""
    k: int = 10
    """Number of passages per question; 0 is the closed book. More passages give better answers and take longer."""
    held_out: Annotated[HeldOutConfig, FLAT] = HeldOutConfig(eval_every=500)
    """Held-out questions."""
    calibrate: int = 1000
    """Largest number of held-out questions on which confidence is calibrated; 0 does not calibrate."""
    steps: int = 10_000
    """Number of optimizer steps."""
    batch: int = 64
    """Number of questions per step."""

    @report_together()
    def __post_init__(self) -> None:
        """Raise BadInput for values out of range."""
        super().__post_init__()
        require_positive(self, "batch")
        require_non_negative(self, "calibrate", "k")

    @property
    def is_closed_book(self) -> bool:
        """True if the generator reads no passages."""
        return self.k == 0 or self.index is None
