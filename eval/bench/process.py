"""Measure the time and memory of commands and functions in separate processes."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ragqa.errors import BadInput

# A process inherits the peak memory of its parent, so a small Python process starts the command.
_STARTER = """
import json, os, subprocess, sys, time
began = time.perf_counter()
process = subprocess.Popen(sys.argv[3:], stderr=open(sys.argv[2], "wb"))
_, status, usage = os.wait4(process.pid, 0)
row = {"seconds": time.perf_counter() - began, "rss_mb": usage.ru_maxrss / 1024}
open(sys.argv[1], "w").write(json.dumps(row | {"status": os.waitstatus_to_exitcode(status)}))
"""


def run_timed(command: list[str], **environment: str) -> dict[str, Any]:
    """Run a command in a new process, and measure its time and memory.

    Args:
        command: program and arguments.
        environment: variables to add to the environment.

    Returns:
        ``seconds`` of wall time, peak ``rss_mb``, exit ``status`` and standard output ``out``.

    Raises:
        BadInput: the command failed or printed nothing. Status 1 means a declined question, not a failure.
    """
    with tempfile.NamedTemporaryFile() as figures, tempfile.NamedTemporaryFile() as errors:
        run = subprocess.run(
            [sys.executable, "-S", "-c", _STARTER, figures.name, errors.name, *command],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
            check=True,
        )
        row: dict[str, Any] = json.loads(Path(figures.name).read_text())
        last = (Path(errors.name).read_text(errors="replace").strip().splitlines() or ["it printed nothing"])[-1]
    if row["status"] not in (0, 1) or not run.stdout.strip():
        raise BadInput(f"{' '.join(command)} ended with status {row['status']}: {last}")
    return {**row, "out": run.stdout}


def run_peer(python: str, folder: Path, *arguments: str) -> dict[str, Any]:
    """Run ``peer.py``; return its printed figures and the figures of ``run_timed``.

    Args:
        python: Python program of the peer's environment.
        folder: directory that ``eval.bench.latency`` wrote; for ``--passages``, any directory with ``encoder/``.
        arguments: further arguments of the script.

    Raises:
        BadInput: as for ``run_timed``.
    """
    run = run_timed([python, str(Path(__file__).with_name("peer.py")), str(folder), *arguments])
    return {**run, **json.loads(run["out"])}


def time_call(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Call a function with ``arguments``; return its seconds of wall time and its result."""
    began = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - began, result


def measure_memory(process: int | str = "self") -> dict[str, int]:
    """Return the memory of a process in MB.

    Args:
        process: id of the process; ``self`` is this process.

    Returns:
        Resident memory: ``rss_mb`` now, ``peak_rss_mb`` at its peak, and ``own_mb`` now without mapped files.
    """
    fields = {"VmRSS": "rss_mb", "VmHWM": "peak_rss_mb", "RssAnon": "own_mb"}
    lines = [line.split() for line in Path(f"/proc/{process}/status").read_text().splitlines()]
    return {fields[line[0][:-1]]: int(line[1]) // 1024 for line in lines if line and line[0][:-1] in fields}


def run_in_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call an importable function with ``arguments`` in a new process; return its result."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()
