"""Time a command as a whole process."""

import os
import subprocess
import time
from typing import Any


def timed(command: list[str], **environment: str) -> dict[str, Any]:
    """Wall seconds, peak RSS in MB and standard output of a process."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **environment},
    )
    assert process.stdout is not None
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise RuntimeError(f"{command} failed")
    return {"seconds": time.perf_counter() - began, "rss_mb": usage.ru_maxrss / 1024, "out": out}
