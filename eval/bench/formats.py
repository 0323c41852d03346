r"""Measure the speed of reading files of each format, compared with markitdown.

    python -m eval.bench.formats --folders tests/data/own_documents/exam/files --peer-python VENV/bin/python \
        --out docs/measurements/formats.json

Each program reads the files of a format several times, and its fastest time counts. So the figures are without imports
and without the start of a process. ``peer_failed`` counts the files that markitdown cannot read.
"""

import json
import subprocess
from collections import defaultdict, deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.bench.process import measure_memory, time_call
from eval.bench.record import report
from eval.command import run_command
from ragqa.corpus.sources import read_documents
from ragqa.corpus.walk import walk_files
from ragqa.errors import BadInput
from ragqa.terminal import print_note

# markitdown runs in an environment of its own, which need not have ragqa.
_PEER = """
import json, logging, sys, time, warnings
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
from markitdown import MarkItDown
converter, figures = MarkItDown(enable_plugins=False), {}
for kind, paths in json.load(sys.stdin)["files"].items():
    best, failed = None, 0
    for turn in range(int(sys.argv[1]) + 1):
        began, failed = time.perf_counter(), 0
        for path in paths:
            try:
                converter.convert_local(path)
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
    """Python program with markitdown; without it, only ragqa is measured."""
    repeats: int = 5
    """Number of times that the files of a format are read, after a warm-up; the fastest time counts."""


def main(config: FormatBenchConfig) -> None:
    """Measure how fast the files of each format are read; write the figures.

    Raises:
        BadInput: markitdown failed, or ragqa cannot read a file.
    """
    files = defaultdict[str, list[Path]](list)
    for path in walk_files(config.folders, on_error=lambda error: None):
        files[path.suffix.lower()].append(path)
    peer = _run_peer(config.peer_python, files, config.repeats) if config.peer_python else {}
    rows = {}
    for kind in sorted(files):
        size = sum(path.stat().st_size for path in files[kind])
        row: dict[str, Any] = {"files": len(files[kind]), "mb": round(size / 1e6, 3)}
        best = min(time_call(deque, read_documents(files[kind]), 0)[0] for _ in range(config.repeats + 1))
        row |= _rate(best, len(files[kind]), size)
        if kind in peer:
            seconds, row["peer_failed"] = peer[kind]["seconds"], peer[kind]["failed"]
            row |= {f"peer_{name}": value for name, value in _rate(seconds, len(files[kind]), size).items()}
        print_note(f"{kind}: {row}")
        rows[kind] = row
    corpus = ", ".join(map(str, config.folders))
    report(config.out, {"formats": rows, **measure_memory()}, corpus=corpus, questions="none")


def _rate(seconds: float, files: int, size: int) -> dict[str, float]:
    return {"files_per_s": round(files / seconds, 1), "mb_per_s": round(size / 1e6 / seconds, 2)}


def _run_peer(python: str, files: dict[str, list[Path]], repeats: int) -> dict[str, Any]:
    """Return the fastest seconds and the number of failed files of markitdown for each format."""
    request = json.dumps({"files": {kind: [str(path) for path in paths] for kind, paths in files.items()}})
    run = subprocess.run(
        [python, "-c", _PEER, str(repeats)], input=request, capture_output=True, text=True, check=False
    )
    if run.returncode:
        raise BadInput(f"{python}: markitdown failed: {(run.stderr.strip().splitlines() or ['no message'])[-1]}")
    figures: dict[str, Any] = json.loads(run.stdout)
    return figures


if __name__ == "__main__":
    run_command(main, FormatBenchConfig, __doc__)
