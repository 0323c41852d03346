"""Time a command as a whole process."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ragqa.errors import BadInput

# A process keeps the peak memory of the one it was forked from: so a small one starts the command.
_STARTER = """
import json, os, subprocess, sys, time
began = time.perf_counter()
process = subprocess.Popen(sys.argv[3:], stderr=open(sys.argv[2], "wb"))
_, status, usage = os.wait4(process.pid, 0)
row = {"seconds": time.perf_counter() - began, "rss_mb": usage.ru_maxrss / 1024}
open(sys.argv[1], "w").write(json.dumps(row | {"status": os.waitstatus_to_exitcode(status)}))
"""


def timed(command: list[str], **environment: str) -> dict[str, Any]:
    """Wall seconds, peak RSS in MB, exit status and standard output of a command.

    Raises BadInput, with the last line that it said, where it ends otherwise than answered (0) or declined (1), or
    with nothing on its standard output.
    """
    with tempfile.NamedTemporaryFile() as figures, tempfile.NamedTemporaryFile() as said:
        run = subprocess.run(
            [sys.executable, "-S", "-c", _STARTER, figures.name, said.name, *command],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
            check=True,
        )
        row: dict[str, Any] = json.loads(Path(figures.name).read_text())
        last = (Path(said.name).read_text(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
    if row["status"] not in (0, 1) or not run.stdout.strip():
        raise BadInput(f"{' '.join(command)} ended with status {row['status']}: {last}")
    return {**row, "out": run.stdout}


def memory() -> dict[str, int]:
    """MB of this process: resident now and at most, and its own, without mapped files."""
    fields = {"VmRSS": "rss_mb", "VmHWM": "peak_rss_mb", "RssAnon": "own_mb"}
    lines = [line.split() for line in Path("/proc/self/status").read_text().splitlines()]
    return {fields[line[0][:-1]]: int(line[1]) // 1024 for line in lines if line and line[0][:-1] in fields}
