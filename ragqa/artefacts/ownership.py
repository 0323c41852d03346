"""Find out which files belong to ragqa, and which to the user.

ragqa replaces only its artefacts and deletes only its files. A file belongs to ragqa if the manifest of its directory
lists it. If the manifest is damaged, the record of the last check decides. In a directory without a manifest, such as a
trained model, files belong to ragqa if the new directory has files of the same names. All other files belong to the
user. A directory with files of the user is not replaced, unless the new directory has copies of them.
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
"""Files of an artefact that its manifest does not list: the manifest, and its temporary file after a kill."""


def check_replaceable(target: Path, *kinds: str) -> None:
    """Raise BadInput unless ``target`` is missing, empty or an artefact without user files.

    ``target`` must not be or contain the working directory. A damaged artefact can be replaced if an earlier check
    recorded its files.

    Args:
        target: directory to replace; it need not exist.
        kinds: kinds of artefacts that can be replaced. For ``index``, the path must be UTF-8 text.
    """
    if "index" in kinds:
        _check_encoding(target)
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


def _check_encoding(target: Path) -> None:
    """Raise BadInput if a path is not UTF-8 text; Arrow, FAISS and Tantivy could not open it."""
    try:
        str(target).encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"{target}: the path of an index must be UTF-8 text; choose another place") from error


def check_no_other_files(folder: Path, own: Collection[str]) -> None:
    """Raise BadInput if replacing ``folder`` would delete files that are not in ``own``.

    Args:
        folder: directory to replace; it need not exist.
        own: relative paths of the files that ragqa wrote in ``folder``.
    """
    with report_write_errors(folder):
        if (other := next(iter_other_files(folder, own), None)) is not None:
            raise BadInput(f"{folder} also holds {other}, which would be deleted: move it, or choose another place")


def find_own_files(target: Path, new: Path | None, *, copies_user_files: bool = False) -> set[str]:
    """Return ragqa's files in ``target``, and check that ``target`` can be replaced.

    Args:
        target: directory to replace; it need not exist.
        new: directory that replaces ``target``; None if it is not complete yet.
        copies_user_files: True if ``new`` gets copies of the user's files in ``target``.

    Returns:
        Relative paths, which can include files of ``new`` that ``target`` does not have.

    Raises:
        BadInput: ``target`` is not a directory of ragqa, is or contains the working directory, or has files of the user
            that would get lost.
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
    if copies_user_files or not has_manifest:
        if new is None:  # the names of the new files are not known yet
            return own
        own |= {file.relative_to(new).as_posix() for file in new.rglob("*")} | {CALIBRATION}
    check_no_other_files(target, own)
    return own


def check_working_directory(target: Path) -> None:
    """Raise BadInput if replacing ``target`` would remove the working directory."""
    try:
        is_inside = Path.cwd().is_relative_to(target.resolve())
    except FileNotFoundError:  # the working directory does not exist any more
        return
    if is_inside and target.exists():
        raise BadInput(f"{target} is or holds the working directory, and would be replaced: choose another place")


def check_work_directory(work: Path, names: Collection[str]) -> None:
    """Raise BadInput unless ``work`` is missing, or a work directory that ragqa may delete.

    Args:
        work: directory in which an artefact is made; it need not exist.
        names: names of the files and folders that ragqa writes into such a directory.
    """
    with report_write_errors(work):
        if os.path.lexists(work) and (work.is_symlink() or not work.is_dir() or not holds_only(work, names)):
            raise BadInput(f"{work} is not ragqa's, and would be deleted: move it")


def holds_only(folder: Path, names: Collection[str]) -> bool:
    """Return True if a directory holds only files and folders of these names.

    ``.NAME.writing``, an unfinished file or folder, counts as ``NAME``.
    """
    with os.scandir(folder) as entries:
        return all(
            entry.name.removeprefix(".").removesuffix(".writing") in names
            # Reading a pipe might never end, and a link leads to files of the user.
            and (entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False))
            for entry in entries
        )


def delete_replaced(folder: Path, own: Collection[str]) -> None:
    """Delete a directory after its replacement, unless it has files that are not in ``own``.

    A user can have written a file into the directory just before the swap.

    Args:
        folder: old directory, at its new path.
        own: relative paths of the files that ragqa wrote in ``folder``.
    """
    if next(iter_other_files(folder, own), None) is None:
        shutil.rmtree(folder, ignore_errors=True)


def delete_orphan(folder: Path) -> None:
    """Delete the directory of a killed process, unless it is an artefact with user files."""
    try:
        _, own = _read_owner(folder)
    except ArtefactError:  # unfinished, or its deletion was interrupted
        shutil.rmtree(folder, ignore_errors=True)
    else:
        delete_replaced(folder, own)


def find_owner_kind(path: Path) -> str | None:
    """Return the kind of the artefact to which ``path`` belongs.

    Return None for a file or folder of the user, and ``artefact`` for a damaged artefact whose kind is unknown.
    """
    path = path.resolve()
    for folder in (path, *path.parents):
        try:
            kind, own = _read_owner(folder)
        except ArtefactError:  # not an artefact
            continue
        inside = path.relative_to(folder).as_posix()
        if inside in (".", *_OWN_NAMES) or any(f"{file}/".startswith(f"{inside}/") for file in own):
            return kind or "artefact"
    return None


def is_free(target: Path) -> bool:
    """Return True if ``target`` does not exist or is an empty directory."""
    if not os.path.lexists(target):
        return True
    return target.is_dir() and not any(target.iterdir())


def iter_other_files(folder: Path, own: Collection[str]) -> Iterator[str]:
    """Yield the relative paths of files and links in ``folder`` that are not in ``own``.

    Paths are sorted within each folder. The manifest and empty lock files, which search engines leave, are left out.

    Args:
        folder: directory to search.
        own: relative paths of the files that ragqa wrote in ``folder``.
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
    """Return the kind of an artefact (None if unknown), and the relative paths of its files.

    Raises:
        ArtefactError: ``folder`` is not an artefact, or is damaged and has no record of a check.
    """
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
