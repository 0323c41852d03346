"""Wait until files are on the disk, so that a power failure leaves no empty files behind."""

import os
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG


def sync_file(file: Path) -> None:
    """Wait until the content of ``file`` is on the disk."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(folder: Path) -> None:
    """Wait until the list of files in ``folder`` is on the disk, if the file system can do so."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # some network file systems cannot sync directories
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Wait until all files in ``folder`` and its subfolders are on the disk, with their names."""
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            file = Path(parent, name)
            state = file.lstat()
            # A file with a second name belongs to an earlier version, which was synced when it was written.
            if S_ISREG(state.st_mode) and state.st_nlink == 1:
                sync_file(file)
        sync_directory(Path(parent))
