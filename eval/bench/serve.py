"""Measure latency and speed of a served index, compared with an index opened directly.

    python -m eval.bench.serve --corpus wiki.jsonl --questions nq/dev.jsonl --work runs/serve --out serve.json

All shards run on this machine. So the figures show the cost of serving, not the gain of more machines. Each round
measures the index opened directly and then the served index. The figures are the medians of the rounds.
"""

import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from eval.bench.process import time_call
from eval.bench.record import report, summarize_latency
from eval.command import run_command
from ragqa.corpus.sources import read_documents
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.progress import Bars
from ragqa.question_files import read_questions
from ragqa.retrieval.base import Retriever, get_missing_shards
from ragqa.retrieval.live import open_retriever
from ragqa.retrieval.registry import RetrieverKind
from ragqa.retrieval.remote import RemoteRetriever

K, BATCH = 10, 64
"""Number of passages to search for, and number of questions in a batch."""


@dataclass(frozen=True, kw_only=True)
class ServeBenchConfig:
    """Settings of the measurement: corpus, questions and shards."""

    corpus: Path
    """File or folder of documents, in a form that ``ragqa index`` reads."""
    questions: Path
    """File of questions."""
    work: Path
    """Directory for the indexes."""
    out: Path
    """JSON file to write the figures to."""
    documents: int = 300
    """Number of documents to index."""
    sample: int = 256
    """Number of questions of a round."""
    shards: tuple[int, ...] = (1, 2, 4)
    """Numbers of shards to measure."""
    retrievers: tuple[str, ...] = tuple(RetrieverKind)
    """Kinds of retrievers to measure."""
    rounds: int = 3
    """Number of measured rounds, after a warm-up round."""
    port: int = 8077
    """TCP port of the server."""


def main(config: ServeBenchConfig) -> None:
    """Measure each retriever with each number of shards; write the figures.

    Raises:
        RagqaError: the documents or questions cannot be read, or the index cannot be made or served.
        RuntimeError: a shard did not answer, so the times are not valid.
    """
    from index.serve.deploy import ServeConfig, serve_collection

    questions = [question.text for question in islice(read_questions(config.questions), config.sample)]
    figures: dict[str, Any] = {}
    for count in config.shards:
        whole, parts = make_indexes(config, count)
        for name in config.retrievers:
            direct = open_retriever(whole, name)
            served = ServeConfig(shards=tuple(parts), port=config.port, retriever=name, timeout=30)
            with serve_collection(served) as url:
                ways: dict[str, Retriever] = {"opened directly": direct, "served": RemoteRetriever(url)}
                figures.setdefault(name, {})[f"{count} shards"] = _compare_ways(ways, questions, config.rounds)
    report(
        config.out,
        {"k": K, "batch": BATCH, "rounds": config.rounds, "retrievers": figures},
        corpus=f"{config.documents:,} documents of {config.corpus.name}, {len(direct.passages):,} passages, flat",
        questions=f"{len(questions)} of {config.questions.name}",
    )


def make_indexes(config: ServeBenchConfig, shards: int) -> tuple[Path, list[Path]]:
    """Index ``config.documents`` documents, whole and in shards; return the directories.

    Args:
        config: settings of the measurement.
        shards: number of shards.

    Raises:
        RagqaError: as for ``read_documents`` and ``build_index``.
    """
    config.work.mkdir(parents=True, exist_ok=True)
    documents, files = list(islice(read_documents([config.corpus]), config.documents)), []
    for number, part in enumerate(np.array_split(np.arange(len(documents)), shards)):
        files.append(config.work / f"{config.documents}-{shards}-{number}.jsonl")
        chosen = (documents[place] for place in part)
        rows = ({"id": document.id, "title": document.title, "text": document.text} for document in chosen)
        files[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    whole = make_index(files, config.work / f"{config.documents}-all.index")
    return whole, [make_index([file], file.with_suffix(".index")) for file in files]


def make_index(files: list[Path], out: Path) -> Path:
    """Index files of documents, unless the index ``out`` exists; return ``out``.

    Raises:
        RagqaError: as for ``build_index``.
    """
    if not (out / "manifest.json").is_file():
        build_index(files, out, IndexConfig(), progress=Bars())
    return out


def _compare_ways(ways: dict[str, Retriever], questions: list[str], rounds: int) -> dict[str, dict[str, float]]:
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, retriever in ways.items():
            figures = measure_search(retriever, questions if number else questions[:BATCH])
            measured[name] += [figures] if number else []
    return {
        name: {figure: round(float(np.median([row[figure] for row in rows])), 2) for figure in rows[0]}
        for name, rows in measured.items()
    }


def measure_search(retriever: Retriever, questions: list[str]) -> dict[str, float]:
    """Return the latency of single questions and the speed of batches.

    Returns:
        Milliseconds of a single question (median and 95th percentile), and questions per second in batches.

    Raises:
        RuntimeError: as for ``time_search``.
    """
    seconds = [time_search(retriever, [question]) for question in questions]
    batches = sum(time_search(retriever, questions[n : n + BATCH]) for n in range(0, len(questions), BATCH))
    return {**summarize_latency(seconds), "questions_per_s_in_batches": len(questions) / batches}


def time_search(retriever: Retriever, questions: list[str]) -> float:
    """Return the seconds of one search of a retriever for all questions.

    Raises:
        RuntimeError: a shard did not answer, so the time is not valid.
    """
    seconds, hits = time_call(retriever.search, questions, K)
    if any(map(get_missing_shards, hits)):
        raise RuntimeError("a shard did not answer: its passages are missing from the hits")
    return seconds


if __name__ == "__main__":
    run_command(main, ServeBenchConfig, __doc__)
