"""Artefacts: directories with a manifest, written aside and put into place at once, checked when opened.

A directory is an artefact of some kind (index, pipeline, encoder, reader) when it holds a
``manifest.json`` that names every other file with its size and checksum, and itself by its fingerprint.
"""

import glob
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragqa import __version__
from ragqa.artefacts.paths import cache_dir
from ragqa.errors import ArtefactError, BadInput, DamagedArtefact, Mismatch

FORMAT = 1
"""Version of the layout; a reader refuses a newer one."""
MANIFEST = "manifest.json"
CALIBRATION = "calibration.json"
"""Beside the weights of a reader, and none of them: what its confidence is made of."""
SIGNS = {
    "index": ("passages",),
    "pipeline": ("pipeline.json",),
    "encoder": ("model.onnx",),
    "reader": ("model.onnx",),
    "report": ("report.json",),
    "vectors": ("begun.json",),
    "dense": ("vectors.npy", "codes.npy"),
}
"""Kinds, and what one of lies in each: an artefact is known by it even where its manifest is damaged."""


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
        """16 hex digits that change with anything the manifest says, and so with any file."""
        return hashlib.sha256(json.dumps(vars(self), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def origin(self) -> str:
        """The fingerprint of what this is an updated version of, or its own: updates do not change it."""
        return self.parents.get("origin", self.fingerprint)


def checksum(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(
    folder: Path,
    kind: str,
    config: dict[str, Any],
    parents: dict[str, str],
    *,
    known: Mapping[str, dict[str, Any]] | None = None,
) -> Manifest:
    """Write the manifest of the files in ``folder``; from then on it is an artefact.

    ``known``: entries of files that are those of another manifest, and need not be read for their checksums.
    """
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in (MANIFEST, f".{MANIFEST}") and path.suffix != ".lock":
            name = path.relative_to(folder).as_posix()
            entry = (known or {}).get(name)
            files[name] = entry or {"size": path.stat().st_size, "sha256": checksum(path)}
    manifest = Manifest(kind, config, parents, files)
    row = {"fingerprint": manifest.fingerprint, **vars(manifest)}
    aside = folder / f".{MANIFEST}"
    aside.write_text(json.dumps(row, indent=1, ensure_ascii=False), encoding="utf-8")
    aside.rename(folder / MANIFEST)
    return manifest


@contextmanager
def writing(target: Path) -> Iterator[Path]:
    """A new folder beside ``target`` that takes its place when the block ends well.

    Whatever ``target`` was stays readable until then, and for good if the block fails.
    """
    target = target.resolve()
    aside = target.with_name(f".{target.name}.{os.getpid()}.writing")
    with as_bad_input(target):
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
    try:
        with as_bad_input(target):
            yield aside
            for weights in aside.rglob("*.safetensors"):  # which are written for their owner's eyes only
                weights.chmod(aside.stat().st_mode & 0o666)
            put_in_place(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def put_in_place(aside: Path, target: Path) -> None:
    """``aside`` becomes ``target``, at once; what stood there is deleted after it."""
    if target.exists() and not _exchange(aside, target):
        old = target.with_name(f".{target.name}.{os.getpid()}.replaced")
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
        try:
            aside.rename(target)
        except BaseException:
            old.rename(target)
            raise
        aside = old
    elif not target.exists():
        aside.rename(target)
        return
    shutil.rmtree(aside, ignore_errors=True)


def recover(target: Path) -> None:
    """Mend what a killed process left of putting a directory in place; for whoever holds a lock on ``target``."""
    for old in target.parent.glob(f".{glob.escape(target.name)}.*.replaced"):
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.rename(target)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two directories in one step of the kernel's (Linux); False where it cannot."""
    import ctypes

    at_cwd, exchange = -100, 2
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError):
        return False
    return bool(rename(at_cwd, os.fsencode(one), at_cwd, os.fsencode(other), exchange) == 0)


def check_replaceable(target: Path, *kinds: str) -> None:
    """Raise BadInput unless ``target`` is free, empty, or an artefact of one of ``kinds``, whole or not."""
    with as_bad_input(target):
        if not target.exists() or (target.is_dir() and not any(target.iterdir())):
            return
    try:
        if peek(target).kind in kinds:
            return
    except DamagedArtefact:
        if _signed(target, *kinds):
            return
    except ArtefactError:
        pass
    raise BadInput(f"{target} exists and is not a ragqa {' or '.join(kinds)}: choose another place")


def check_alone(folder: Path, own: Collection[str]) -> None:
    """Raise BadInput where ``folder`` holds more than what is called as one of ``own``, and would be lost with it."""
    with as_bad_input(folder):
        there = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
    if others := [name for name in there if name not in own and not name.startswith(".")]:
        raise BadInput(f"{folder} holds {others[0]}, too, which would be deleted: move it, or choose another place")


def is_artefact(folder: Path) -> bool:
    """Whether ``folder`` looks like something ragqa made: such a folder is no document."""
    try:
        return (folder / MANIFEST).is_file() and _signed(folder, *SIGNS)
    except OSError:  # a folder that may not be entered
        return False


def _signed(folder: Path, *kinds: str) -> bool:
    return any((folder / sign).exists() for kind in kinds for sign in SIGNS[kind])


@contextmanager
def as_bad_input(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals (full disk, no permission) into one clear line, for who writes ``path``."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        if _elsewhere(error.filename, path):
            raise BadInput(f"cannot use {error.filename}: {reason}; {path} was not changed") from error
        raise BadInput(f"cannot write {path}: {reason}; nothing was changed") from error
    except Exception as error:
        # What the operating system refuses to safetensors comes as its own kind; it is there only with the weights.
        if not isinstance(error, getattr(sys.modules.get("safetensors"), "SafetensorError", ())):
            raise
        raise BadInput(f"cannot write {path}: {error}; nothing was changed") from error


def _elsewhere(name: object, path: Path) -> bool:
    """Whether the file of an error is known, and neither in ``path`` nor in what is made beside it nor above it."""
    if not isinstance(name, str) or Path(name) in path.parents:
        return False
    return not name.startswith((str(path), str(path.with_name(f".{path.name}."))))


def read(path: Path, kind: str) -> Manifest:
    """The manifest of the artefact at ``path``, every file checked against it.

    Files whose size, times and inode are those of the last full check are not read again.

    Raises:
        ArtefactError: ``path`` is not an artefact of this kind, or of a newer format.
        DamagedArtefact: a file is missing, truncated or changed; the message names it.
    """
    manifest = peek(path)
    if manifest.kind != kind:
        raise ArtefactError(f"{path} is a ragqa {manifest.kind}, not a ragqa {kind}")
    try:
        _check_files(path, manifest)
    except DamagedArtefact:
        if peek(path).fingerprint != manifest.fingerprint:  # replaced while it was being read
            return read(path, kind)
        raise
    return manifest


def peek(path: Path) -> Manifest:
    """The manifest at ``path``, its files unchecked; raises as ``read`` does."""
    file = path / MANIFEST
    try:
        if not path.exists():
            raise ArtefactError(f"{path} does not exist")
        if not file.is_file():
            raise ArtefactError(
                f"{path} is not a ragqa directory (no {MANIFEST}): ragqa index makes an index, ragqa eval a report"
            )
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DamagedArtefact(f"{file} is damaged: it is not text; make the directory again") from error
    try:
        row = json.loads(text)
        stated = row.pop("fingerprint")
        manifest = Manifest(**row)
        newer = int(manifest.format) > FORMAT
        whole = manifest.fingerprint == stated
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise DamagedArtefact(f"{file} is damaged: {error!r}; make the directory again") from error
    if newer:
        raise Mismatch(f"{path} was written by {manifest.created_by} in format {manifest.format}: update ragqa")
    if not whole:
        raise DamagedArtefact(f"{file} is damaged: it is not as it was written; make the directory again")
    return manifest


def vouch(path: Path) -> None:
    """Mark the artefact at ``path`` as checked: whoever has just written it knows that it is whole."""
    _mark(path, _states(path, peek(path)))


@contextmanager
def lending(path: Path, manifest: Manifest) -> Iterator[None]:
    """Files of the artefact at ``path``, which has been read, get or lose links elsewhere within the block.

    That changes their times, and would cost whoever opens it next a full check. So it is vouched for at the end,
    if it is still what it was.
    """
    before = _contents(path, manifest)
    try:
        yield
    finally:
        with suppress(ArtefactError):
            if peek(path).fingerprint == manifest.fingerprint and _contents(path, manifest) == before:
                vouch(path)


def _contents(path: Path, manifest: Manifest) -> dict[str, list[int]]:
    """Size, time of the last write and inode of every file: what no link changes."""
    states = {name: _state(path / name) for name in manifest.files}
    return {name: [size, written, inode] for name, (size, written, _, inode) in states.items()}


def _check_files(path: Path, manifest: Manifest) -> None:
    states = _states(path, manifest)
    with suppress(OSError, UnicodeDecodeError):
        if _stamp(path).read_text() == states:
            return
    for name, expected in manifest.files.items():
        try:
            found = checksum(path / name)
        except OSError as error:
            raise ArtefactError(f"{path / name} cannot be read: {error.strerror}") from error
        if found != expected["sha256"]:
            raise DamagedArtefact(f"{path / name} is damaged: its checksum is not the manifest's; {_mend(manifest)}")
    _mark(path, states)


def _stamp(path: Path) -> Path:
    return cache_dir() / "checked" / hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:24]


def _states(path: Path, manifest: Manifest) -> str:
    """Size, times and inode of every file; raises DamagedArtefact where one has another size than it should."""
    seen = {MANIFEST: _state(path / MANIFEST)}
    for name, expected in manifest.files.items():
        seen[name] = _state(path / name)
        if seen[name][0] != expected["size"]:
            sizes = f"{seen[name][0]} bytes instead of {expected['size']}"
            raise DamagedArtefact(f"{path / name} is damaged: {sizes}; {_mend(manifest)}")
    return json.dumps(seen, sort_keys=True)


def _mend(manifest: Manifest) -> str:
    return "embed it again with --repair" if manifest.kind == "vectors" else "make it again"


def _mark(path: Path, states: str) -> None:
    stamp = _stamp(path)
    with suppress(OSError):  # a cache that cannot be written costs time, nothing else
        stamp.parent.mkdir(parents=True, exist_ok=True)
        aside = stamp.with_suffix(f".{os.getpid()}")
        aside.write_text(states)
        aside.rename(stamp)


def _state(file: Path) -> list[int]:
    try:
        stat = file.stat()
    except FileNotFoundError as error:
        raise DamagedArtefact(f"{file} is missing; make the directory again") from error
    except OSError as error:
        raise ArtefactError(f"{file} cannot be read: {error.strerror}") from error
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
