"""The closed book: a generator that answers from its weights alone (Roberts et al. 2020), to compare with.

    python -m pipelines.closed_book --generator t5-base --questions train.jsonl --dev dev.jsonl --out runs/closed
    ragqa ask --index wiki.index --reader closed-book:runs/closed/model "…"

What it answers to held-out questions it has from its pretraining, or from questions that are asked again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from pipelines import generating, writing
from pipelines.cluster import together
from pipelines.run import require, usual
from ragqa.models.rag import MAX_INPUT
from ragqa.progress import SILENT, Progress


@dataclass(frozen=True, kw_only=True)
class ClosedBookConfig:
    """What is trained, on what, and for how long. Roberts et al.: T5, 10,000 to 20,000 steps."""

    generator: Path
    """Directory of a generator, or of a plain sequence-to-sequence model with its tokenizer."""
    questions: Path
    """File of questions with answers: .jsonl, .tsv, or SQuAD's .json."""
    out: Path
    """Directory of the run, its ``model`` and its ``pipeline``; one found there goes on."""
    dev: Path | None = None
    """File of held-out questions, asked as training goes on: what is written in the end answers most of them."""
    sample: int = 500
    """How many of them."""
    regex: bool = False
    """Answers of ``dev`` are patterns (CuratedTREC); those that are taught are words to be written."""
    calibrate: int = 1000
    """Held-out questions on which confidence is fitted, at most."""
    index: Path | None = None
    """Index directory for a pipeline, which has to have one, though nothing of it is read."""
    steps: int = 10_000
    batch: int = 64
    """Questions a step."""
    lr: float = 1e-4
    warmup: int | None = None
    """Steps; by default 1000, or a tenth of all if that is less."""
    weight_decay: float = 0.01
    clip: float = 1.0
    """Largest norm of the gradient."""
    dropout: float = 0.1
    """On a CPU a step takes less than half as long with 0."""
    max_input: int = MAX_INPUT
    """Tokens of a question that are read."""
    max_answer: int = writing.LONGEST
    """Tokens of an answer."""
    processes: int = 1
    """That train together, a share of each batch in each, by Ray Train."""
    gpus: bool = False
    """A GPU for each of them."""
    eval_every: int = 500
    save_every: int = 500
    device: str = "cpu"
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise BadInput for values that cannot be meant."""
        require(
            **usual(self),
            calibrate=(self.calibrate, self.calibrate >= 0),
            max_input=(self.max_input, self.max_input >= 16),
            max_answer=(self.max_answer, self.max_answer > 1),
        )


def main(
    config: ClosedBookConfig, *, progress: Progress = SILENT, tell: Callable[[str], None] = lambda line: None
) -> Path:
    """Train, or go on training; the directory of the generator. Raises as ``pipelines.fid`` does."""
    torch.manual_seed(config.seed)
    sizes = {"passages": 1, "max_input": config.max_input}
    generator = writing.opened(config.generator, "closed-book", dropout=config.dropout, device=config.device, **sizes)
    return generating.train(
        config, generator, lambda texts: [[] for _ in texts], name="closed book", progress=progress, tell=tell
    )


def whole(
    config: ClosedBookConfig, *, progress: Progress = SILENT, tell: Callable[[str], None] = lambda line: None
) -> Path:
    """Train, in as many processes as are wanted; the pipeline directory where there is an index, else the model's."""
    model = together(main, config, progress=progress, tell=tell)
    if config.index is None:
        return model
    return generating.publish(config, config.index, k=1, progress=progress, tell=tell)


if __name__ == "__main__":
    from index.command import one_line, parse
    from ragqa.progress import Bars

    with one_line("pipelines.closed_book"):
        print(whole(parse(ClosedBookConfig, __doc__), progress=Bars(), tell=print))
