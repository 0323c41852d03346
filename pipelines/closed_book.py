"""The closed book: a generator that answers from its weights alone (Roberts et al. 2020), to compare with.

    python -m pipelines.closed_book --generator t5-base --questions train.jsonl --dev dev.jsonl --out runs/closed
    ragqa ask --index wiki.index --reader closed-book:runs/closed/model "…"

What it answers to held-out questions it has from its pretraining, or from questions that are asked again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from pipelines import fid_training
from pipelines.common import generation
from pipelines.common.processes import train_in_processes
from ragqa import artefacts
from ragqa.progress import SILENT, Progress
from ragqa.reading.registry import ReaderKind


@dataclass(frozen=True, kw_only=True)
class ClosedBookConfig(fid_training.GeneratingConfig):
    """What is trained, on what, and for how long. Roberts et al.: T5, 10,000 to 20,000 steps."""

    index: Path | None = None
    """Index directory for a pipeline, which has to have one, though nothing of it is read."""


def main(
    config: ClosedBookConfig, *, progress: Progress = SILENT, notify: Callable[[str], None] = lambda line: None
) -> Path:
    """Train, or go on training; the directory of the generator. Raises as ``pipelines.fid`` does."""
    torch.manual_seed(config.seed)
    generator = generation.load_for_training(ReaderKind.CLOSED_BOOK, config, config.writing, 1, notify)
    return fid_training.train(
        config, generator, lambda texts: [[] for _ in texts], name="closed book", progress=progress, notify=notify
    )


def whole(
    config: ClosedBookConfig, *, progress: Progress = SILENT, notify: Callable[[str], None] = lambda line: None
) -> Path:
    """Train, in as many processes as are wanted; the pipeline directory where there is an index, else the model's."""
    if config.index is not None:
        artefacts.read_manifest(config.index, "index")  # now, not after the training
    model = train_in_processes(main, config, progress=progress, notify=notify)
    if config.index is None:
        return model
    return fid_training.publish(config, config.index, progress=progress, notify=notify)


if __name__ == "__main__":
    from ragqa.cli.config import parse_config, report_errors
    from ragqa.progress import Bars

    with report_errors("pipelines.closed_book"):
        print(whole(parse_config(ClosedBookConfig, __doc__), progress=Bars(), notify=print))
