"""Replace whole directories in one step, unless files of the user would get lost."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ragqa.artefacts.orphans import create_temporary, get_replaced_path, lock_directory, sweep_orphans
from ragqa.artefacts.ownership import delete_replaced, find_own_files, is_free
from ragqa.artefacts.sync import sync_directory, sync_tree
from ragqa.artefacts.write_errors import report_write_errors


@contextmanager
def replace_directory(target: Path, *, copies_user_files: bool = False) -> Iterator[Path]:
    """Yield a new folder, which replaces ``target`` in one step at the end of the block.

    After an error in the block, ``target`` is unchanged.

    Args:
        target: directory to replace; it need not exist.
        copies_user_files: True if the block copies the user's files in ``target`` into the new folder.

    Raises:
        BadInput: as for ``find_own_files``, or ``target`` cannot be written.
    """
    target = target.resolve()
    with report_write_errors(target):
        find_own_files(target, None, copies_user_files=copies_user_files)  # find errors before the block's work
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep_orphans(target)
        with create_temporary(target) as temporary:
            try:
                yield temporary
                for weights in temporary.rglob("*.safetensors"):  # only the owner can read what safetensors writes
                    weights.chmod(temporary.stat().st_mode & 0o666)
                swap_into_place(temporary, target, copies_user_files=copies_user_files)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise


def swap_into_place(temporary: Path, target: Path, *, copies_user_files: bool = False) -> None:
    """Move a new directory to ``target`` in one step, and delete the old ``target``.

    The old files are deleted only when the swap is on the disk. If the system cannot swap two directories, there are
    two steps, and ``target`` is missing between them.

    Args:
        temporary: new directory, on the same file system as ``target``.
        target: directory to replace; it need not exist.
        copies_user_files: True if ``temporary`` has copies of the user's files in ``target``.

    Raises:
        BadInput: as for ``find_own_files``.
        OSError: a directory cannot be read, moved or synced.
    """
    sync_tree(temporary)
    own = find_own_files(target, temporary, copies_user_files=copies_user_files)
    if is_free(target):
        temporary.rename(target)
        sync_directory(target.parent)
        return
    if exchange_directories(temporary, target):
        sync_directory(target.parent)
        delete_replaced(temporary, own)
        return
    old = get_replaced_path(target)
    with lock_directory(target):  # otherwise another process could remove it as an orphan
        target.rename(old)
        try:
            temporary.rename(target)
        except BaseException:
            if not target.exists():  # an interrupt can come after the rename
                old.rename(target)
            raise
        sync_directory(target.parent)
        delete_replaced(old, own)


def exchange_directories(first: Path, second: Path) -> bool:
    """Swap two directories in one step; return False if the system cannot do this."""
    import ctypes

    at_cwd, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE in the header files of Linux
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError):
        return False
    return bool(rename(at_cwd, os.fsencode(first), at_cwd, os.fsencode(second), exchange) == 0)
