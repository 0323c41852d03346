"""One process at a time where two would spoil each other's work."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ragqa.errors import BadInput


@contextmanager
def locked(file: Path, *, wait: bool) -> Iterator[None]:
    """Hold the lock ``file``, which is gone afterwards; one process at a time holds it.

    Raises:
        BadInput: another process holds it, and this one is not to ``wait``.
    """
    while True:
        with file.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError as error:
                raise BadInput(f"another process is at work behind {file} just now: wait for it") from error
            # Who held it before may have deleted the very file that is locked now: then it guards nothing.
            if not (file.exists() and os.path.samestat(os.fstat(lock.fileno()), file.stat())):
                continue
            try:
                yield
            finally:
                with suppress(OSError):  # the work is done, and a lock that nobody holds stops nobody
                    file.unlink()
            return
