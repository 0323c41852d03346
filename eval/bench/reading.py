r"""Measure passages read a second, next to transformers' question-answering pipeline with the same weights and texts.

    python -m eval.bench.reading --index wiki.index --questions nq/dev.jsonl --work runs/reading --out reading.json \
        --model DIR --tokenizer DIR --peer-python VENV/bin/python

``--reader`` is what ships (ONNX, 8 bits), ``--model`` the torch directory it was exported from, ``--tokenizer`` a
folder with its BERT tokenizer in transformers' files. Both sides read the hits of the same questions on the same cores,
in turn, each in a process of its own; ragqa reads their titles as well. The peer reads a question's passages together
and one by one (the pipeline's default); the faster way counts. transformers 5 has no such pipeline, so the peer needs
an environment with an earlier one. Without it ragqa is measured alone.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from eval.bench.latency import convert_reader
from eval.bench.process import measure_memory, run_in_process, run_timed
from eval.bench.record import report
from eval.command import run_command
from pipelines.common.questions import read_answerable
from ragqa import artefacts
from ragqa.artefacts.paths import weights_dir
from ragqa.errors import BadInput, Mismatch
from ragqa.reading.base import DEFAULT_PASSAGES
from ragqa.reading.span import ExtractiveReader
from ragqa.retrieval.live import open_retriever
from ragqa.types import Hit, Passage

PEER = "peer"
_HAS_PIPELINE = "import transformers; transformers.QuestionAnsweringPipeline"


@dataclass(frozen=True, kw_only=True)
class ReadingConfig:
    """Readers, texts and runs."""

    index: Path
    """Index whose hits are read."""
    questions: Path
    """File of questions."""
    work: Path
    """Directory of texts and of the peer's model."""
    out: Path
    """JSON file of the figures."""
    reader: Path | None = None
    """Exported reader; default: ragqa's own."""
    model: Path | None = None
    """Torch directory of the same reader, for the peer."""
    tokenizer: Path | None = None
    """Folder of tokenizer.json, tokenizer_config.json, vocab.txt and so on, for the peer."""
    peer_python: str = sys.executable
    """Python with transformers < 5."""
    count: int = 100
    """Number of questions."""
    k: int = DEFAULT_PASSAGES
    """Passages of a question."""
    cores: int = 2
    """Cores of each side."""
    runs: int = 3
    """Runs of each side; the median counts."""

    def __post_init__(self) -> None:
        """Raise BadInput for values out of range."""
        if wrong := [f"--{name}" for name in ("count", "k", "cores", "runs") if getattr(self, name) < 1]:
            raise BadInput(f"{', '.join(wrong)}: at least 1 is needed")


def main(config: ReadingConfig) -> None:
    """Measure both sides in turn."""
    texts, count = prepare(config)
    sides = {"ragqa": partial(run_in_process, read, config.reader, texts)}
    if reason := explain_missing_peer(config):
        print(reason, file=sys.stderr)
    else:
        assert config.model is not None and config.tokenizer is not None
        check_same_weights(config.reader or weights_dir() / "reader", config.model)
        convert_reader(config.model, config.tokenizer, config.work / "reader")
        script = str(Path(__file__).with_name("peer.py"))
        peer = [config.peer_python, script, str(config.work), "--read", str(texts)]
        sides |= {PEER: partial(run_peer, peer), f"{PEER}, one by one": partial(run_peer, [*peer, "--batch", "1"])}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    before = os.sched_getaffinity(0)
    cores = sorted(before)[: config.cores]
    os.sched_setaffinity(0, cores)  # processes inherit it
    try:
        for _ in range(config.runs):
            for name, run in sides.items():
                runs[name].append(run())
    finally:
        os.sched_setaffinity(0, before)
    figures = {"passages": count, "cores": len(cores), "runs": config.runs, **compare_sides(runs)}
    figures |= {PEER: reason} if reason else {}
    report(config.out, figures, corpus=config.index.name, questions=f"{config.count} of {config.questions.name}")


def prepare(config: ReadingConfig) -> tuple[Path, int]:
    """Write the questions with titles and texts of their hits; return the file and the number of passages."""
    questions = list(islice((question.text for question in read_answerable(config.questions)), config.count))
    found = zip(questions, open_retriever(config.index).search(questions, config.k), strict=True)
    rows = [
        {
            "question": question,
            "titles": [hit.passage.title for hit in hits],
            "contexts": [hit.passage.text for hit in hits],
        }
        for question, hits in found
        if hits
    ]
    if not rows:
        raise BadInput(f"{config.index}: nothing is found for the questions of {config.questions}")
    config.work.mkdir(parents=True, exist_ok=True)
    (config.work / "texts.json").write_text(json.dumps(rows))
    return config.work / "texts.json", sum(len(row["contexts"]) for row in rows)


def read(reader: Path | None, texts: Path) -> dict[str, Any]:
    """Read the texts in this process, the passages of a question together; return speed, answers and peak memory."""
    extractive, rows = ExtractiveReader.load(reader), json.loads(texts.read_text())
    hits = [list(map(_make_hit, row["titles"], row["contexts"])) for row in rows]
    questions = [row["question"] for row in rows]
    extractive.read(questions[:1], hits[:1])
    began = time.perf_counter()
    answers = [extractive.read([question], [own])[0].text for question, own in zip(questions, hits, strict=True)]
    rate = sum(map(len, hits)) / (time.perf_counter() - began)
    return {"passages_per_s": rate, "answers": answers, "peak_rss_mb": measure_memory()["peak_rss_mb"]}


def _make_hit(title: str, text: str) -> Hit:
    return Hit(Passage(0, "0", title, text, "", 0, len(text)), 0.0)


def run_peer(command: list[str]) -> dict[str, Any]:
    """Run the peer; return its speed, answers and peak memory."""
    run = run_timed(command)
    return {**json.loads(run["out"].splitlines()[-1]), "peak_rss_mb": run["rss_mb"]}


def explain_missing_peer(config: ReadingConfig) -> str | None:
    """Return why the peer cannot be measured, or None if it can."""
    if not config.model or not config.tokenizer:
        return "no peer: it needs --model and --tokenizer"
    if subprocess.run([config.peer_python, "-c", _HAS_PIPELINE], capture_output=True, check=False).returncode:
        return (
            f"no peer: {config.peer_python} has no question-answering pipeline: "
            "name one with transformers < 5 as --peer-python"
        )
    return None


def check_same_weights(reader: Path, model: Path) -> None:
    """Raise Mismatch if ``reader`` was not exported from the torch directory ``model``."""
    weights = artefacts.read_manifest(reader, "reader").parents["weights"]
    if artefacts.checksum(model / "model.safetensors")[: len(weights)] != weights:
        raise Mismatch(f"{reader} was not exported from {model}: the two sides would read with different weights")


def compare_sides(runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return median speed and largest memory of each side, and how the sides compare."""
    figures: dict[str, Any] = {name: summarise(each) for name, each in runs.items()}
    if PEER in runs:
        speeds = {name: each["passages_per_s"] for name, each in figures.items()}
        ours, theirs = (runs[name][0]["answers"] for name in ("ragqa", PEER))
        figures["ratio_passages_per_s"] = round(speeds.pop("ragqa") / max(speeds.values()), 2)
        figures[f"{PEER}'s packages"] = runs[PEER][0].get("packages")
        figures["same_answers"] = round(float(np.mean([a == b for a, b in zip(ours, theirs, strict=True)])), 3)
    return figures


def summarise(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Return the median, slowest and fastest speed and the largest memory of some runs."""
    speeds = [run["passages_per_s"] for run in runs]
    return {
        "passages_per_s": round(float(np.median(speeds)), 1),
        "slowest": round(min(speeds), 1),
        "fastest": round(max(speeds), 1),
        "peak_rss_mb": round(max(run["peak_rss_mb"] for run in runs)),
    }


if __name__ == "__main__":
    run_command(main, ReadingConfig, __doc__)
