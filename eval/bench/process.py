"""Time a command as a whole process."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

# A process keeps the peak memory of the one it was forked from: so a small one starts the command.
_STARTER = """
import json, os, subprocess, sys, time
began = time.perf_counter()
process = subprocess.Popen(sys.argv[2:], stderr=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
row = {"seconds": time.perf_counter() - began, "rss_mb": usage.ru_maxrss / 1024}
open(sys.argv[1], "w").write(json.dumps(row | {"status": os.waitstatus_to_exitcode(status)}))
"""


def timed(command: list[str], **environment: str) -> dict[str, Any]:
    """Wall seconds, peak RSS in MB, exit status and standard output of a command.

    Raises RuntimeError where it ends otherwise than answered (0) or declined (1).
    """
    with tempfile.NamedTemporaryFile() as figures:
        run = subprocess.run(
            [sys.executable, "-S", "-c", _STARTER, figures.name, *command],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
            check=True,
        )
        row: dict[str, Any] = json.loads(Path(figures.name).read_text())
    if row["status"] not in (0, 1):
        raise RuntimeError(f"{command} ended with status {row['status']}")
    return {**row, "out": run.stdout}


def memory() -> dict[str, int]:
    """MB of this process: resident now and at most, and its own, without mapped files."""
    fields = {"VmRSS": "rss_mb", "VmHWM": "peak_rss_mb", "RssAnon": "own_mb"}
    lines = [line.split() for line in Path("/proc/self/status").read_text().splitlines()]
    return {fields[line[0][:-1]]: int(line[1]) // 1024 for line in lines if line and line[0][:-1] in fields}
