"""Load NumPy files, in one thread at a time."""

from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

# numpy parses a file's header with ast, and CPython 3.11 can raise SystemError when two threads parse at once
# ("AST constructor recursion depth mismatch", python/cpython issue 106905).
_LOCK = Lock()


def load_array(file: Path, *, is_mapped: bool = False) -> Any:
    """Load the array of a ``.npy`` file, memory-mapped if ``is_mapped`` is True."""
    with _LOCK:
        return np.load(file, mmap_mode="r" if is_mapped else None)
