"""Locks between processes; the kernel releases a lock when its holder ends or is killed."""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ragqa.errors import BadInput, Locked


@contextmanager
def hold_lock(file: Path, *, wait: bool) -> Iterator[None]:
    """Hold the lock ``file`` within the block; only one process can hold it at a time.

    The lock file is empty and is deleted after the block, so that nothing is left next to a user's directories. A file
    with content belongs to a user: it is locked, but neither changed nor deleted.

    Args:
        file: lock file, in a directory that exists; it is created if it is missing.
        wait: True to wait until the lock is free; False to raise Locked if it is held.

    Raises:
        Locked: another process holds the lock, and ``wait`` is False.
        BadInput: ``file`` is not a regular file.
        OSError: ``file`` cannot be created or opened.
    """
    while True:
        descriptor = _open_lock(file)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError as error:
                raise Locked(f"another process is at work and holds {file}: wait for it") from error
            # The previous holder may have deleted the file between open and flock. A lock on a deleted file guards
            # nothing, so try again.
            if not _is_same_file(descriptor, file):
                continue
            try:
                yield
            finally:
                with suppress(OSError):  # a file that is left over is not locked, so it blocks nobody
                    if os.fstat(descriptor).st_size == 0:
                        file.unlink()
            return
        finally:
            os.close(descriptor)


def _open_lock(file: Path) -> int:
    """Open or create a lock file; refuse a link, which can lead to a file of another user."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        raise BadInput(f"{file} is not a lock file, but a link or a socket: delete it") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BadInput(f"{file} is not a lock file, but a pipe or a device: delete it")
    return descriptor


def _is_same_file(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), file.lstat())
    except FileNotFoundError:
        return False
