r"""Measure search in an index as large as DPR's Wikipedia.

    python -m eval.bench.scale --job passages --index wiki.index --out psgs.tsv
    ragqa index psgs.tsv --retriever bm25 --out bm25.index
    python -m eval.bench.scale --job vectors --index aa.index --corpus bm25.index --out big.vectors
    python -m index.build --corpus bm25.index --vectors big.vectors --out big.index --questions nq/train.jsonl
    python -m eval.bench.scale --job measure --index big.index --vectors big.vectors --questions nq/dev.jsonl \
        --out docs/measurements/scale.json

The passages are real ones, repeated under new ids and titles. The first vectors are real. Each other vector is a
mixture of two real vectors with noise. So times are meaningful, but the results of BM25 and of hybrid search are not.
The recall of dense search is reported for all vectors and for the real ones.
"""

import csv
import hashlib
import io
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from eval.bench.process import measure_memory, time_call
from eval.bench.record import report, summarize_latency
from eval.command import run_command
from ragqa import artefacts
from ragqa.corpus.store import PassageStore
from ragqa.indexing.embed import EmbeddingShard, ShardRecord, open_shards, split_into_shards
from ragqa.question_files import read_questions
from ragqa.retrieval.base import Ranking
from ragqa.retrieval.dense import DenseRanker
from ragqa.retrieval.hybrid import Hybrid
from ragqa.retrieval.live import open_retriever
from ragqa.retrieval.registry import VECTORS_FOLDER, RetrieverKind
from ragqa.retrieval.vectors.exact import ExactIndex
from ragqa.retrieval.vectors.faiss_search import FaissIndex
from ragqa.retrieval.vectors.index_kinds import Effort
from ragqa.retrieval.vectors.store import open_file
from ragqa.terminal import print_json

ROWS = 21_015_324
"""Number of passages in DPR's psgs_w100.tsv."""
REAL = 165_871
"""Number of real vectors: size of the index that the published figures used."""
SHARD = 65_536
"""Number of vectors in a file."""
NOISE = 0.4
"""Length of the noise, relative to the length of the mixture."""
K = 20
"""Number of passages to search for."""
HARDER = 1.5
"""Factor on the tuned number of lists to search, to show the cost of more recall."""


@dataclass(frozen=True, kw_only=True)
class ScaleConfig:
    """Settings of one of three jobs."""

    job: Literal["passages", "vectors", "measure"]
    """Job: write passages, write vectors, or measure an index of both."""
    index: Path
    """Index directory: source of the passages, source of the real vectors, or the index to measure."""
    out: Path
    """Output of the job: a TSV file, a directory of vectors, or a JSON file of figures."""
    corpus: Path = Path("bm25.index")
    """Index directory of the written passages (for the job vectors)."""
    vectors: Path = Path("big.vectors")
    """Directory of the written vectors (for the job measure)."""
    questions: Path = Path("nq/dev.jsonl")
    """File of questions (for the job measure)."""
    rows: int = ROWS
    """Number of passages or vectors to write."""
    sample: int = 200
    """Number of questions to measure with."""


def main(config: ScaleConfig) -> None:
    """Run the job that the settings name; errors are as for the functions of the jobs."""
    {"passages": write_passages, "vectors": write_vectors, "measure": measure}[config.job](config)


def write_passages(config: ScaleConfig) -> None:
    """Write passages into a TSV file of DPR's form; copies have numbers in their titles.

    Raises:
        ArtefactError: ``config.index`` is not an index.
    """
    store, count, copy = PassageStore.open(config.index / "passages"), 0, 0
    with config.out.open("w", newline="") as file:
        out = csv.writer(file, delimiter="\t", lineterminator="\n")
        out.writerow(["id", "text", "title"])
        while count < config.rows:
            for batch in store.iter_batches():
                passages = [(p.text, f"{p.title} ({copy})" if copy else p.title) for p in batch[: config.rows - count]]
                out.writerows((count + n, *pair) for n, pair in enumerate(passages, 1))
                count += len(passages)
            copy += 1


def write_vectors(config: ScaleConfig) -> None:
    """Write real vectors of an index, then mixtures with noise, in the form of ``index.embed``.

    Raises:
        ArtefactError, FileExistsError: an index is missing, or ``config.out`` exists.
    """
    source, embedded = artefacts.peek_manifest(config.corpus), artefacts.peek_manifest(config.index)
    made_by = embedded.parents["encoder"]
    real = open_file(config.index / VECTORS_FOLDER / "vectors.npy").astype(np.float32)
    config.out.mkdir(parents=True)
    known = {}
    for shard in split_into_shards(config.rows, SHARD):
        buffer = io.BytesIO()
        np.save(buffer, _mix(real, shard).astype("<f2"))
        data = buffer.getvalue()
        record = ShardRecord(shard.first, shard.last, made_by, len(data), hashlib.sha256(data).hexdigest(), "made up")
        (config.out / shard.vectors_file).write_bytes(data)
        (config.out / shard.record_file).write_text(json.dumps(asdict(record)))
        known[shard.vectors_file] = {"size": record.bytes, "sha256": record.sha256}
    parents = {"corpus": source.parents["corpus"], "encoder": made_by}
    shape = {"rows": config.rows, "shard_rows": SHARD, "device": "cpu", "precision": "int8"}
    described = {**parents, **shape, "name": embedded.config["encoder"]}
    artefacts.write_manifest(config.out, "vectors", described, parents, known=known)


def _mix(real: np.ndarray, shard: EmbeddingShard) -> np.ndarray:
    rng, count = np.random.default_rng(shard.first), shard.last - shard.first
    one, other = real[rng.integers(len(real), size=count)], real[rng.integers(len(real), size=count)]
    weight = rng.uniform(0.5, 1.0, (count, 1)).astype(np.float32)
    mixed = _normalize(weight * one + (1 - weight) * other)
    mixed = _normalize(mixed + NOISE * _normalize(rng.standard_normal(mixed.shape, dtype=np.float32)))
    real_count = max(0, min(shard.last, len(real)) - shard.first)
    mixed[:real_count] = real[shard.first : shard.first + real_count]
    return mixed


def _normalize(rows: np.ndarray) -> np.ndarray:
    unit: np.ndarray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def measure(config: ScaleConfig) -> None:
    """Measure time and memory of dense, BM25 and hybrid search, and recall of dense search.

    Raises:
        ArtefactError: the index or the vectors are missing.
        BadInput: the file of questions cannot be read.
    """
    texts = [question.text for question in read_questions(config.questions)][: config.sample]
    figures: dict[str, Any] = {"before": measure_memory()}
    retriever = open_retriever(config.index, RetrieverKind.HYBRID)
    ranker, search = retriever.ranker, artefacts.peek_manifest(config.index).config["search"]
    assert isinstance(ranker, Hybrid) and isinstance(ranker.dense, DenseRanker)
    assert isinstance(ranker.dense.mips, FaissIndex)
    more = Effort(round(HARDER * search["reach"]), search["factor"])
    searches = {
        RetrieverKind.DENSE: ranker.dense,
        "dense, harder": DenseRanker(ranker.dense.encoder, ranker.dense.mips.with_effort(more)),
        RetrieverKind.BM25: ranker.bm25,
        RetrieverKind.HYBRID: ranker,
    }
    figures |= {"passages": len(retriever.passages), "width": ranker.dense.mips.width, "asked": len(texts)}
    figures |= {"search": search, "harder_reach": more.reach, "files_mb": _sizes_mb(config.index)}
    rankings_by_name = {}
    for name, searcher in searches.items():
        times, rankings_by_name[name] = _time_questions(searcher.rank, texts)
        figures[name] = {**times, "memory_after": measure_memory()}
        print_json({name: figures[name]}, file=sys.stderr)
    vectors = open_shards(config.vectors, artefacts.peek_manifest(config.vectors).config["rows"])
    truth = ExactIndex(vectors, cache=False).search(ranker.dense.encoder.encode_questions(texts), K)
    for name in (RetrieverKind.DENSE, "dense, harder"):
        figures[name] |= _measure_recall(
            [ranking.rows for ranking in rankings_by_name[name]], [ranking.rows for ranking in truth]
        )
    made_of = f"real passages repeated, vectors of mixtures and noise but for the first {REAL:,}; see the bench"
    report(config.out, figures, corpus=made_of, questions=f"the first {len(texts)} of {config.questions.name}")


def _measure_recall(retrieved: list[np.ndarray], truth: list[np.ndarray]) -> dict[str, float]:
    """Return the recall at 20, over all vectors and over the real ones with their share."""
    pairs = [
        (row in set(rows.tolist()), row < REAL) for rows, best in zip(retrieved, truth, strict=True) for row in best
    ]
    hits, kinds = np.array(pairs).T
    return {
        "recall_at_20": round(float(hits.mean()), 4),
        "of_the_real": round(float(hits[kinds].mean()), 4),
        "share_of_real": round(float(kinds.mean()), 4),
    }


def _time_questions(
    rank: Callable[[list[str], int], list[Ranking]], texts: list[str]
) -> tuple[dict[str, float], list[Ranking]]:
    times, rankings = zip(*(time_call(rank, [text], K) for text in texts), strict=True)
    first, *rest = times
    latency = {"first_ms": round(1000 * first, 1), **summarize_latency(rest), "worst_ms": round(1000 * max(rest), 1)}
    return latency, [ranking for (ranking,) in rankings]


def _sizes_mb(index: Path) -> dict[str, int]:
    return {
        part.name: round(sum(file.stat().st_size for file in part.rglob("*") if file.is_file()) / 1e6)
        for part in index.iterdir()
        if part.is_dir()
    }


if __name__ == "__main__":
    run_command(main, ScaleConfig, __doc__)
