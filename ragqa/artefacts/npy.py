"""NumPy files, opened by a single thread at a time."""

from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

# numpy parses a file's header with ast, and CPython 3.11 can raise SystemError when two threads parse at once
# ("AST constructor recursion depth mismatch", python/cpython issue 106905).
_LOCK = Lock()


def load_array(file: Path, *, mapped: bool = False) -> Any:
    """Load the array of a ``.npy`` file, memory-mapped if ``mapped`` is True."""
    with _LOCK:
        return np.load(file, mmap_mode="r" if mapped else None)
