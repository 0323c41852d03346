"""Properties of the machine: its cores, and a description for measurements."""

import os
import platform
from pathlib import Path


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def get_processor_name() -> str:
    """Return the model name of the processor, or the architecture if the name is unknown."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def describe_hardware() -> str:
    """Return the processor, usable cores, memory and Python version in one line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{get_processor_name()}, {count_cores()} cores, {memory:.0f} GiB, Python {platform.python_version()}"
