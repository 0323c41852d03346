"""Passages read a second, beside transformers' question-answering pipeline with the same weights on the same texts.

    python -m eval.bench.reading --reader EXPORT --model DIR --tokenizer DIR --peer-python VENV/bin/python \\
        --index wiki.index --questions nq/dev.jsonl --work DIR --out docs/measurements/reading.json

``--reader`` is what is shipped (ONNX, 8 bits; by default ragqa's own), ``--model`` the torch directory that it was
exported from, ``--tokenizer`` a folder with its BERT tokenizer in transformers' files. Each side reads the hits of the
same questions in a process of its own, kept to the same cores, in turn; ragqa reads their titles, too. The peer reads
a question's passages at once and one by one (the pipeline's own default), and the faster way is what counts.
transformers 5 has no such pipeline any more: the peer's environment has to have an earlier one. Where there is none,
ours is measured alone, and a line says so.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from eval.bench.latency import as_peers_reader
from eval.bench.process import timed
from eval.bench.record import report
from eval.command import check_counts, report_errors
from pipelines.common.questions import read_answerable
from ragqa import artefacts
from ragqa.artefacts.paths import weights_dir
from ragqa.errors import BadInput, Mismatch
from ragqa.reading.base import DEFAULT_PASSAGES
from ragqa.reading.span import ExtractiveReader
from ragqa.retrieval.live import open_retriever
from ragqa.types import Hit, Passage

RUNS = 3
PEER = "peer"
_HAS_PIPELINE = "import transformers; transformers.QuestionAnsweringPipeline"


def prepare(index: Path, questions: Path, count: int, k: int, work: Path) -> tuple[Path, int]:
    """The questions with the titles and texts of their hits, in a file; how many passages these are."""
    retriever = open_retriever(index)
    asked = list(islice((question.text for question in read_answerable(questions)), count))
    hits = [[(hit.passage.title, hit.passage.text) for hit in found] for found in retriever.search(asked, k)]
    rows = [
        {"question": question, "titles": [title for title, _ in found], "contexts": [text for _, text in found]}
        for question, found in zip(asked, hits, strict=True)
        if found
    ]
    if not rows:
        raise BadInput(f"{index}: nothing is found for the questions of {questions}")
    work.mkdir(parents=True, exist_ok=True)
    (work / "texts.json").write_text(json.dumps(rows))
    return work / "texts.json", sum(map(len, hits))


def read(reader: Path | None, texts: Path) -> dict[str, Any]:
    """Read the texts in this process, the passages of a question together."""
    extractive = ExtractiveReader.load(reader)
    rows = json.loads(texts.read_text())
    hits = [[_hit(n, *each) for n, each in enumerate(zip(row["titles"], row["contexts"], strict=True))] for row in rows]
    questions = [row["question"] for row in rows]
    extractive.read(questions[:1], hits[:1])
    began = time.perf_counter()
    answers = [extractive.read([question], [found])[0].text for question, found in zip(questions, hits, strict=True)]
    seconds = time.perf_counter() - began
    return {"passages_per_s": sum(map(len, hits)) / seconds, "answers": answers}


def _hit(number: int, title: str, text: str) -> Hit:
    return Hit(Passage(number, str(number), title, text, "", 0, len(text)), 0.0)


def check_same(reader: Path, model: Path) -> None:
    """Raise Mismatch where the torch directory is not what ``reader`` was exported from."""
    weights = artefacts.read_manifest(reader, "reader").parents["weights"]
    if artefacts.checksum(model / "model.safetensors")[: len(weights)] != weights:
        raise Mismatch(f"{reader} was not exported from {model}: the two sides would not read with the same weights")


def why_no_peer(args: argparse.Namespace) -> str | None:
    """Why the peer cannot be measured; None where it can."""
    python = args.peer_python or sys.executable
    if not args.model or not args.tokenizer:
        return "no peer: --model and --tokenizer are what it would read with"
    if subprocess.run([python, "-c", _HAS_PIPELINE], capture_output=True, check=False).returncode:
        return f"no peer: {python} has no question-answering pipeline: name one with transformers < 5 as --peer-python"
    return None


def side(command: list[str]) -> dict[str, Any]:
    """A process that reads all texts: its passages a second, peak memory and answers."""
    run = timed(command)
    return {**json.loads(run["out"].splitlines()[-1]), "peak_rss_mb": run["rss_mb"]}


def summed(runs: list[dict[str, Any]]) -> dict[str, float]:
    """The median speed and the largest memory of some runs."""
    return {
        "passages_per_s": round(float(np.median([run["passages_per_s"] for run in runs])), 1),
        "slowest": round(min(run["passages_per_s"] for run in runs), 1),
        "fastest": round(max(run["passages_per_s"] for run in runs), 1),
        "peak_rss_mb": round(max(run["peak_rss_mb"] for run in runs)),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """See above; the command line, or ``arguments``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--reader", type=Path, help="exported reader; default: ragqa's own")
    add("--model", type=Path, help="torch directory of the same reader")
    add("--tokenizer", type=Path, help="folder of tokenizer.json, tokenizer_config.json, vocab.txt, …")
    add("--peer-python", help="of an environment with transformers < 5; default: this one")
    add("--index", type=Path)
    add("--questions", type=Path)
    add("--count", type=int, default=100, help="questions")
    add("-k", type=int, default=DEFAULT_PASSAGES, help="passages of each")
    add("--cores", type=int, default=2)
    add("--runs", type=int, default=RUNS)
    add("--work", type=Path)
    add("--out", type=Path)
    add("--child", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.child:
        print(json.dumps(read(args.reader, args.child)))
        return
    with report_errors():
        go(args)


def go(args: argparse.Namespace) -> None:
    """Measure both sides in turn, and write what came of it."""
    if missing := [name for name in ("index", "questions", "work", "out") if getattr(args, name) is None]:
        raise BadInput(f"{', '.join(f'--{name}' for name in missing)}: not given")
    check_counts(args, "count", "k", "cores", "runs")
    texts, count = prepare(args.index, args.questions, args.count, args.k, args.work)
    ours = [sys.executable, "-m", "eval.bench.reading", "--child", str(texts)]
    ours += ["--reader", str(args.reader)] if args.reader else []
    commands = {"ragqa": ours}
    if reason := why_no_peer(args):
        print(reason, file=sys.stderr)
    else:
        check_same(args.reader or weights_dir() / "reader", args.model)
        as_peers_reader(args.model, args.tokenizer, args.work / "reader")
        script = str(Path(__file__).with_name("peer.py"))
        theirs = [args.peer_python or sys.executable, script, str(args.work), "--read", str(texts)]
        commands |= {PEER: theirs, f"{PEER}, one by one": [*theirs, "--batch", "1"]}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in commands}
    before = os.sched_getaffinity(0)
    cores = sorted(before)[: args.cores]
    os.sched_setaffinity(0, cores)  # the processes that are begun inherit it
    try:
        for _ in range(args.runs):
            for name, command in commands.items():
                runs[name].append(side(command))
    finally:
        os.sched_setaffinity(0, before)
    found: dict[str, Any] = {name: summed(each) for name, each in runs.items()}
    if reason:
        found[PEER] = reason
    else:
        ours, theirs = (runs[name][0]["answers"] for name in ("ragqa", PEER))
        speeds = {name: each["passages_per_s"] for name, each in found.items()}
        found["ratio_passages_per_s"] = round(speeds.pop("ragqa") / max(speeds.values()), 2)
        found[f"{PEER}'s packages"] = runs[PEER][0].get("packages")
        found["same_answers"] = round(float(np.mean([a == b for a, b in zip(ours, theirs, strict=True)])), 3)
    about = {"passages": count, "cores": len(cores), "runs": args.runs}
    report(args.out, {**about, **found}, corpus=args.index.name, questions=f"{args.count} of {args.questions.name}")


if __name__ == "__main__":
    main()
