"""Settings of a calibration."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pipelines.common.examples.data_sets import HELD_OUT_SHARE
from pipelines.common.plot import check_plot
from ragqa.errors import BadInput
from ragqa.reading.base import DEFAULT_PASSAGES
from ragqa.retrieval.registry import RetrieverKind
from ragqa.settings.checks import report_together, require_non_negative, require_positive, require_share_below_1

SELECTION_SAMPLE, SELECTION_SEED = 500, 0
"""Number of questions per file that selected the shipped reader, and the seed that chose them."""


@dataclass(frozen=True, kw_only=True)
class CalibrateConfig:
    """Settings of the calibration of a span reader."""

    reader: Path
    """Directory of the exported reader."""
    work: Path
    """Directory for the index of SQuAD's paragraphs."""
    out: Path
    """JSON file to write the figures into."""
    squad: Path | None = None
    """SQuAD 1.1 train file, whose held-out questions are used."""
    questions: Path | None = None
    """File of other held-out questions, answered from ``index``."""
    index: Path | None = None
    """Index directory for ``questions``."""
    own_questions: Path | None = None
    """File of questions about own documents. All questions are used, with and without an answer."""
    own_index: Path | None = None
    """Index directory for ``own_questions``."""
    retriever: Annotated[str | None, RetrieverKind] = None
    """Kind of retriever for ``index`` and SQuAD's paragraphs; default: the retriever of each index."""
    count: int = 1200
    """Maximum number of questions per file; ``own_questions`` has no limit."""
    selection_sample: int = SELECTION_SAMPLE
    """Number of questions per file that selected the weights (``--sample`` of the training)."""
    seed: int = SELECTION_SEED
    """Seed of the training, which determines the questions that selected the weights."""
    exclude: tuple[Path, ...] = ()
    """Files of questions to leave out, such as test sets."""
    held_out: float = HELD_OUT_SHARE
    """Share of SQuAD's articles that training held out."""
    k: int = DEFAULT_PASSAGES
    """Number of passages to read for each question."""
    plot: Path | None = None
    """Picture of refusals and reliability to write: .png, .svg or .pdf."""

    @report_together()
    def __post_init__(self) -> None:
        """Raise BadInput for settings that cannot be used."""
        require_positive(self, "count", "k")
        require_share_below_1(self, "held_out")
        require_non_negative(self, "selection_sample")
        if bool(self.own_questions) != bool(self.own_index):
            raise BadInput("--own-questions FILE and --own-index DIR go together")
        if bool(self.questions) != bool(self.index) or not (self.squad or self.questions):
            raise BadInput("--squad FILE, or --questions FILE with --index DIR, or all of them are needed")
        if self.plot:
            check_plot(self.plot)
        if self.out.is_dir():
            raise BadInput(f"--out {self.out} is a directory: name a file")
