"""Artefacts: directories with a manifest, written aside and renamed into place, checked when opened.

A directory is an artefact of some kind (index, pipeline, encoder, reader) when it holds a
``manifest.json`` that names every other file with its size and checksum. Nothing else decides.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragqa import __version__
from ragqa.errors import ArtefactError, BadInput, DamagedArtefact, Mismatch
from ragqa.paths import cache_dir

FORMAT = 1
"""Version of the layout; a reader refuses a newer one."""
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Manifest:
    """What an artefact is, what made it, and what its files are."""

    kind: str
    config: dict[str, Any]
    parents: dict[str, str] = field(default_factory=dict)
    """Fingerprints of the artefacts it was made from, by role (``encoder``, ``corpus`` …)."""
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Relative path to ``size`` (bytes) and ``sha256``."""
    created_by: str = f"ragqa {__version__}"
    format: int = FORMAT

    @property
    def fingerprint(self) -> str:
        """16 hex digits that change with any file, the configuration or the parents."""
        parts = {n: f["sha256"] for n, f in self.files.items()}
        text = json.dumps([self.kind, self.config, self.parents, parts], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def checksum(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(folder: Path, kind: str, config: dict[str, Any], parents: dict[str, str]) -> Manifest:
    """Write the manifest of the files in ``folder``; from then on it is an artefact."""
    files = {
        path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "sha256": checksum(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST and not path.name.endswith(".lock")
    }
    manifest = Manifest(kind, config, parents, files)
    aside = folder / f".{MANIFEST}"
    aside.write_text(json.dumps(vars(manifest), indent=1, ensure_ascii=False))
    aside.rename(folder / MANIFEST)
    return manifest


@contextmanager
def writing(target: Path) -> Iterator[Path]:
    """A new folder beside ``target`` that takes its place when the block ends well.

    Whatever ``target`` was stays readable until then, and for good if the block fails.
    """
    target = target.absolute()
    aside = target.with_name(f".{target.name}.{os.getpid()}.writing")
    with as_bad_input(target):
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
    try:
        with as_bad_input(target):
            yield aside
            put_in_place(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def put_in_place(aside: Path, target: Path) -> None:
    """Rename ``aside`` to ``target``; an artefact that stood there goes once the new one stands."""
    old = replaced(target)
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    aside.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def replaced(target: Path) -> Path:
    """Where the former artefact stands for the moment between the two renames."""
    return target.with_name(f".{target.name}.replaced")


@contextmanager
def as_bad_input(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals (full disk, no permission) into one clear line."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror or error}; nothing was changed") from error


def read(path: Path, kind: str) -> Manifest:
    """The manifest of the artefact at ``path``, every file checked against it.

    Files whose size, time and inode are those of the last full check are not read again.

    Raises:
        ArtefactError: ``path`` is not an artefact of this kind, or of a newer format.
        DamagedArtefact: a file is missing, truncated or changed; the message names it.
    """
    manifest = peek(path)
    if manifest.kind != kind:
        raise ArtefactError(f"{path} is a ragqa {manifest.kind}, not a ragqa {kind}")
    _check_files(path, manifest)
    return manifest


def peek(path: Path) -> Manifest:
    """The manifest at ``path``, its files unchecked."""
    if not path.exists() and replaced(path).exists():
        with suppress(OSError):  # killed between the two renames: the former artefact still answers
            replaced(path).rename(path)
    if not path.exists():
        raise ArtefactError(f"{path} does not exist")
    file = path / MANIFEST
    if not file.is_file():
        raise ArtefactError(f"{path} is not a ragqa directory (no {MANIFEST}); make one with: ragqa index")
    try:
        manifest = Manifest(**json.loads(file.read_text()))
        version = int(manifest.format)
    except (ValueError, TypeError) as error:
        raise DamagedArtefact(f"{file} is damaged: {error}; make the directory again") from error
    if version > FORMAT:
        raise Mismatch(f"{path} was written by {manifest.created_by} in format {version}: update ragqa")
    return manifest


def _check_files(path: Path, manifest: Manifest) -> None:
    stamp = cache_dir() / "checked" / hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:24]
    seen = {MANIFEST: _state(path / MANIFEST)}
    for name, expected in manifest.files.items():
        file = path / name
        if not file.is_file():
            raise DamagedArtefact(f"{file} is missing; make the directory again")
        seen[name] = _state(file)
        if seen[name][0] != expected["size"]:
            raise DamagedArtefact(
                f"{file} is damaged: {seen[name][0]} bytes instead of {expected['size']}; make it again"
            )
    text = json.dumps(seen, sort_keys=True)
    with suppress(OSError):
        if stamp.read_text() == text:
            return
    for name, expected in manifest.files.items():
        if checksum(path / name) != expected["sha256"]:
            raise DamagedArtefact(f"{path / name} is damaged: its checksum is not the manifest's; make it again")
    with suppress(OSError):  # a cache that cannot be written costs time, nothing else
        stamp.parent.mkdir(parents=True, exist_ok=True)
        aside = stamp.with_suffix(f".{os.getpid()}")
        aside.write_text(text)
        aside.rename(stamp)


def _state(file: Path) -> list[int]:
    stat = file.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ino]
