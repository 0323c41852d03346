r"""Measure all kinds of vector indexes: recall@20, speed, size, and cost of the build.

    python -m eval.bench.kinds --vectors wiki.vectors --sizes 20000 165871 2000000 --questions nq/dev.jsonl \
        --sample nq/train.jsonl --work runs/kinds --out docs/measurements/kinds.json

Each size takes the first vectors that ``index.embed`` wrote. The build tunes the search effort on the questions of
``--sample``; recall and speed are measured on 1,000 questions of ``--questions``. Each approximate index is built in
one new process and searched in another. The peer is ``faiss.IndexFlatIP`` in float32. A repeated command measures only
the missing kinds.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eval.bench.process import measure_memory, run_in_process
from eval.bench.record import report
from eval.command import run_command
from ragqa import artefacts
from ragqa.indexing.build import encode_sample_questions
from ragqa.indexing.embed import open_shards
from ragqa.progress import SILENT, Bars
from ragqa.question_files import read_questions
from ragqa.retrieval.vectors import mips
from ragqa.retrieval.vectors.arrays import SelectedVectors
from ragqa.retrieval.vectors.index_kinds import Effort, FlatEngine, IndexKind
from ragqa.retrieval.vectors.store import VECTORS_FILE, open_file
from ragqa.runtime.encoder import load_encoder
from ragqa.terminal import print_json

K, QUESTIONS, BATCH = 20, 1000, 1000
"""Number of results, number of questions, and number of questions in a batch."""
HIGHER_RECALL = 0.98
"""Second target of the tuning, which shows the cost of more recall."""
PEER = "IndexFlatIP"
"""Index of FAISS to compare with."""


@dataclass(frozen=True, kw_only=True)
class KindsConfig:
    """Settings of the measurement: vectors, questions and sizes."""

    vectors: Path
    """Directory of vectors that index.embed wrote."""
    sizes: tuple[int, ...]
    """Numbers of vectors to measure with."""
    questions: Path
    """File of the questions for the figures."""
    sample: Path
    """File of the questions for tuning the search effort."""
    work: Path
    """Directory for the indexes."""
    out: Path
    """JSON file to write the figures to."""
    corpus: str = ""
    """Name of the corpus in the report."""


def main(config: KindsConfig) -> None:
    """Measure every kind of vector index at every size; write the figures.

    Raises:
        ArtefactError: ``config.vectors`` holds no vectors, or their encoder is missing.
        BadInput: a file of questions cannot be read.
        MissingExtra: FAISS is not installed.
    """
    prepare(config)
    rows = []
    for size in config.sizes:
        for kind in (*IndexKind, PEER):
            rows.append({"size": size, "kind": kind, **_measure_kind(config, size, kind)})
            print_json(rows[-1], file=sys.stderr)
    questions = f"{QUESTIONS} of {config.questions.name}"
    report(config.out, {"k": K, "rows": rows}, corpus=config.corpus, questions=questions)


def prepare(config: KindsConfig) -> None:
    """Write missing files: vectors of questions and of each size, and results of exact search.

    Raises:
        ArtefactError, BadInput: as for ``main``.
    """
    config.work.mkdir(parents=True, exist_ok=True)
    manifest = artefacts.peek_manifest(config.vectors)
    if not (config.work / "sample.npy").is_file():
        encoder = load_encoder(manifest.config["name"])
        texts = [question.text for question in read_questions(config.questions)][:QUESTIONS]
        np.save(config.work / "questions.npy", encoder.encode_questions(texts))
        np.save(config.work / "sample.npy", encode_sample_questions(config.sample, encoder))
    everything = open_shards(config.vectors, manifest.config["rows"])
    for size in config.sizes:
        folder, flat = config.work / str(size), config.work / str(size) / IndexKind.FLAT
        if not (folder / "truth.npy").is_file():
            flat.mkdir(parents=True, exist_ok=True)
            mips.build(SelectedVectors(everything, np.arange(size)), IndexKind.FLAT, flat)
            rankings = mips.open_index(flat, IndexKind.FLAT).search(np.load(config.work / "questions.npy"), K)
            np.save(folder / "truth.npy", np.stack([ranking.rows for ranking in rankings]))


def _measure_kind(config: KindsConfig, size: int, kind: str) -> dict[str, Any]:
    folder, row = config.work / str(size), dict[str, Any]()
    for name, task in (("build", build), ("search", search)):
        file = folder / f"{kind}.{name}.json"
        if not file.is_file():
            file.write_text(json.dumps(run_in_process(task, folder, kind)))
        row |= json.loads(file.read_text())
    return row


def build(folder: Path, kind: str) -> dict[str, Any]:
    """Build an index and tune it for two targets of recall.

    Both search efforts are written into ``KIND.effort.json``.

    Args:
        folder: directory with the vectors and indexes of one size.
        kind: kind of index.

    Returns:
        ``build_s`` (seconds), ``build_peak_rss_mb`` and ``build_own_mb`` of the build with the first target; empty for
        exact search, which needs no build.
    """
    if kind in (IndexKind.FLAT, PEER):
        return {}
    vectors, sample = open_file(folder / IndexKind.FLAT / VECTORS_FILE), np.load(folder.parent / "sample.npy")
    (folder / kind).mkdir()
    began = time.perf_counter()
    tuned = mips.build(vectors, kind, folder / kind, queries=sample, progress=Bars())
    seconds, peak = time.perf_counter() - began, measure_memory()
    higher = mips.tune_index(vectors, kind, folder / kind, recall=HIGHER_RECALL, queries=sample, progress=SILENT)
    assert tuned is not None
    (folder / f"{kind}.effort.json").write_text(json.dumps([tuned.as_dict(), higher.as_dict()]))
    return {"build_s": round(seconds, 1), "build_peak_rss_mb": peak["peak_rss_mb"], "build_own_mb": peak["own_mb"]}


def search(folder: Path, kind: str) -> dict[str, Any]:
    """Return the size of an index, and its recall@20 and speed at each tuned search effort.

    Args:
        folder: directory with the vectors and indexes of one size.
        kind: kind of index.

    Returns:
        ``searches``: recall (``found``) and queries per second at each search effort. ``bytes_per_vector``: size of the
        files; the peer has none.
    """
    queries = np.load(folder.parent / "questions.npy")
    if kind == PEER:
        return {"searches": [search_peer(folder, queries)]}
    size = sum(file.stat().st_size for file in (folder / kind).iterdir())
    truth, searches = np.load(folder / "truth.npy"), []
    is_flat = kind == IndexKind.FLAT
    for tuned in [None] if is_flat else json.loads((folder / f"{kind}.effort.json").read_text()):
        effort, engine = Effort.from_manifest(tuned), FlatEngine.FAISS if is_flat else FlatEngine.AUTO
        index = mips.open_index(folder / kind, kind, effort=effort, engine=engine)
        pairs = zip(index.search(queries, K), truth, strict=True)
        recall = float(np.mean([len(np.intersect1d(ranking.rows, best)) / K for ranking, best in pairs]))
        searches.append({**(tuned or {}), "found": round(recall, 4), **measure_speed(index.search, queries)})
    return {"bytes_per_vector": round(size / len(index), 1), "searches": searches}


def search_peer(folder: Path, queries: np.ndarray) -> dict[str, Any]:
    """Return the recall (1) and speed of FAISS's exact search in float32.

    Args:
        folder: directory with the vectors and indexes of one size.
        queries: vectors of the questions.
    """
    import faiss

    vectors = np.load(folder / IndexKind.FLAT / VECTORS_FILE).astype(np.float32)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return {"found": 1.0, **measure_speed(index.search, queries)}


def measure_speed(find: Callable[[np.ndarray, int], Any], queries: np.ndarray) -> dict[str, float]:
    """Return the queries per second of a search, one at a time and in a batch.

    Each figure is the better of two runs; a run of single queries takes at most about 5 s.

    Args:
        find: function from vectors and k to the results of a search.
        queries: vectors of the questions.
    """
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


if __name__ == "__main__":
    run_command(main, KindsConfig, __doc__)
