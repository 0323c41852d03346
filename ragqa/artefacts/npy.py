"""Arrays in files, opened by one thread at a time."""

from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

# numpy parses a file's header with ast, and CPython 3.11 may raise SystemError where two threads do that at once
# ("AST constructor recursion depth mismatch", python/cpython issue 106905).
_ONE = Lock()


def load(file: Path, *, mapped: bool = False) -> Any:
    """The array in a file of ``numpy.save``'s, memory-mapped for reading if wished; raises as ``numpy.load`` does."""
    with _ONE:
        return np.load(file, mmap_mode="r" if mapped else None)
