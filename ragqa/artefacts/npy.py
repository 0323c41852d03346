"""Load NumPy files, in one thread at a time."""

from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

# numpy parses a file's header with ast, and CPython 3.11 can raise SystemError when two threads parse at once
# ("AST constructor recursion depth mismatch", python/cpython issue 106905).
_LOCK = Lock()


def load_array(file: Path, *, is_mapped: bool = False) -> Any:
    """Return the array of a ``.npy`` file, memory-mapped if ``is_mapped`` is True.

    Raises:
        OSError: the file is missing or cannot be read.
        ValueError, EOFError: the file is damaged or shorter than its header says, or its values are Python objects or
            have 0 bytes.
    """
    # np.load would also open zip archives, and allocate whatever size the header says.
    with _LOCK:
        array = np.lib.format.open_memmap(file, mode="r")
    if not array.dtype.itemsize:  # a small file could have more values than can be copied
        raise ValueError("its values have no size")
    return array if is_mapped else np.array(array)
