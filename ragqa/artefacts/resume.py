"""Work of hours beside the directory that it makes: a run that follows a killed one goes on where that was.

.NAME.building/begun     what it was begun for: nothing is taken over for anything else
.NAME.building/made/     what becomes NAME, at the end and at once
.NAME.building/sealed    which directory made/ is, written when it is whole; for then it changes places with what
                         stood there, and a run that finds it must not take the old for the new
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ragqa import artefacts
from ragqa.artefacts.lock import locked
from ragqa.errors import ArtefactError

BEGUN, MADE, SEALED = "begun", "made", "sealed"


@contextmanager
def workplace(target: Path, ours: str) -> Iterator[Path]:
    """The locked folder in which ``target`` is made, emptied if it was begun for anything but ``ours``.

    The block fills ``made/`` and seals it, unless that ``is_sealed``, and calls ``put_in_place``. Then ``target`` is
    known to be whole, and the folder is gone.

    Raises:
        BadInput: another process is at work there, or a file cannot be written.
    """
    work = target.with_name(f".{target.name}.building")
    with artefacts.as_bad_input(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target.with_name(f".{target.name}.lock"), wait=False):
            artefacts.recover(target)
            if not _goes_on(work, target, ours):
                shutil.rmtree(work, ignore_errors=True)
                (work / MADE).mkdir(parents=True)
                write_whole(work / BEGUN, ours)
            yield work
            shutil.rmtree(work, ignore_errors=True)
            artefacts.vouch(target)  # after the last link to any of its files is gone, which changes their times


def is_sealed(work: Path) -> bool:
    """Whether nothing is left to make: ``made/`` is whole, or in its place already."""
    return (work / SEALED).is_file()


def put_in_place(work: Path, target: Path) -> None:
    """``made/``, an artefact by now, becomes ``target``, unless an earlier run came so far."""
    made = work / MADE
    if not is_sealed(work):
        write_whole(work / SEALED, _identity(made))
    if _identity(made) == _text(work / SEALED):
        artefacts.put_in_place(made, target)


def write_whole(file: Path, text: str) -> None:
    """Write a small file that is there with all its text, or not at all."""
    aside = file.with_name(f".{file.name}")
    aside.write_text(text)
    aside.rename(file)


def _goes_on(work: Path, target: Path, ours: str) -> bool:
    if _text(work / BEGUN) != ours:
        return False
    if is_sealed(work):
        return _text(work / SEALED) in (_identity(work / MADE), _identity(target))
    return (work / MADE).is_dir()


def _identity(folder: Path) -> str:
    """Which directory this is, wherever it is moved to; empty where it is no artefact.

    Not its fingerprint alone: a damaged index that is made again has the one that it had.
    """
    try:
        return f"{folder.stat().st_ino} {artefacts.peek(folder).fingerprint}"
    except (OSError, ArtefactError):
        return ""


def _text(file: Path) -> str | None:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError):
        return None
