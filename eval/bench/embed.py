"""Speed and memory of ``index.embed``, beside ``SentenceTransformer.encode`` of the same model, texts and cores.

    python -m eval.bench.embed --index wiki.index --passages 20000 165000 --models DIR \\
        --peer-python VENV/bin/python --work DIR --out docs/measurements/embed.json

``--models`` holds ``encoder/``, the weights for sentence-transformers; without a peer's Python only memory and speed of
the job are measured. The job runs on a Ray of its own, once for
each number of passages; the peer embeds the texts of the smallest. Memory is sampled while the job runs:
``private`` is what a process alone has written, ``rss`` also holds pages of mapped files, shared ones counted in each.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

from eval.bench.process import timed
from eval.bench.record import report
from ragqa import artefacts
from ragqa.corpus.store import PassageStore, PassageWriter
from ragqa.runtime.tokens import TextTokenizer

EVERY = 0.2
"""Seconds between two looks at the memory."""


def cut(index: Path, rows: int, out: Path) -> Path:
    """An index of the first ``rows`` passages, those of ``index`` over and over where it has fewer."""
    shutil.rmtree(out, ignore_errors=True)
    store = PassageStore.open(index / "passages")
    with PassageWriter(out / "passages") as writer:
        while writer.rows < rows:
            passages = (passage for batch in store.iter_batches() for passage in batch)
            for passage in islice(passages, rows - writer.rows):
                writer.add_passage(passage)
    artefacts.write_manifest(out, "index", {}, {"corpus": PassageStore.open(out / "passages").fingerprint()})
    return out


def memory(driver: int) -> dict[str, float]:
    """MB that the driver, and the actors below it, have just now."""
    parents = {int(p.name): _parent(p) for p in Path("/proc").iterdir() if p.name.isdigit()}
    below = [pid for pid in parents if driver in _ancestors(pid, parents)]
    actors = [pid for pid in below if _command(pid).startswith("ray::MapWorker")]
    own, theirs = _private_and_rss(driver), [_private_and_rss(pid) for pid in actors]
    return {
        "driver_private_mb": own[0],
        "actors_private_mb": sum(private for private, _ in theirs),
        "private_mb": own[0] + sum(private for private, _ in theirs),
        "driver_rss_mb": own[1],
        "rss_mb": own[1] + sum(rss for _, rss in theirs),
    }


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has just ended
        return 0


def _ancestors(pid: int, parents: dict[int, int]) -> list[int]:
    found: list[int] = []
    while (pid := parents.get(pid, 0)) and pid not in found:
        found.append(pid)
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def _private_and_rss(pid: int) -> tuple[float, float]:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return 0.0, 0.0
    kb = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return kb["Private_Dirty"] / 1024, kb["Rss"] / 1024


def run_job(index: Path, out: Path, options: list[str], at_most: float) -> dict[str, Any]:
    """Outcome of the job and the peaks of its memory; a run that takes longer than ``at_most`` seconds is ended."""
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "index.embed", "--corpus", str(index), "--out", str(out), "--json", *options]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "RAY_ADDRESS": "local"})
    peaks: dict[str, float] = {}
    end = time.monotonic() + at_most
    while job.poll() is None:
        if time.monotonic() > end:
            job.send_signal(signal.SIGINT)
            job.wait()
            made = len(list(out.glob("0*.json")))
            return {"ended_after_s": at_most, "shards": made} | {name: round(value) for name, value in peaks.items()}
        for name, value in memory(job.pid).items():
            peaks[name] = max(peaks.get(name, 0.0), value)
        time.sleep(EVERY)
    printed, _ = job.communicate()
    if job.returncode:
        raise RuntimeError(f"{command} ended with status {job.returncode}")
    done = json.loads(printed)
    kept = ("passages", "seconds", "passages_per_s", "workers", "precision", "device")
    return {name: done[name] for name in kept} | {name: round(value) for name, value in peaks.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--index", type=Path, required=True)
    add("--passages", type=int, nargs="+", required=True, help="numbers of passages, a run each")
    add("--models", type=Path)
    add("--peer-python")
    add("--encoder", default="default", help="of the job: the same model, however it is run")
    add("--precision", help="of the job")
    add("--shard-rows", type=int, default=8192)
    add("--at-most", type=float, default=float("inf"), help="seconds of a run: longer ones tell of memory only")
    add("--work", type=Path, required=True)
    add("--out", type=Path, required=True)
    args = parser.parse_args()
    options = ["--encoder", args.encoder, "--shard-rows", str(args.shard_rows)]
    options += ["--precision", args.precision] if args.precision else []

    counts, runs = sorted(args.passages), []
    for count in counts:
        index = cut(args.index, count, args.work / f"{count}.index")
        runs.append(run_job(index, args.work / f"{count}.vectors", options, args.at_most))
        print(runs[-1], file=sys.stderr)
    figures: dict[str, Any] = {"index_embed": runs}
    if args.models and args.peer_python:
        figures |= beside(args, counts[0], runs[0]["passages_per_s"])
    report(args.out, figures, corpus=f"{args.index.name}, first passages", questions="none")


def beside(args: argparse.Namespace, count: int, ours: float) -> dict[str, Any]:
    """The same texts by sentence-transformers."""
    store = PassageStore.open(args.work / f"{count}.index" / "passages")
    texts = args.work / "texts.json"
    texts.write_text(json.dumps([passage.titled for batch in store.iter_batches() for passage in batch]))
    tokenizer, began = TextTokenizer(args.models / "encoder"), time.perf_counter()
    tokens = [len(tokenizer.encode_text(text, 256).ids) for text in json.loads(texts.read_text())]
    tokenising = time.perf_counter() - began
    peer = [args.peer_python, str(Path(__file__).with_name("peer.py")), str(args.models), "x", "--passages", str(texts)]
    peer_rate = json.loads(timed(peer)["out"])["passages_per_s"]
    return {
        "sentence_transformers": {"passages": count, "passages_per_s": round(peer_rate, 1)},
        "tokens_per_passage": round(sum(tokens) / len(tokens), 1),
        "tokenised_per_s": round(len(tokens) / tokenising),
        "ratio_passages_per_s": round(ours / peer_rate, 2),
    }


if __name__ == "__main__":
    main()
