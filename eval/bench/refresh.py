"""Measure what an index that follows the weights costs a training run on the same cores.

    python -m eval.bench.refresh --articles AA.tar.xz --work runs/refresh --out docs/measurements/refresh.json

A small encoder learns to find a passage by one half of it, among the others of the batch and what the index proposes.
Meanwhile the Ray refresher makes the index anew from its weights at fixed intervals. Measured are the steps from the
first index to the last swap.
"""

import json
import logging
import os
import shutil
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from eval.bench.record import report
from eval.command import run_command
from index.refresh import IndexRefresher, RefreshSettings, open_ray_refresher
from ragqa.artefacts.paths import weights_dir
from ragqa.corpus.blocks import make_splitter
from ragqa.corpus.sources import read_documents
from ragqa.corpus.store import PassageStore
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.models.inputs import pad_rows
from ragqa.retrieval.registry import RetrieverKind
from ragqa.retrieval.vectors.kinds import IndexKind
from ragqa.retrieval.vectors.mips import Mips
from ragqa.runtime.tokens import TextTokenizer

BATCH, TOKENS, WIDTH, LAYERS = 32, 96, 96, 2
TEMPERATURE = 0.05
TOKENIZER = weights_dir() / "encoder"


@dataclass(frozen=True, kw_only=True)
class RefreshBenchConfig:
    """Corpus and rhythm of the run."""

    articles: Path
    """Prose, whatever ``ragqa index`` reads."""
    work: Path
    """Directory to make."""
    out: Path
    """JSON file of the figures."""
    passages: int = 5000
    """Blocks that are indexed."""
    every: int = 300
    """Steps between refreshes."""
    swaps: int = 6
    """Versions of the index after the first."""
    nice: int = 10
    """Niceness of the actors."""


class SmallTower(nn.Module):
    """A narrow BERT with mean pooling and unit length, as ``load_encoder`` opens a plain directory."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        sizes = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": 4}
        self.model = BertModel(BertConfig(**sizes, intermediate_size=4 * WIDTH))
        self._tokenizer = TextTokenizer(TOKENIZER)

    def forward(self, texts: list[str]) -> Tensor:
        """Return the vectors of texts, [B, D]."""
        inputs = pad_rows([self._tokenizer.encode_text(text, TOKENS).ids for text in texts])
        hidden_BLD = self.model(input_ids=inputs.ids_NL, attention_mask=inputs.mask_NL).last_hidden_state
        mask_BL1 = inputs.mask_NL.unsqueeze(-1)
        return normalize((hidden_BLD * mask_BL1).sum(1) / mask_BL1.sum(1), dim=-1)

    def save(self, folder: Path) -> None:
        """Save the tower where the refresher loads it."""
        self.model.save_pretrained(folder)
        shutil.copy(TOKENIZER / "tokenizer.json", folder)


@dataclass
class RefreshRun:
    """A training run of the small encoder."""

    passages: PassageStore
    tower: SmallTower = field(default_factory=SmallTower)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    losses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.AdamW(self.tower.parameters(), lr=3e-4)

    def step(self, index: Mips) -> None:
        """Train on halves of passages: each against its other half, the batch, and a near miss from the index."""
        rows = self.rng.choice(len(self.passages), BATCH, replace=False).tolist()
        halves = [_split_half(passage.text, bool(self.rng.integers(2))) for passage in self.passages.get(rows)]
        query_BD = self.tower([query for query, _ in halves])
        rankings = index.search(query_BD.detach().numpy(), 2)
        near = [next(int(r) for r in ranking.rows if r != row) for ranking, row in zip(rankings, rows, strict=True)]
        texts = [text for _, text in halves] + [passage.titled for passage in self.passages.get(near)]
        loss = cross_entropy(query_BD @ self.tower(texts).T / TEMPERATURE, torch.arange(BATCH))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())


def _split_half(text: str, swap: bool) -> tuple[str, str]:
    words = text.split()
    parts = " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])
    return parts[::-1] if swap else parts


def write_corpus(articles: Path, passages: int, work: Path) -> Path:
    """Index the first blocks of 100 words and return the index."""
    work.mkdir(parents=True)
    split, left = make_splitter("words", None, None), passages
    with (work / "passages.jsonl").open("w") as file:
        for document in read_documents([articles]):
            for number, (start, end) in enumerate(islice(split(document.text, document.body), left)):
                row = {"id": f"{document.id}-{number}", "title": document.title, "text": document.text[start:end]}
                file.write(json.dumps(row) + "\n")
                left -= 1
            if not left:
                break
    build_index([work / "passages.jsonl"], work / "corpus.index", IndexConfig(retriever=RetrieverKind.BM25))
    return work / "corpus.index"


def train(
    run: RefreshRun, refresher: IndexRefresher, config: RefreshBenchConfig, log: Callable[[str], object]
) -> dict[str, Any]:
    """Train until the wanted number of versions has followed the first; return what the swaps cost."""
    step, began, first, waited = 0, 0.0, 0, perf_counter()
    while len(refresher.log) <= config.swaps:
        if step % config.every == 0:
            refresher.refresh(run.tower, step)
        swaps = len(refresher.log)
        index = refresher.poll(step)
        if len(refresher.log) > swaps:
            log(json.dumps(refresher.log[-1].as_dict()) + "\n")
        if step == first:
            began = perf_counter()
        run.step(index)
        step += 1
    seconds = perf_counter() - began
    later = refresher.log[1:]
    slower = [swap.slowdown for swap in later if swap.slowdown is not None] or [0.0]
    return {
        "steps": step,
        "steps_per_s": round(step / seconds, 2),
        "seconds": round(seconds, 1),
        "swaps": len(later),
        "stood_still_s": round(sum(swap.stood for swap in later), 3),
        "stood_still_share": round(sum(swap.stood for swap in later) / seconds, 5),
        "stood_still_s_a_swap": round(statistics.median(swap.stood for swap in later), 3),
        "slowdown_of_steps": {"median": round(statistics.median(slower), 3), "most": round(max(slower), 3)},
        "embedding_s": round(statistics.median(swap.embedding for swap in later), 2),
        "building_s": round(statistics.median(swap.building for swap in later), 2),
        "staleness_at_swap": round(statistics.median(swap.staleness for swap in later)),
        "first_index_s": round(began - waited, 1),
        "loss": {
            "first 50 steps": round(statistics.mean(run.losses[:50]), 3),
            "last 50 steps": round(statistics.mean(run.losses[-50:]), 3),
        },
    }


def main(config: RefreshBenchConfig) -> None:
    """Train with a refreshed index and write the figures."""
    import ray

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    shutil.rmtree(config.work, ignore_errors=True)
    torch.manual_seed(0)
    corpus = write_corpus(config.articles, config.passages, config.work)
    run = RefreshRun(PassageStore.open(corpus / "passages"))
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(address="local", include_dashboard=False, log_to_driver=False, configure_logging=False)
    settings = RefreshSettings(max_staleness=2 * config.every)
    refresher = open_ray_refresher(corpus, config.work / "versions", settings, nice=config.nice)
    with (config.work / "metrics.jsonl").open("w") as file:
        figures = train(run, refresher, config, file.write)
    refresher.close()
    parameters = sum(parameter.numel() for parameter in run.tower.parameters())
    setup = {
        "model": f"BERT of {LAYERS} layers, width {WIDTH}, {parameters:,} parameters",
        "batch": BATCH,
        "refresh_every_steps": config.every,
        "actors": 1,
        "nice": config.nice,
        "kind": IndexKind.FLAT,
    }
    blocks = f"{len(run.passages):,} blocks of {config.articles.name}"
    report(config.out, {**setup, **figures}, corpus=blocks, questions="none")


if __name__ == "__main__":
    run_command(main, RefreshBenchConfig, __doc__)
