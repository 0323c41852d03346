"""Work directory of an update: hard links to the old version, and the ids that a killed update deleted."""

import errno
import json
import os
import shutil
import stat
from pathlib import Path

from ragqa import artefacts
from ragqa.artefacts import Manifest
from ragqa.artefacts.orphans import DELETED_IDS, UPDATE_FOLDER


def read_deleted(work: Path, version: Manifest) -> set[str]:
    """Return the ids that an update to ``version`` deleted, if it was killed after its swap.

    A killed update prints no report, so its user runs it again. Then these ids are unknown, but not an error.
    """
    try:
        return set(json.loads((work / DELETED_IDS).read_text())[version.fingerprint])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return set()


def record_deleted(work: Path, deleted: dict[str, set[str]]) -> None:
    """Write the deleted ids of each version, by fingerprint."""
    rows = {fingerprint: sorted(ids) for fingerprint, ids in deleted.items()}
    artefacts.write_text_whole(work / DELETED_IDS, json.dumps(rows))


def link_files(source: Path, work: Path) -> Path:
    """Copy an index to ``work`` by hard links, without manifest and locks; return the copy."""
    target = work / UPDATE_FOLDER
    shutil.rmtree(target, ignore_errors=True)  # a killed update may have left this folder
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
