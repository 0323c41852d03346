"""Describe the machine on which a figure is measured."""

import os
import platform
from pathlib import Path


def get_processor_name() -> str:
    """Return the model name of the processor, or the architecture if the name is unknown."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def describe_hardware() -> str:
    """Return the processor, usable cores, memory and Python version in one line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    return f"{get_processor_name()}, {cores} cores, {memory:.0f} GiB, Python {platform.python_version()}"
