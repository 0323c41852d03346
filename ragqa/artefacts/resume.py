"""Resumable builds: after a kill, the next run continues in a workspace next to the target.

    .NAME.building/begun     signature of the input; the build starts again if the input differs
    .NAME.building/made/     directory that becomes NAME at the end, in one step
    .NAME.building/sealed    identity of the finished made/

A kill can come during the swap of ``made/`` and the old NAME. The identity then tells the next run which one is new.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ragqa.artefacts import atomic
from ragqa.artefacts.files import write_text_whole
from ragqa.artefacts.lock import hold_lock
from ragqa.artefacts.manifest import mark_checked, peek_manifest
from ragqa.artefacts.orphans import sweep_orphans
from ragqa.artefacts.ownership import check_work_directory
from ragqa.artefacts.write_errors import report_write_errors
from ragqa.errors import ArtefactError

SIGNATURE_FILE, BUILD_FOLDER, IDENTITY_FILE = "begun", "made", "sealed"
_BUILD_NAMES = ("vectors", "report.json", "search.json", "rows.json", "merged.json", "parts")
"""Names of files and folders that ``ragqa.indexing.build`` and ``index.build`` add to a workspace."""


@contextmanager
def open_workspace(target: Path, signature: str) -> Iterator[Path]:
    """Yield the workspace in which ``target`` is built, locked until the end of the block.

    Unless ``is_complete``, the block fills ``made/`` and writes its manifest. Then it calls ``move_into_place``. After
    the block, the workspace is deleted, and ``target`` is marked as checked. After an error in the block, the workspace
    is deleted only if ``made/`` has no finished part; after an interrupt it stays.

    Args:
        target: directory of the artefact.
        signature: description of the input; the files of an interrupted build with another signature are deleted.

    Raises:
        BadInput: another process is building ``target``, a file cannot be written, or the directory at the path of the
            workspace belongs to the user.
    """
    work = target.with_name(f".{target.name}.building")
    with report_write_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with hold_lock(target.with_name(f".{target.name}.lock"), wait=False):
            sweep_orphans(target)
            check_work_directory(work, (SIGNATURE_FILE, BUILD_FOLDER, IDENTITY_FILE, *_BUILD_NAMES))
            if not _can_resume(work, target, signature):
                shutil.rmtree(work, ignore_errors=True)
                (work / BUILD_FOLDER).mkdir(parents=True)
                write_text_whole(work / SIGNATURE_FILE, signature)
            try:
                yield work
            except Exception:  # not KeyboardInterrupt: after it, the same command continues the build
                if not _has_parts(work):
                    shutil.rmtree(work, ignore_errors=True)
                raise
            shutil.rmtree(work, ignore_errors=True)
            mark_checked(target)  # must come last, because deleting a hard link to a file changes the file's times


def is_complete(work: Path) -> bool:
    """Return True if the artefact of a workspace is finished; it can already be in its place."""
    return (work / IDENTITY_FILE).is_file()


def move_into_place(work: Path, target: Path) -> None:
    """Replace ``target`` by the folder ``made/`` of a workspace, unless an earlier run did so.

    Args:
        work: workspace that ``open_workspace`` yielded.
        target: directory of the artefact.

    Raises:
        BadInput, OSError: as for ``atomic.swap_into_place``.
    """
    folder = work / BUILD_FOLDER
    if not is_complete(work):
        write_text_whole(work / IDENTITY_FILE, _identify(folder))
    if _identify(folder) == _read_text(work / IDENTITY_FILE):
        atomic.swap_into_place(folder, target)


def _has_parts(work: Path) -> bool:
    return any(not path.name.startswith(".") for path in (work / BUILD_FOLDER).glob("*"))


def _can_resume(work: Path, target: Path, signature: str) -> bool:
    if _read_text(work / SIGNATURE_FILE) != signature:
        return False
    if is_complete(work):
        return _read_text(work / IDENTITY_FILE) in (_identify(work / BUILD_FOLDER), _identify(target))
    return (work / BUILD_FOLDER).is_dir()


def _identify(folder: Path) -> str:
    """Return an identity that an artefact keeps when it is moved.

    The identity includes the inode, because an index that is rebuilt after damage can have the same fingerprint. It is
    empty for a folder that is not an artefact.
    """
    try:
        return f"{folder.stat().st_ino} {peek_manifest(folder).fingerprint}"
    except (OSError, ArtefactError):
        return ""


def _read_text(file: Path) -> str | None:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError):
        return None
