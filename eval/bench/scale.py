"""As many passages and vectors as DPR's Wikipedia has, made of real ones, and what it takes to search them.

    python -m eval.bench.scale passages --index wiki.index --out psgs.tsv
    ragqa index psgs.tsv --retriever bm25 --out bm25.index
    python -m eval.bench.scale vectors --index aa.index --corpus bm25.index --out big.vectors
    python -m index.build --corpus bm25.index --vectors big.vectors --out big.index --questions nq/train.jsonl
    python -m eval.bench.scale measure --index big.index --vectors big.vectors --questions nq/dev.jsonl --out FILE.json

Passages are repeated under new ids and titles. The first vectors are real; each of the others is a mixture of two of
them with noise. So BM25's times are real and its hits are not, and recall is told of the real vectors apart.
"""

import argparse
import csv
import hashlib
import io
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from eval.bench.process import memory
from eval.bench.record import report
from ragqa import artefacts
from ragqa.corpus.store import PassageStore
from ragqa.indexing.embed import EmbeddingShard, ShardRecord, open_shards, split_into_shards
from ragqa.questions import read_questions
from ragqa.retrieval.base import Ranking
from ragqa.retrieval.dense import DenseRanker
from ragqa.retrieval.hybrid import Hybrid
from ragqa.retrieval.live import open_retriever
from ragqa.retrieval.registry import VECTORS_FOLDER, RetrieverKind
from ragqa.retrieval.vectors.exact import ExactIndex
from ragqa.retrieval.vectors.faiss_search import Effort, FaissIndex
from ragqa.retrieval.vectors.store import open_file

ROWS = 21_015_324
"""Passages of DPR's psgs_w100.tsv."""
SHARD = 65_536
NOISE = 0.4
"""Length of the noise beside that of the mixture."""
K = 20
HARDER = 1.5
"""Times the lists that tuning chose: what a surer recall costs."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs = parser.add_subparsers(required=True)
    for job, *options in (
        (passages, "--index", "--out"),
        (vectors, "--index", "--corpus", "--out"),
        (measure, "--index", "--vectors", "--questions", "--out"),
    ):
        sub = jobs.add_parser(job.__name__, help=job.__doc__)
        for option in options:
            sub.add_argument(option, type=Path, required=True)
        sub.add_argument("--rows", type=int, default=ROWS)
        sub.add_argument("--asked", type=int, default=200)
        sub.set_defaults(job=job)
    args = parser.parse_args()
    args.job(args)


def passages(args: argparse.Namespace) -> None:
    """A TSV of DPR's form with as many lines, of the passages of an index."""
    store, made, copy = PassageStore.open(args.index / "passages"), 0, 0
    with args.out.open("w", newline="") as file:
        out = csv.writer(file, delimiter="\t", lineterminator="\n")
        out.writerow(["id", "text", "title"])
        while made < args.rows:
            for batch in store.iter_batches():
                titled = [(p.text, f"{p.title} ({copy})" if copy else p.title) for p in batch[: args.rows - made]]
                out.writerows((made + n, *pair) for n, pair in enumerate(titled, 1))
                made += len(titled)
            copy += 1


def vectors(args: argparse.Namespace) -> None:
    """Vectors of a corpus as ``index.embed`` writes them: the real ones of an index, then mixtures of two."""
    source, embedded = artefacts.peek_manifest(args.corpus), artefacts.peek_manifest(args.index)
    made_by = embedded.parents["encoder"]
    real = open_file(args.index / VECTORS_FOLDER / "vectors.npy").astype(np.float32)
    args.out.mkdir(parents=True)
    known = {}
    for shard in split_into_shards(args.rows, SHARD):
        buffer = io.BytesIO()
        np.save(buffer, _mixed(real, shard).astype("<f2"))
        data = buffer.getvalue()
        made = ShardRecord(shard.first, shard.last, made_by, len(data), hashlib.sha256(data).hexdigest(), "made up")
        (args.out / shard.vectors).write_bytes(data)
        (args.out / shard.record).write_text(json.dumps(asdict(made)))
        known[shard.vectors] = {"size": made.bytes, "sha256": made.sha256}
    parents = {"corpus": source.parents["corpus"], "encoder": made_by}
    config = {**parents, "rows": args.rows, "shard_rows": SHARD, "device": "cpu", "precision": "int8"}
    artefacts.write_manifest(args.out, "vectors", {**config, "name": embedded.config["encoder"]}, parents, known=known)


def _mixed(real: np.ndarray, shard: EmbeddingShard) -> np.ndarray:
    rng, count = np.random.default_rng(shard.first), shard.last - shard.first
    one, other = real[rng.integers(len(real), size=count)], real[rng.integers(len(real), size=count)]
    weight = rng.uniform(0.5, 1.0, (count, 1)).astype(np.float32)
    found = _unit(weight * one + (1 - weight) * other)
    found = _unit(found + NOISE * _unit(rng.standard_normal(found.shape, dtype=np.float32)))
    here = max(0, min(shard.last, len(real)) - shard.first)
    found[:here] = real[shard.first : shard.first + here]
    return found


def _unit(rows: np.ndarray) -> np.ndarray:
    unit: np.ndarray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def measure(args: argparse.Namespace) -> None:
    """Time and memory of dense search, BM25 and both, and recall against exact search."""
    texts = [question.text for question in read_questions(args.questions)][: args.asked]
    figures: dict[str, Any] = {"before": memory()}
    retriever = open_retriever(args.index, RetrieverKind.HYBRID)
    ranker, search = retriever.ranker, artefacts.peek_manifest(args.index).config["search"]
    assert isinstance(ranker, Hybrid) and isinstance(ranker.dense, DenseRanker)
    assert isinstance(ranker.dense.mips, FaissIndex)
    harder = Effort(round(HARDER * search["reach"]), search["factor"])
    searches = {
        RetrieverKind.DENSE: ranker.dense,
        "dense, harder": DenseRanker(ranker.dense.encoder, ranker.dense.mips.with_effort(harder)),
        RetrieverKind.BM25: ranker.bm25,
        RetrieverKind.HYBRID: ranker,
    }
    figures |= {"passages": len(retriever.passages), "width": ranker.dense.mips.width, "asked": len(texts)}
    figures |= {"search": search, "harder_reach": harder.reach, "files_mb": _sizes(args.index)}
    found = {}
    for name, searcher in searches.items():
        times, found[name] = timed(searcher.rank, texts)
        figures[name] = {**times, "memory_after": memory()}
        print(json.dumps({name: figures[name]}), file=sys.stderr)
    vectors = open_shards(args.vectors, artefacts.peek_manifest(args.vectors).config["rows"])
    truth = ExactIndex(vectors, keep=False).search(ranker.dense.encode(texts), K)
    for name in (RetrieverKind.DENSE, "dense, harder"):
        figures[name] |= recall([ranking.rows for ranking in found[name]], [ranking.rows for ranking in truth])
    made_of = "real passages repeated, vectors of mixtures and noise but for the first 165,871; see the bench"
    report(args.out, figures, corpus=made_of, questions=f"the first {len(texts)} of {args.questions.name}")


def recall(found: list[np.ndarray], truth: list[np.ndarray], real: int = 165_871) -> dict[str, float]:
    """Share of the 20 best that were found, of all and of the real ones among them."""
    pairs = [(row in set(rows.tolist()), row < real) for rows, best in zip(found, truth, strict=True) for row in best]
    hits, kinds = np.array(pairs).T
    return {
        "recall_at_20": round(float(hits.mean()), 4),
        "of_the_real": round(float(hits[kinds].mean()), 4),
        "share_of_real": round(float(kinds.mean()), 4),
    }


def timed(rank: Callable[[list[str], int], list[Ranking]], texts: list[str]) -> tuple[dict[str, float], list[Ranking]]:
    """Milliseconds a question, one at a time: the first of all, and percentiles of the others; what was found."""
    seconds, found = [], []
    for text in texts:
        began = time.perf_counter()
        found += rank([text], K)
        seconds.append(time.perf_counter() - began)
    first, *rest = (1000 * np.array(seconds)).round(1).tolist()
    p50, p95, worst = np.percentile(rest, (50, 95, 100)).round(1).tolist()
    return {"first_ms": first, "p50_ms": p50, "p95_ms": p95, "worst_ms": worst}, found


def _sizes(index: Path) -> dict[str, int]:
    return {
        part.name: round(sum(file.stat().st_size for file in part.rglob("*") if file.is_file()) / 1e6)
        for part in index.iterdir()
        if part.is_dir()
    }


if __name__ == "__main__":
    main()
