"""Every kind of index at several sizes: recall@20, queries a second, bytes a vector, time and memory to build.

    python -m eval.bench.kinds --vectors DIR --sizes 20000 165871 2000000 --questions nq/dev.jsonl \\
        --sample nq/train.jsonl --work DIR --out docs/measurements/kinds.json --plot docs/kinds.png

The first rows of what ``index.embed`` wrote; effort is tuned on the sample, everything else measured on 1,000 of the
questions. Each index is built and searched in a process of its own, and beside it ``faiss.IndexFlatIP`` in float32.
A run goes on where one before it ended; ``--measure-again`` keeps the indexes and searches them anew.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from eval.bench.process import memory
from eval.bench.record import report
from ragqa import artefacts
from ragqa.indexing.build import encode_sample_questions
from ragqa.indexing.embed import open_shards
from ragqa.progress import SILENT, Bars
from ragqa.questions import read_questions
from ragqa.retrieval.vectors import mips
from ragqa.retrieval.vectors.arrays import SelectedVectors
from ragqa.retrieval.vectors.kinds import FlatEngine, IndexKind
from ragqa.retrieval.vectors.store import open_file
from ragqa.runtime.encoder import load_encoder

K, QUESTIONS, BATCH = 20, 1000, 1000
DEARER = 0.98
"""What it costs to find more than is asked for by default."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--vectors", type=Path, required=True)
    add("--sizes", type=int, nargs="+", required=True)
    add("--kinds", nargs="+", default=list(IndexKind))
    add("--questions", type=Path, required=True, help="measured on these")
    add("--sample", type=Path, required=True, help="tuned on these")
    add("--work", type=Path, required=True)
    add("--out", type=Path)
    add("--plot", type=Path)
    add("--measure-again", action="store_true")
    add("--corpus", default="")
    add("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        size, task = int(args.child[0]), args.child[1]
        print(json.dumps(TASKS[task](args.work / str(size), args)))
        return
    prepare(args)
    rows = []
    for size in args.sizes:
        for kind in (*args.kinds, "IndexFlatIP"):
            rows.append({"size": size, "kind": kind, **measured(args, size, kind)})
            print(json.dumps(rows[-1]), file=sys.stderr)
    if args.out:
        report(args.out, {"k": K, "rows": rows}, corpus=args.corpus, questions=f"{QUESTIONS} of {args.questions.name}")
    if args.plot:
        plot(rows, args.plot)


def prepare(args: argparse.Namespace) -> None:
    """Vectors of questions and of the first rows, and what exact search finds among them."""
    args.work.mkdir(parents=True, exist_ok=True)
    manifest = artefacts.peek_manifest(args.vectors)
    if not (args.work / "sample.npy").is_file():
        encoder = load_encoder(manifest.config["name"])
        texts = [question.text for question in read_questions(args.questions)][:QUESTIONS]
        np.save(args.work / "questions.npy", encoder.encode_questions(texts))
        np.save(args.work / "sample.npy", encode_sample_questions(args.sample, encoder))
    everything = open_shards(args.vectors, manifest.config["rows"])
    for size in args.sizes:
        folder = args.work / str(size)
        if not (folder / "truth.npy").is_file():
            (folder / IndexKind.FLAT).mkdir(parents=True, exist_ok=True)
            mips.build(SelectedVectors(everything, np.arange(size)), IndexKind.FLAT, folder / IndexKind.FLAT)
            found = mips.open_index(folder / IndexKind.FLAT, IndexKind.FLAT).search(
                np.load(args.work / "questions.npy"), K
            )
            np.save(folder / "truth.npy", np.stack([ranking.rows for ranking in found]))


def measured(args: argparse.Namespace, size: int, kind: str) -> dict[str, Any]:
    """Figures of one kind at one size, from this run or an earlier one."""
    folder = args.work / str(size)
    row: dict[str, Any] = {}
    for task in ("build", "search"):
        kept = folder / f"{kind}.{task}.json"
        if not kept.is_file() or (task == "search" and args.measure_again):
            command = [sys.executable, "-m", "eval.bench.kinds", *sys.argv[1:], "--child", str(size), f"{task}:{kind}"]
            kept.write_text(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
        row |= json.loads(kept.read_text())
    return row


def build(folder: Path, args: argparse.Namespace, kind: str) -> dict[str, Any]:
    """Build in this process; seconds and peak memory, and what tuning found for two wanted recalls."""
    if kind in (IndexKind.FLAT, "IndexFlatIP"):
        return {}
    vectors, sample = open_file(folder / IndexKind.FLAT / mips.VECTORS_FILE), np.load(args.work / "sample.npy")
    (folder / kind).mkdir()
    began = time.perf_counter()
    tuned = mips.build(vectors, kind, folder / kind, queries=sample, progress=Bars())
    seconds = time.perf_counter() - began
    peak = memory()
    began = time.perf_counter()
    dearer = mips.tune_index(vectors, kind, folder / kind, recall=DEARER, queries=sample, progress=SILENT)
    assert tuned is not None
    (folder / f"{kind}.effort.json").write_text(json.dumps([tuned.as_dict(), dearer.as_dict()]))
    return {"build_s": round(seconds, 1), "build_peak_rss_mb": peak["peak_rss_mb"], "build_own_mb": peak["own_mb"]}


def search(folder: Path, args: argparse.Namespace, kind: str) -> dict[str, Any]:
    """Search with both efforts; queries a second one at a time and together."""
    queries = np.load(args.work / "questions.npy")
    if kind == "IndexFlatIP":
        return {"searches": [faiss_flat(folder, queries)]}
    size = sum(file.stat().st_size for file in (folder / kind).iterdir())
    truth = np.load(folder / "truth.npy")
    found = []
    efforts = [None] if kind == IndexKind.FLAT else json.loads((folder / f"{kind}.effort.json").read_text())
    for tuned in efforts:
        index = mips.open_index(
            folder / kind,
            kind,
            effort=mips.Effort.from_manifest(tuned),
            engine=FlatEngine.FAISS if kind == IndexKind.FLAT else FlatEngine.AUTO,
        )
        rankings = index.search(queries, K)
        hits = [len(np.intersect1d(a.rows, b)) / K for a, b in zip(rankings, truth, strict=True)]
        found.append({**(tuned or {}), "found": round(float(np.mean(hits)), 4), **speeds(index.search, queries)})
    return {"bytes_per_vector": round(size / len(index), 1), "searches": found}


def faiss_flat(folder: Path, queries: np.ndarray) -> dict[str, Any]:
    """FAISS's own exact search in float32, everything in memory."""
    import faiss

    vectors = np.load(folder / IndexKind.FLAT / mips.VECTORS_FILE).astype(np.float32)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return {"found": 1.0, **speeds(index.search, queries)}


def speeds(find: Callable[[np.ndarray, int], Any], queries: np.ndarray) -> dict[str, float]:
    """Queries a second, the better of two: one at a time for some seconds, and in a batch."""
    single, batch = 0.0, 0.0
    for _ in range(2):
        began, done = time.perf_counter(), 0
        while done < len(queries) and time.perf_counter() - began < 5:
            find(queries[done : done + 1], K)
            done += 1
        single = max(single, done / (time.perf_counter() - began))
        began = time.perf_counter()
        find(queries[:BATCH], K)
        batch = max(batch, BATCH / (time.perf_counter() - began))
    return {"single_qps": round(single, 1), "batch_qps": round(batch, 1)}


TASKS: dict[str, Callable[[Path, argparse.Namespace], dict[str, Any]]] = {
    f"{task.__name__}:{kind}": partial(task, kind=kind)
    for task in (build, search)
    for kind in (*IndexKind, "IndexFlatIP")
}


def plot(rows: list[dict[str, Any]], file: Path) -> None:
    """Recall against queries a second, one picture a size."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    sizes = sorted({row["size"] for row in rows})
    figure, axes = pyplot.subplots(1, len(sizes), figsize=(5 * len(sizes), 4.5), sharey=True, squeeze=False)
    for axis, size in zip(axes[0], sizes, strict=True):
        here = [row for row in rows if row["size"] == size]
        for colour, row in enumerate(here):
            for field, marker in (("single_qps", "o"), ("batch_qps", "s")):
                speed = [found[field] for found in row["searches"]]
                recall = [found["found"] for found in row["searches"]]
                label = row["kind"] if marker == "o" else None
                axis.plot(speed, recall, marker=marker, color=f"C{colour}", label=label, lw=0.8)
        axis.axhline(0.95, color="grey", lw=0.6, ls=":")
        axis.set(xscale="log", xlabel="queries a second", title=f"{size:,} vectors")
    axes[0][0].set_ylabel("recall@20 against exact search")
    axes[0][0].legend(title="○ one at a time, □ 1,000 together", fontsize=8)
    figure.tight_layout()
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    main()
