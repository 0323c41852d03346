"""What serving an index costs: latency and questions/s through shards, beside the same index opened directly.

    python -m eval.bench.serve --corpus wiki.jsonl --questions nq.jsonl --work DIR --out docs/measurements/serve.json

All on this machine: the shards share its cores, so what is seen is the cost of the layer, not the gain of more
machines. Each way of asking is measured in every round, one after the other; the median round counts.
"""

import argparse
import json
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from eval.bench.record import report
from eval.command import report_errors
from index.serve.app import ServeConfig, serve_collection
from ragqa.corpus.sources import read_documents
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.progress import Bars
from ragqa.questions import read_questions
from ragqa.retrieval.base import Retriever, missing_shards
from ragqa.retrieval.live import open_retriever
from ragqa.retrieval.registry import RetrieverKind
from ragqa.retrieval.remote import RemoteRetriever

K = 10
BATCH = 64


def corpus(source: Path, work: Path, shards: int, documents: int) -> tuple[Path, list[Path]]:
    """One index of the first ``documents`` of ``source``, and as many of its parts as there are to be shards."""
    work.mkdir(parents=True, exist_ok=True)
    read = list(islice(read_documents([source]), documents))
    files = []
    for n, part in enumerate(np.array_split(np.arange(len(read)), shards)):
        files.append(work / f"{documents}-{shards}-{n}.jsonl")
        rows = ({"id": read[m].id, "title": read[m].title, "text": read[m].text} for m in part)
        files[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    whole = index_of(files, work / f"{documents}-all.index")
    return whole, [index_of([file], file.with_suffix(".index")) for file in files]


def index_of(files: list[Path], out: Path) -> Path:
    """The index of these files, made unless it is there."""
    if not (out / "manifest.json").is_file():
        build_index(files, out, IndexConfig(), progress=Bars())
    return out


def measured(retriever: Retriever, questions: list[str]) -> dict[str, float]:
    """Milliseconds for a question asked alone, and questions/s in batches."""
    seconds = [_timed(retriever, [question]) for question in questions]
    took = sum(_timed(retriever, questions[at : at + BATCH]) for at in range(0, len(questions), BATCH))
    p50, p95 = (1000 * float(np.percentile(seconds, p)) for p in (50, 95))
    return {"p50_ms": p50, "p95_ms": p95, "questions_per_s_in_batches": len(questions) / took}


def _timed(retriever: Retriever, questions: list[str]) -> float:
    """Seconds of one search."""
    began = time.perf_counter()
    found = retriever.search(questions, K)
    took = time.perf_counter() - began
    if any(map(missing_shards, found)):
        raise RuntimeError("a shard was missing: what is measured is another collection")
    return took


def rounds(ways: dict[str, Retriever], questions: list[str], count: int) -> dict[str, dict[str, float]]:
    """The median of ``count`` rounds for every way of asking; one more, before them, warms up."""
    measured_ways: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for number in range(count + 1):
        for name, retriever in ways.items():
            figures = measured(retriever, questions if number else questions[:BATCH])
            if number:
                measured_ways[name].append(figures)
    return {
        name: {figure: round(float(np.median([one[figure] for one in each])), 2) for figure in each[0]}
        for name, each in measured_ways.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=300)
    parser.add_argument("--asked", type=int, default=256)
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--retrievers", nargs="+", default=list(RetrieverKind))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=8077)
    args = parser.parse_args()
    with report_errors():
        questions = [question.text for question in islice(read_questions(args.questions), args.asked)]
        figures: dict[str, Any] = {}
        for count in args.shards:
            whole, parts = corpus(args.corpus, args.work, count, args.documents)
            for name in args.retrievers:
                direct = open_retriever(whole, name)
                config = ServeConfig(shards=tuple(parts), port=args.port, retriever=name, timeout=30)
                with serve_collection(config) as url:
                    ways: dict[str, Retriever] = {"opened directly": direct, "served": RemoteRetriever(url)}
                    figures.setdefault(name, {})[f"{count} shards"] = rounds(ways, questions, args.rounds)
        passages = len(direct.passages)
        report(
            args.out,
            {"k": K, "batch": BATCH, "rounds": args.rounds, "retrievers": figures},
            corpus=f"{args.documents:,} documents of {args.corpus.name}, {passages:,} passages, flat",
            questions=f"{len(questions)} of {args.questions.name}",
        )


if __name__ == "__main__":
    main()
