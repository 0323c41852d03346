"""Ownership of directories: ragqa replaces only its own artefacts, and deletes only files that it wrote.

The files of a directory belong to ragqa if its manifest names them. If the manifest is damaged, the record of the last
check names them. A directory without a manifest, such as a trained model, may hold only files that the new one also
holds. Any other file is the user's, and keeps the directory from being replaced.
"""

import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from ragqa.artefacts.manifest import (
    CALIBRATION,
    MANIFEST,
    TYPICAL_FILES,
    list_checked_files,
    peek_manifest,
)
from ragqa.artefacts.write_errors import report_write_errors
from ragqa.errors import ArtefactError, BadInput, DamagedArtefact

_OWN_NAMES = (MANIFEST, f".{MANIFEST}.writing")
"""Files of every artefact that its manifest does not name; the second is left by a killed write."""


def check_replaceable(target: Path, *kinds: str) -> None:
    """Raise BadInput unless ``target`` is free, empty, or an artefact of one of ``kinds`` without other files.

    An artefact with damaged files can be replaced.
    """
    with report_write_errors(target):
        check_working_directory(target)
        if is_free(target):
            return
        try:
            kind, own = _read_owner(target)
        except ArtefactError as error:
            raise _make_refusal(target, *kinds) from error
        if kind not in kinds:
            raise _make_refusal(target, *kinds)
        check_no_other_files(target, own)


def check_no_other_files(folder: Path, own: Collection[str]) -> None:
    """Raise BadInput if ``folder`` holds a file that is not in ``own``, and would be deleted.

    Args:
        folder: directory to be replaced; it may be missing.
        own: relative paths of the files that ragqa wrote there.
    """
    with report_write_errors(folder):
        if (other := next(iter_other_files(folder, own), None)) is not None:
            raise BadInput(f"{folder} also holds {other}, which would be deleted: move it, or choose another place")


def find_own_files(target: Path, new: Path | None, *, carries_others: bool = False) -> set[str]:
    """Return the relative paths of ragqa's files in the directory ``target``, which ``new`` will replace.

    Args:
        target: directory to be replaced; it may be missing or empty.
        new: the directory that replaces it, or None if that is not complete yet.
        carries_others: True if ``new`` gets copies of the user's files, so that they are not lost.

    Raises:
        BadInput: ``target`` is not a directory of ragqa, or holds other files.
    """
    check_working_directory(target)
    if is_free(target):
        return set()
    own: set[str] = set()
    has_manifest = not target.is_dir() or os.path.lexists(target / MANIFEST)
    if has_manifest:
        try:
            own |= _read_owner(target)[1]
        except ArtefactError as error:
            raise _make_refusal(target, "artefact") from error
    if carries_others or not has_manifest:
        if new is None:  # its names are not known yet
            return own
        own |= {file.relative_to(new).as_posix() for file in new.rglob("*")} | {CALIBRATION}
    check_no_other_files(target, own)
    return own


def check_working_directory(target: Path) -> None:
    """Raise BadInput if this process works in ``target``, where its commands would then find nothing."""
    try:
        is_inside = Path.cwd().is_relative_to(target.resolve())
    except FileNotFoundError:  # the working directory itself is gone
        return
    if is_inside and target.exists():
        raise BadInput(f"{target} is or holds the working directory, and would be replaced: choose another place")


def delete_replaced(folder: Path, own: Collection[str]) -> None:
    """Delete the directory ``folder`` with the files ``own``; leave it if another file has just come in."""
    if next(iter_other_files(folder, own), None) is None:
        shutil.rmtree(folder, ignore_errors=True)


def delete_orphan(folder: Path) -> None:
    """Delete what a killed process left: a half-written directory, or a replaced artefact without other files."""
    own = None
    if (folder / MANIFEST).is_file():
        try:
            _, own = _read_owner(folder)
        except ArtefactError:  # damaged, for example because its deletion had begun
            own = None
    if own is None:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        delete_replaced(folder, own)


def is_free(target: Path) -> bool:
    """Return True if ``target`` does not exist or is an empty directory."""
    if not os.path.lexists(target):
        return True
    return target.is_dir() and not any(target.iterdir())


def iter_other_files(folder: Path, own: Collection[str]) -> Iterator[str]:
    """Yield the relative paths of the files and links in ``folder`` that are not in ``own``, in order.

    Empty lock files, which search engines leave in their folders, do not count.
    """
    for parent, folders, files in os.walk(folder):
        folders.sort()
        links = [name for name in folders if Path(parent, name).is_symlink()]
        for name in sorted(files + links):
            file = Path(parent, name)
            path = file.relative_to(folder).as_posix()
            is_empty_lock = file.suffix == ".lock" and not file.is_symlink() and file.stat().st_size == 0
            if path not in own and path not in _OWN_NAMES and not is_empty_lock:
                yield path


def _read_owner(folder: Path) -> tuple[str | None, set[str]]:
    """Return kind and files of an artefact; raise ArtefactError if ragqa did not make it."""
    try:
        manifest = peek_manifest(folder)
        return manifest.kind, set(manifest.files)
    except DamagedArtefact:
        own = list_checked_files(folder)
        if not own:
            raise
        tops = own | {path.partition("/")[0] for path in own}
        return next((kind for kind, typical in TYPICAL_FILES.items() if tops & set(typical)), None), own


def _make_refusal(target: Path, *kinds: str) -> BadInput:
    return BadInput(f"{target} exists and is not a ragqa {' or '.join(kinds)}: move it, or choose another place")
