"""Locks between processes; the kernel releases a lock when its holder ends or is killed."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ragqa.errors import BadInput


@contextmanager
def hold_lock(file: Path, *, wait: bool) -> Iterator[None]:
    """Hold the lock ``file`` within the block; only one process holds it at a time.

    The file is deleted afterwards, so that nothing is left next to a user's directories.

    Args:
        file: the lock file; its directory exists.
        wait: wait for the lock instead of raising.

    Raises:
        BadInput: another process holds the lock and ``wait`` is False.
    """
    while True:
        with file.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError as error:
                raise BadInput(f"another process is at work and holds {file}: wait for it") from error
            # The previous holder may have deleted the file between open and flock. A lock on a deleted file guards
            # nothing, so try again.
            if not (file.exists() and os.path.samestat(os.fstat(lock.fileno()), file.stat())):
                continue
            try:
                yield
            finally:
                with suppress(OSError):  # a leftover file blocks nobody: only a lock on it does
                    file.unlink()
            return
