"""Work directory of an update: the new version of an index, and ids of deleted documents."""

import errno
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ragqa import artefacts
from ragqa.artefacts import Manifest
from ragqa.artefacts.lock import hold_lock
from ragqa.artefacts.orphans import (
    DELETED_IDS,
    UPDATE_FOLDER,
    check_update_path,
    get_update_path,
    own_directory,
)


@contextmanager
def open_update_folder(index: str | Path) -> Iterator[tuple[Path, Manifest, Path]]:
    """Yield the path of an index, its checked manifest, and the work directory of an update.

    No other process can change the index during the block. The work directory is deleted after the block, but stays
    after an interrupt, because the next update reads it.

    Args:
        index: directory of the index.

    Raises:
        BadInput: another process changes the index, a directory has files of the user, or a file cannot be written.
        ArtefactError: the directory is not an index.
        DamagedArtefact: a file of the index is damaged.
        Mismatch: a newer version of ragqa wrote the index.
    """
    target = Path(index).resolve()
    if not target.parent.is_dir():
        artefacts.peek_manifest(target)  # raises the error of a missing index
    with artefacts.report_write_errors(target), hold_lock(target.with_name(f".{target.name}.lock"), wait=False):
        work = get_update_path(target)
        artefacts.sweep_orphans(target, keep=work)
        manifest = artefacts.read_manifest(target, "index")
        artefacts.check_replaceable(target, "index")  # find errors before the work
        check_update_path(work)
        with own_directory(work):
            try:
                yield target, manifest, work
            except Exception:
                shutil.rmtree(work, ignore_errors=True)
                raise
            shutil.rmtree(work, ignore_errors=True)


def replace_index_file(index: str | Path, name: str, text: str) -> None:
    """Write a text file of an index, and its entry in the manifest, in one step.

    On an error, the index does not change.

    Args:
        index: directory of the index, which other processes can search at the same time.
        name: name of the file in the directory.
        text: new content of the file.

    Raises:
        BadInput, ArtefactError, DamagedArtefact, Mismatch: as for ``open_update_folder``.
    """
    with open_update_folder(index) as (target, manifest, work):
        folder = link_files(target, work)
        # Renamed into place, because the old version shares an existing file by a hard link.
        artefacts.write_text_whole(folder / name, text)
        known = {other: entry for other, entry in manifest.files.items() if other != name}
        parents = {"origin": manifest.fingerprint, **manifest.parents}
        artefacts.write_manifest(folder, "index", manifest.config, parents, known=known)
        artefacts.swap_into_place(folder, target)
        artefacts.mark_checked(target)


def read_deleted(work: Path, version: Manifest) -> set[str]:
    """Return the ids that a killed update to ``version`` deleted; empty if there was none.

    The update was killed after it had put the new version in place. It printed no report, so the user runs it again.
    The second run must accept these ids, although the index no longer has them.

    Args:
        work: work directory of the update.
        version: manifest of the index.
    """
    try:
        return set(json.loads((work / DELETED_IDS).read_text())[version.fingerprint])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return set()


def record_deleted(work: Path, deleted: dict[str, set[str]]) -> None:
    """Write the ids that updates deleted, for ``read_deleted``.

    Args:
        work: work directory of the update.
        deleted: deleted ids by the fingerprint of the version without them.
    """
    rows = {fingerprint: sorted(ids) for fingerprint, ids in deleted.items()}
    artefacts.write_text_whole(work / DELETED_IDS, json.dumps(rows))


def link_files(source: Path, work: Path) -> Path:
    """Copy an index by hard links into a folder in ``work``, and return that folder.

    The manifest and the locks are not copied.

    Args:
        source: directory of the index.
        work: work directory of the update.

    Raises:
        PermissionError: a folder of the index is not writable.
        OSError: the folder of a killed update cannot be deleted, or a file cannot be linked.
    """
    target = work / UPDATE_FOLDER
    with suppress(FileNotFoundError):
        shutil.rmtree(target)  # a killed update may have left this folder
    for folder, _, files in os.walk(source):
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
        copy = target / Path(folder).relative_to(source)
        copy.mkdir()
        copy.chmod(stat.S_IMODE(os.stat(folder).st_mode))
        for name in files:
            if name != artefacts.MANIFEST and not name.endswith(".lock"):
                artefacts.link_file(Path(folder, name), copy / name)
    return target
