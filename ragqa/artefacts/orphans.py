"""Make temporary directories beside a target, and remove the orphans of killed processes.

    .NAME.PID-HEX.writing     new directory that becomes NAME; after the swap, the old directory
    .NAME.PID-HEX.replaced    old directory, if the file system cannot swap two directories in one step
    .NAME.updating            work directory of an update of an index

An orphan is a temporary directory whose process was killed. A living process holds a lock on its directory, and the
kernel releases the lock when the process ends. On network file systems that cannot lock directories, no orphan is
removed.

A directory of the user could have the same name. The eight random digits of HEX make that improbable.
``.NAME.updating`` belongs to ragqa only if it holds nothing but files of an update.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from ragqa.artefacts.ownership import check_work_directory, delete_orphan, holds_only

_REPLACED = ".replaced"
DELETED_IDS, UPDATE_FOLDER = "deleted.json", "made"
"""File with the ids of deleted documents, and folder of the new version, in the work directory of an update."""
_UPDATE_NAMES = (DELETED_IDS, UPDATE_FOLDER)


@contextmanager
def create_temporary(target: Path) -> Iterator[Path]:
    """Yield a new directory beside ``target``, as ``own_directory`` does."""
    with own_directory(_make_unique_path(target, ".writing")) as folder:
        yield folder


@contextmanager
def own_directory(folder: Path) -> Iterator[Path]:
    """Create ``folder`` unless it exists, lock it for the block if possible, and yield it."""
    with ExitStack() as stack:
        while True:
            folder.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # another process removed the directory before it was locked
                stack.enter_context(lock_directory(folder))
                if folder.is_dir():
                    break
        yield folder


@contextmanager
def lock_directory(folder: Path) -> Iterator[bool]:
    """Lock a directory until the end of the block; yield True, or False if it cannot be locked.

    Raises:
        OSError: ``folder`` is missing, is a link, or is not a directory.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        is_locked = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # another process holds the lock, or the file system cannot lock directories
            is_locked = False
        yield is_locked
    finally:
        os.close(descriptor)


def get_replaced_path(target: Path) -> Path:
    """Return an unused path to which this process can move the old ``target``."""
    return _make_unique_path(target, _REPLACED)


def get_update_path(target: Path) -> Path:
    """Return the work directory of an update of the index ``target``."""
    return target.with_name(f".{target.name}.updating")


def check_update_path(work: Path) -> None:
    """Raise BadInput unless ``work`` is missing or the work directory of an update."""
    check_work_directory(work, _UPDATE_NAMES)


def sweep_orphans(target: Path, *, keep: Path | None = None) -> None:
    """Remove the directories that killed processes left beside ``target``.

    If a killed process had moved ``target`` away, ``target`` is moved back. Artefacts with files of the user stay.

    Args:
        target: directory that killed processes were writing.
        keep: orphan that is not removed.
    """
    name = re.compile(rf"\.{re.escape(target.name)}\.(\d+-[0-9a-f]{{8}}\.(writing|replaced)|updating)")
    with suppress(OSError):  # the parent folder is missing or cannot be listed
        with os.scandir(target.parent) as scanned:
            entries = list(scanned)
        for entry in entries:
            folder = Path(entry.path)
            if name.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False) and folder != keep:
                with suppress(FileNotFoundError):  # another process removed it
                    _sweep(folder, target)


def _sweep(folder: Path, target: Path) -> None:
    with lock_directory(folder) as is_locked:
        if not is_locked:
            return
        if folder.name.endswith(_REPLACED) and not target.exists():
            folder.rename(target)
        elif folder != get_update_path(target) or holds_only(folder, _UPDATE_NAMES):
            delete_orphan(folder)


def _make_unique_path(target: Path, ending: str) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}-{uuid4().hex[:8]}{ending}")
