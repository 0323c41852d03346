"""What an index that follows the weights costs a training run that shares its cores with the refresher.

    python -m eval.bench.refresh --articles AA.tar.xz --work DIR --out docs/measurements/refresh.json

A small encoder learns to find a passage by one half of it, among the others of the batch and what the index proposes,
while ``index.refresh.open_ray_refresher`` makes the index anew from its weights every so many steps. Measured from the
first index to the last swap.
"""

import argparse
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
from index.refresh import IndexRefresher, RefreshSettings, open_ray_refresher
from ragqa.artefacts.paths import weights_dir
from ragqa.corpus.blocks import make_splitter
from ragqa.corpus.sources import read_documents
from ragqa.corpus.store import PassageStore
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.retrieval.registry import RetrieverKind
from ragqa.retrieval.vectors.kinds import IndexKind
from ragqa.retrieval.vectors.mips import Mips
from ragqa.runtime.tokens import TextTokenizer

BATCH, TOKENS, WIDTH, LAYERS = 32, 96, 96, 2
TEMPERATURE = 0.05
TOKENIZER = weights_dir() / "encoder"


class Tower(nn.Module):
    """A narrow BERT, mean pooling, unit length: what ``load_encoder`` makes of a plain directory."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        sizes = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": 4}
        self.model = BertModel(BertConfig(**sizes, intermediate_size=4 * WIDTH))
        self._tokenizer = TextTokenizer(TOKENIZER)

    def forward(self, texts: list[str]) -> Tensor:
        inputs = [torch.tensor(self._tokenizer.encode_text(text, TOKENS).ids) for text in texts]
        ids_BL = nn.utils.rnn.pad_sequence(inputs, batch_first=True)
        mask_BL1 = nn.utils.rnn.pad_sequence([torch.ones_like(i) for i in inputs], batch_first=True).unsqueeze(-1)
        hidden_BLD = self.model(input_ids=ids_BL, attention_mask=mask_BL1.squeeze(-1)).last_hidden_state
        return normalize((hidden_BLD * mask_BL1).sum(1) / mask_BL1.sum(1), dim=-1)

    def save(self, folder: Path) -> None:
        """For the refresher."""
        self.model.save_pretrained(folder)
        shutil.copy(TOKENIZER / "tokenizer.json", folder)


@dataclass
class Run:
    """A training run: its model, its passages, its steps."""

    passages: PassageStore
    tower: Tower = field(default_factory=Tower)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    losses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.AdamW(self.tower.parameters(), lr=3e-4)

    def step(self, index: Mips) -> None:
        """One half of each passage against the other, the rest of the batch, and a near miss from the index."""
        rows = self.rng.choice(len(self.passages), BATCH, replace=False).tolist()
        halves = [_halves(passage.text, bool(self.rng.integers(2))) for passage in self.passages.get(rows)]
        query_BD = self.tower([query for query, _ in halves])
        found = index.search(query_BD.detach().numpy(), 2)
        near = [next(int(r) for r in ranking.rows if r != row) for ranking, row in zip(found, rows, strict=True)]
        texts = [text for _, text in halves] + [passage.titled for passage in self.passages.get(near)]
        loss = cross_entropy(query_BD @ self.tower(texts).T / TEMPERATURE, torch.arange(BATCH))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())


def _halves(text: str, turned: bool) -> tuple[str, str]:
    words = text.split()
    parts = " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])
    return parts[::-1] if turned else parts


def write_corpus(articles: Path, passages: int, work: Path) -> Path:
    """An index of so many blocks of 100 words."""
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


def train(run: Run, refresher: IndexRefresher, every: int, swaps: int, log: Callable[[str], object]) -> dict[str, Any]:
    """Steps until so many versions have followed the first, and what they cost."""
    step, began, first, waited = 0, 0.0, 0, perf_counter()
    while len(refresher.log) <= swaps:
        if step % every == 0:
            refresher.refresh(run.tower, step)
        known = len(refresher.log)
        index = refresher.poll(step)
        if len(refresher.log) > known:
            log(json.dumps(refresher.log[-1].as_dict()) + "\n")
        if step == first:
            began = perf_counter()
        run.step(index)
        step += 1
    seconds = perf_counter() - began
    later = refresher.log[1:]
    slower = [swap.slowdown for swap in later if swap.slowdown is not None]
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


def _start_ray() -> None:
    """One of its own, with nobody else's work on it."""
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(address="local", include_dashboard=False, log_to_driver=False, configure_logging=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--articles", type=Path, required=True, help="prose: whatever `ragqa index` reads")
    parser.add_argument("--passages", type=int, default=5000)
    parser.add_argument("--work", type=Path, required=True, help="directory to make")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--every", type=int, default=300, help="steps from refresh to refresh")
    parser.add_argument("--swaps", type=int, default=6, help="versions after the first")
    parser.add_argument("--nice", type=int, default=10, help="of the actors")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    shutil.rmtree(args.work, ignore_errors=True)
    torch.manual_seed(0)
    corpus = write_corpus(args.articles, args.passages, args.work)
    run = Run(PassageStore.open(corpus / "passages"))
    _start_ray()
    settings = RefreshSettings(max_staleness=2 * args.every)
    refresher = open_ray_refresher(corpus, args.work / "versions", settings, nice=args.nice)
    with (args.work / "metrics.jsonl").open("w") as file:
        figures = train(run, refresher, args.every, args.swaps, file.write)
    refresher.close()
    model = f"BERT of {LAYERS} layers, width {WIDTH}, {sum(p.numel() for p in run.tower.parameters()):,} parameters"
    setup = {
        "model": model,
        "batch": BATCH,
        "refresh_every_steps": args.every,
        "actors": 1,
        "nice": args.nice,
        "kind": IndexKind.FLAT,
    }
    report(
        args.out, {**setup, **figures}, corpus=f"{len(run.passages):,} blocks of {args.articles.name}", questions="none"
    )


if __name__ == "__main__":
    main()
