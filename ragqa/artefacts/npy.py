"""NumPy files, opened by a single thread at a time."""

from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

# numpy parses a file's header with ast, and CPython 3.11 may raise SystemError when two threads do that at once
# ("AST constructor recursion depth mismatch", python/cpython issue 106905).
_LOCK = Lock()


def load_array(file: Path, *, mapped: bool = False) -> Any:
    """Load a file of ``numpy.save``, memory-mapped if ``mapped``; see ``numpy.load``."""
    with _LOCK:
        return np.load(file, mmap_mode="r" if mapped else None)
