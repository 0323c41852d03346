"""Fusion-in-Decoder: a generator that reads many passages at once, which others find (Izacard & Grave 2021).

    python -m pipelines.fid --index wiki.index --generator t5-base --questions train.jsonl --dev dev.jsonl \\
        --out runs/fid
    ragqa ask --pipeline runs/fid/pipeline "…"

The index proposes by whatever it was made for: dense vectors, BM25 or both. Only the generator learns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from pipelines import fid_training
from pipelines.common import generation
from pipelines.common.config import Rules, above_0
from pipelines.common.processes import train_in_processes
from pipelines.common.retrieval_eval import KS
from pipelines.common.training_index.base import check_corpus_size
from ragqa.progress import SILENT, Progress
from ragqa.reading.registry import ReaderKind
from ragqa.retrieval.live import open_retriever
from ragqa.types import Hit


@dataclass(frozen=True, kw_only=True)
class FidConfig(fid_training.GeneratingConfig):
    """What is trained, on what, and for how long. FiD: T5, 100 passages of 250 tokens, batch 64, 10,000 steps."""

    index: Path
    """Index directory of the passages."""
    retriever: str | None = None
    """dense, bm25 or hybrid; by default all that the index can do."""
    k: int = 10
    """Passages of a question: the more, the better it answers and the longer it takes."""

    def rules(self) -> Rules:
        """Return the rules of all settings."""
        return {**super().rules(), "k": above_0(self.k)}


def main(config: FidConfig, *, progress: Progress = SILENT, notify: Callable[[str], None] = lambda line: None) -> Path:
    """Train, or go on training; the directory of the generator.

    Raises:
        BadInput, ArtefactError, Mismatch: a file or directory is not what it should be.
        NonFiniteLoss: training would have spoiled the weights.
    """
    check_corpus_size(config.index, config.k, "--k")
    retriever = open_retriever(config.index, config.retriever, device=config.device)
    torch.manual_seed(config.seed)
    generator = generation.load_for_training(ReaderKind.FID, config, config.writing, config.k, notify)

    def search(texts: list[str]) -> list[list[Hit]]:
        return retriever.search(texts, max(*KS, config.k))  # recall is measured deeper than is read

    return fid_training.train(config, generator, search, name="FiD", progress=progress, notify=notify)


def whole(config: FidConfig, *, progress: Progress = SILENT, notify: Callable[[str], None] = lambda line: None) -> Path:
    """Train, in as many processes as are wanted, and put together; the pipeline directory."""
    train_in_processes(main, config, progress=progress, notify=notify)
    return fid_training.publish(config, config.index, retriever=config.retriever, progress=progress, notify=notify)


if __name__ == "__main__":
    from ragqa.cli.config import parse_config, report_errors
    from ragqa.progress import Bars

    with report_errors("pipelines.fid"):
        print(whole(parse_config(FidConfig, __doc__), progress=Bars(), notify=print))
