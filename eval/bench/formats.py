r"""Measure the speed of reading each format beside markitdown and txtai's Textractor.

    python -m eval.bench.formats --folders tests/data/own_documents/exam/files --peer-python VENV/bin/python \
        --out docs/measurements/formats.json

Each program reads the files of a format several times, and its fastest time counts, without imports and the start of a
process. ``markitdown_failed`` and ``txtai_failed`` are the numbers of files that a peer cannot read.
"""

import json
import subprocess
from collections import defaultdict, deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from eval.bench.process import measure_memory, time_call
from eval.bench.record import report
from eval.command import run_command
from ragqa.corpus.sources import read_documents
from ragqa.corpus.walk import walk_files
from ragqa.errors import BadInput
from ragqa.terminal import print_note

# The peers run in an environment of their own, which need not have ragqa. txtai runs with docling, because its other
# backend downloads a Java program; docling reads PDF only with models of the Hugging Face hub.
_PEER = """
import json, logging, sys, time, warnings
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
if sys.argv[2] == "markitdown":
    from markitdown import MarkItDown
    convert = MarkItDown(enable_plugins=False).convert_local
else:
    from txtai.pipeline import Textractor
    convert = Textractor(backend="docling")
figures = {}
for kind, paths in json.load(sys.stdin)["files"].items():
    best, failed = None, 0
    for turn in range(int(sys.argv[1]) + 1):
        began, failed = time.perf_counter(), 0
        for path in paths:
            try:
                convert(path)
            except Exception:
                failed += 1
        seconds = time.perf_counter() - began
        if turn:
            best = seconds if best is None else min(best, seconds)
    figures[kind] = {"seconds": best, "failed": failed}
print(json.dumps(figures))
"""


@dataclass(frozen=True, kw_only=True)
class FormatBenchConfig:
    """Settings of the measured files."""

    folders: tuple[Path, ...]
    """Folders and files to read."""
    out: Path
    """JSON file to write the figures to."""
    peer_python: str | None = None
    """Python program with the peers; without it, only ragqa is measured."""
    peers: tuple[Literal["markitdown", "txtai"], ...] = ("markitdown", "txtai")
    """Peers to measure."""
    repeats: int = 5
    """Number of times that the files of a format are read, after a warm-up; the fastest time counts."""


def main(config: FormatBenchConfig) -> None:
    """Measure how fast the files of each format are read; write the figures.

    Raises:
        BadInput: a peer failed, or ragqa cannot read a file.
    """
    files = defaultdict[str, list[Path]](list)
    for path in walk_files(config.folders, on_error=lambda error: None):
        files[path.suffix.lower()].append(path)
    python, peers = config.peer_python, config.peers if config.peer_python else ()
    figures = {peer: _run_peer(str(python), peer, files, config.repeats) for peer in peers}
    rows = {}
    for kind in sorted(files):
        size = sum(path.stat().st_size for path in files[kind])
        row: dict[str, Any] = {"files": len(files[kind]), "mb": round(size / 1e6, 3)}
        # A deque of length 0 reads all documents and stores none.
        best = min(time_call(deque, read_documents(files[kind]), 0)[0] for _ in range(config.repeats + 1))
        row |= _rate(best, len(files[kind]), size)
        for peer, by_kind in figures.items():
            seconds, row[f"{peer}_failed"] = by_kind[kind]["seconds"], by_kind[kind]["failed"]
            row |= {f"{peer}_{name}": value for name, value in _rate(seconds, len(files[kind]), size).items()}
        print_note(f"{kind}: {row}")
        rows[kind] = row
    corpus = ", ".join(map(str, config.folders))
    report(config.out, {"formats": rows, **measure_memory()}, corpus=corpus, questions="none")


def _rate(seconds: float, files: int, size: int) -> dict[str, float]:
    return {"files_per_s": round(files / seconds, 1), "mb_per_s": round(size / 1e6 / seconds, 2)}


def _run_peer(python: str, peer: str, files: dict[str, list[Path]], repeats: int) -> dict[str, Any]:
    request = json.dumps({"files": {kind: [str(path) for path in paths] for kind, paths in files.items()}})
    run = subprocess.run(
        [python, "-c", _PEER, str(repeats), peer], input=request, capture_output=True, text=True, check=False
    )
    if run.returncode:
        raise BadInput(f"{python}: {peer} failed: {(run.stderr.strip().splitlines() or ['no message'])[-1]}")
    figures: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return figures


if __name__ == "__main__":
    run_command(main, FormatBenchConfig, __doc__)
