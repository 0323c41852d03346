"""Measure the cost of index refreshes during REALM's pretraining.

    python -m eval.bench.refresh --index wiki.index --work runs/refresh --out docs/measurements/refresh.json

``pipelines.realm.pretrain`` pretrains a small model with random weights. At fixed intervals, a Ray actor makes a new
index from the current weights while training continues. Only ``first_index_s`` counts the first index.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from eval.bench.embed import cut_index
from eval.bench.record import report
from eval.command import run_command
from ragqa.artefacts.paths import get_weights_dir
from ragqa.progress import Bars
from ragqa.training.log import read_rows

WIDTH, LAYERS = 96, 2
"""Width and number of layers of the model."""
TOKENIZER = get_weights_dir() / "encoder" / "tokenizer.json"


@dataclass(frozen=True, kw_only=True)
class RefreshBenchConfig:
    """Settings of the measured run."""

    index: Path
    """Index directory whose passages are masked and retrieved."""
    work: Path
    """Directory for the run; the files of an earlier measurement in it are deleted."""
    out: Path
    """JSON file to write the figures to."""
    passages: int = 5000
    """Number of passages in the index."""
    steps: int = 2000
    """Number of training steps."""
    every: int = 300
    """Number of steps between two refreshes."""
    batch: int = 32
    """Number of texts of a step."""


def main(config: RefreshBenchConfig) -> None:
    """Measure the refreshes of a training run; write the figures.

    Raises:
        RagqaError: as for ``cut_index`` and ``pipelines.realm.pretrain_loop.main``.
    """
    from pipelines.common.config import MaskingConfig, RefreshConfig, TrainingIndexConfig
    from pipelines.realm import pretrain_loop
    from pipelines.realm.config import PretrainConfig

    for name in ("corpus.index", "encoder", "run"):  # of an earlier measurement; other files in the directory stay
        shutil.rmtree(config.work / name, ignore_errors=True)
    corpus, encoder = cut_index(config.index, config.passages, config.work / "corpus.index"), config.work / "encoder"
    parameters = write_encoder(encoder)
    settings = PretrainConfig(
        corpus=corpus,
        encoder=encoder,
        retriever=encoder,
        out=config.work / "run",
        steps=config.steps,
        batch=config.batch,
        k=4,
        lr=3e-4,
        frozen=0,
        dropout=0.0,
        max_block=96,
        save_every=config.steps,
        masking=MaskingConfig(masking="uniform"),
        index=TrainingIndexConfig(workers=1),
        refresh=RefreshConfig(refresh_every=config.every),
    )
    pretrain_loop.main(settings, progress=Bars())
    figures = {
        "model": f"BERT of {LAYERS} layers, width {WIDTH}, {parameters:,} parameters, as towers and as reader",
        "batch": config.batch,
        "refresh_every_steps": config.every,
        "actors": settings.index.workers,
        "kind": settings.index.kind,
        **summarize_swaps(read_rows(settings.out)),
    }
    report(config.out, figures, corpus=f"{config.passages:,} passages of {config.index.name}", questions="none")


def write_encoder(folder: Path) -> int:
    """Write a small masked language model with random weights; return its parameter count."""
    import torch
    from transformers import BertConfig

    from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder

    torch.manual_seed(0)
    sizes = {"hidden_size": WIDTH, "intermediate_size": 4 * WIDTH, "num_hidden_layers": LAYERS}
    BertConfig(**sizes, num_attention_heads=4).save_pretrained(folder)
    shutil.copy(TOKENIZER, folder)
    model = KnowledgeAugmentedEncoder.from_config(folder)
    model.save(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def summarize_swaps(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the speed of the training steps, and the cost of the indexes after the first one.

    Args:
        rows: rows of the log of the run.

    Returns:
        Figures by name. Times are in seconds, and ``staleness_at_swap`` is in steps. ``stood_still_s`` is the total of
        all swaps. ``embedding_s``, ``building_s``, ``staleness_at_swap`` and ``stood_still_s_a_swap`` are medians.
    """
    first, *swaps = [row for row in rows if "swap_paused" in row]
    steps = [row for row in rows if "nll" in row]
    pauses = [row["swap_paused"] for row in swaps]
    slowdowns = [row["swap_slowdown"] for row in swaps if row["swap_slowdown"] is not None] or [0.0]
    seconds = sum(row["seconds"] for row in steps) + sum(pauses)
    return {
        "steps": len(steps),
        "steps_per_s": round(len(steps) / seconds, 2),
        "seconds": round(seconds, 1),
        "swaps": len(swaps),
        "stood_still_s": round(sum(pauses), 3),
        "stood_still_share": round(sum(pauses) / seconds, 5),
        "stood_still_s_a_swap": round(median(pauses), 3),
        "slowdown_of_steps": {"median": round(median(slowdowns), 3), "most": round(max(slowdowns), 3)},
        "embedding_s": round(median(row["swap_embedding"] for row in swaps), 2),
        "building_s": round(median(row["swap_building"] for row in swaps), 2),
        "staleness_at_swap": round(median(row["swap_staleness"] for row in swaps)),
        "first_index_s": round(first["swap_embedding"] + first["swap_building"], 1),
        "loss": {
            "first 50 steps": round(mean(row["nll"] for row in steps[:50]), 3),
            "last 50 steps": round(mean(row["nll"] for row in steps[-50:]), 3),
        },
    }


if __name__ == "__main__":
    run_command(main, RefreshBenchConfig, __doc__)
