"""Replace whole directories in one step, after a check that no other files get lost."""

import glob
import os
import shutil
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from ragqa.artefacts.manifest import has_typical_file, peek_manifest
from ragqa.errors import ArtefactError, BadInput, DamagedArtefact


@contextmanager
def replace_directory(target: Path) -> Iterator[Path]:
    """Yield a new folder, which replaces ``target`` if the block ends without an error.

    Raises:
        BadInput: the folder cannot be written.
    """
    target = target.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.writing")
    with report_write_errors(target):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
    try:
        with report_write_errors(target):
            yield temporary
            for weights in temporary.rglob("*.safetensors"):  # only the owner can read what safetensors writes
                weights.chmod(temporary.stat().st_mode & 0o666)
            swap_into_place(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def swap_into_place(temporary: Path, target: Path) -> None:
    """Move the directory ``temporary`` to ``target`` in one step; delete the old ``target``."""
    if not target.exists():
        temporary.rename(target)
        return
    if not exchange_directories(temporary, target):
        old = target.with_name(f".{target.name}.{os.getpid()}.replaced")
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
        try:
            temporary.rename(target)
        except BaseException:
            old.rename(target)
            raise
        temporary = old
    shutil.rmtree(temporary, ignore_errors=True)


def restore_interrupted_swap(target: Path) -> None:
    """Finish or undo ``swap_into_place`` of a killed process.

    The caller holds a lock on ``target``.
    """
    for old in target.parent.glob(f".{glob.escape(target.name)}.*.replaced"):
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.rename(target)


def exchange_directories(first: Path, second: Path) -> bool:
    """Swap two directories in one system call; return False if the system cannot do it."""
    import ctypes

    at_cwd, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE in the header files of Linux
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError):
        return False
    return bool(rename(at_cwd, os.fsencode(first), at_cwd, os.fsencode(second), exchange) == 0)


def check_replaceable(target: Path, *kinds: str) -> None:
    """Raise BadInput unless ``target`` is missing, empty, or an artefact of one of ``kinds``.

    A damaged artefact passes the check, so that it can be built again.
    """
    with report_write_errors(target):
        if not target.exists() or (target.is_dir() and not any(target.iterdir())):
            return
    try:
        if peek_manifest(target).kind in kinds:
            return
    except DamagedArtefact:
        if has_typical_file(target, *kinds):
            return
    except ArtefactError:
        pass
    raise BadInput(f"{target} exists and is not a ragqa {' or '.join(kinds)}: choose another place")


def check_no_other_files(folder: Path, known: Collection[str]) -> None:
    """Raise BadInput if replacing ``folder`` would delete files that are not in ``known``.

    Args:
        folder: directory to replace; it need not exist.
        known: names of files that can be deleted.
    """
    with report_write_errors(folder):
        names = sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []
    if unknown := [name for name in names if name not in known and not name.startswith(".")]:
        raise BadInput(f"{folder} also holds {unknown[0]}, which would be deleted: move it, or choose another place")


@contextmanager
def report_write_errors(path: Path) -> Iterator[None]:
    """Convert a failure to write ``path`` (full disk, no permission) to a BadInput of one line."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        if _is_elsewhere(error.filename, path):
            raise BadInput(f"cannot use {error.filename}: {reason}; {path} was not changed") from error
        raise BadInput(f"cannot write {path}: {reason}; nothing was changed") from error
    except Exception as error:
        # safetensors wraps OSError in its own class. sys.modules gives the class without importing safetensors.
        if not isinstance(error, getattr(sys.modules.get("safetensors"), "SafetensorError", ())):
            raise
        raise BadInput(f"cannot write {path}: {error}; nothing was changed") from error


def _is_elsewhere(name: object, path: Path) -> bool:
    """Return True if ``name`` is a file outside ``path``, and not one of its parent folders.

    The temporary folder that becomes ``path`` counts as ``path``.
    """
    if not isinstance(name, str) or Path(name) in path.parents:
        return False
    return not name.startswith((str(path), str(path.with_name(f".{path.name}."))))
