r"""Measure speed and memory of ``index.embed``, compared with sentence-transformers.

    python -m eval.bench.embed --index wiki.index --passages 20000 165000 --models DIR \
        --peer-python VENV/bin/python --work runs/embed --out docs/measurements/embed.json

sentence-transformers embeds the texts of the smallest run on the same cores. Its weights are in the folder ``encoder/``
of ``--models``. For each number of passages, the job starts its own Ray, and the memory of its driver and actors is
sampled. ``private`` is the memory that a process has written. ``rss`` also counts the pages of mapped files, once for
each process that shares them.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from eval.bench.process import run_peer
from eval.bench.record import report
from eval.command import run_command
from ragqa import artefacts
from ragqa.corpus.store import PassageStore, PassageWriter
from ragqa.terminal import print_note

SAMPLING = 0.2
"""Number of seconds between two samples of the memory."""
REPORTED = ("passages", "seconds", "passages_per_s", "workers", "precision", "device")
"""Figures of the job's report that are recorded."""


@dataclass(frozen=True, kw_only=True)
class EmbedBenchConfig:
    """Settings of the measured runs of the job and of sentence-transformers."""

    index: Path
    """Index directory whose passages are embedded."""
    passages: tuple[int, ...]
    """Numbers of passages; each number is one run."""
    work: Path
    """Directory for indexes and vectors."""
    out: Path
    """JSON file to write the figures to."""
    models: Path | None = None
    """Directory with the folder encoder/ for sentence-transformers."""
    peer_python: str | None = None
    """Python program with sentence-transformers; without it or --models, only the job is measured."""
    encoder: str = "default"
    """Encoder of the job, made from the same model."""
    precision: str | None = None
    """Precision of the job: float32, bfloat16 or float16; default: the choice of the job."""
    shard_rows: int = 8192
    """Number of passages in a shard."""


def main(config: EmbedBenchConfig) -> None:
    """Measure ``index.embed`` and, if configured, sentence-transformers; write the figures.

    Raises:
        RuntimeError: the job failed, so there are no figures.
        BadInput: sentence-transformers failed.
        ArtefactError: as for ``cut_index``.
    """
    options = ["--encoder", config.encoder, "--shard-rows", str(config.shard_rows)]
    options += ["--precision", config.precision] if config.precision else []
    counts, runs = sorted(config.passages), []
    for count in counts:
        index = cut_index(config.index, count, config.work / f"{count}.index")
        runs.append(_run_job(index, config.work / f"{count}.vectors", options))
        print_note(str(runs[-1]))
    figures: dict[str, Any] = {"index_embed": runs}
    if config.models and config.peer_python:
        store, texts = PassageStore.open(config.work / f"{counts[0]}.index" / "passages"), config.work / "texts.json"
        texts.write_text(json.dumps([passage.titled_text for batch in store.iter_batches() for passage in batch]))
        rate = run_peer(config.peer_python, config.models, "--passages", str(texts))["passages_per_s"]
        figures["sentence_transformers"] = {"passages": counts[0], "passages_per_s": round(rate, 1)}
        figures["ratio_passages_per_s"] = round(runs[0]["passages_per_s"] / rate, 2)
    report(config.out, figures, corpus=f"{config.index.name}, first passages", questions="none")


def cut_index(index: Path, rows: int, out: Path) -> Path:
    """Copy an index with only its first passages, no terms and no vectors; return ``out``.

    Args:
        index: directory of the old index. If it has too few passages, they are repeated.
        rows: number of passages.
        out: directory to write; its old files are deleted.

    Raises:
        ArtefactError: ``index`` is not an index, or is damaged.
    """
    shutil.rmtree(out, ignore_errors=True)
    store = PassageStore.open(index / "passages")
    with PassageWriter(out / "passages") as writer:
        while writer.rows < rows:
            passages = (passage for batch in store.iter_batches() for passage in batch)
            for passage in islice(passages, rows - writer.rows):
                writer.add_passage(passage)
    artefacts.write_manifest(out, "index", {}, {"corpus": PassageStore.open(out / "passages").compute_fingerprint()})
    return out


def _run_job(index: Path, out: Path, options: list[str]) -> dict[str, Any]:
    shutil.rmtree(out, ignore_errors=True)
    # In a process of its own, because otherwise the memory of this benchmark would count as the job's, and a second Ray
    # in one process would begin with the memory of the first.
    command = [sys.executable, "-m", "index.embed", "--corpus", str(index), "--out", str(out), "--json", *options]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "RAY_ADDRESS": "local"})
    peaks: dict[str, float] = {}
    while job.poll() is None:
        peaks = {name: max(peaks.get(name, 0), value) for name, value in _sample_memory(job.pid).items()}
        time.sleep(SAMPLING)
    printed, _ = job.communicate()
    if job.returncode:
        raise RuntimeError(f"{command} ended with status {job.returncode}")
    done = json.loads(printed)
    return {name: done[name] for name in REPORTED} | peaks


def _sample_memory(driver: int) -> dict[str, int]:
    """Return the memory in MB of the driver and of its Ray actors."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], stdout=subprocess.PIPE, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    below, actors = {driver}, []
    for pid, parent, arguments in sorted((int(row[0]), int(row[1]), row[2]) for row in rows):
        if parent in below:  # a parent has a smaller number than its children, so it comes first
            below.add(pid)
            actors += [pid] if arguments.startswith("ray::MapWorker") else []
    private, rss = _private_and_rss(driver)
    actors_private, actors_rss = map(sum, zip((0, 0), *map(_private_and_rss, actors), strict=True))
    return {
        "driver_private_mb": private,
        "actors_private_mb": actors_private,
        "private_mb": private + actors_private,
        "driver_rss_mb": rss,
        "rss_mb": rss + actors_rss,
    }


def _private_and_rss(pid: int) -> tuple[int, int]:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:  # the process has just ended
        return 0, 0
    kb = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return kb["Private_Dirty"] // 1024, kb["Rss"] // 1024


if __name__ == "__main__":
    run_command(main, EmbedBenchConfig, __doc__)
