"""Write manifests, and check artefacts against them.

An artefact is a directory (index, pipeline, encoder, reader …) with a ``manifest.json``, which has a fingerprint of its
own content and the sizes and checksums of all other files.
"""

import hashlib
import json
import os
import shlex
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG
from typing import Any

from ragqa import __version__
from ragqa.artefacts.files import write_text_whole
from ragqa.artefacts.paths import get_cache_dir, resolve_input_file
from ragqa.artefacts.validation import MAX_MANIFEST_BYTES, check_entries, find_flaw
from ragqa.errors import ArtefactError, DamagedArtefact, Mismatch

FORMAT = 1
"""Version of the layout of artefacts; ragqa refuses to open newer versions."""
MANIFEST = "manifest.json"
MODEL, LATER_MODEL = "model.onnx", "later.onnx"
"""Files of an export: its graph or, for a reader in two parts, the graphs of its first and its later layers."""
CALIBRATION = "calibration.json"
"""File with the calibration of a reader's confidence, in the directory of the reader."""
VECTORS_ARTEFACT = "dense"
"""Kind of an artefact with passage vectors but no passages; a refresh of the index during training makes it."""
TYPICAL_FILES = {
    "index": ("passages",),
    "pipeline": ("pipeline.json",),
    "encoder": (MODEL,),
    "reader": (MODEL,),
    "report": ("report.json",),
    "vectors": ("begun.json",),
    VECTORS_ARTEFACT: ("vectors.npy", "codes.npy"),
}
"""Files that identify each kind of artefact even if the manifest is damaged."""


@dataclass(frozen=True)
class Manifest:
    """Content of a ``manifest.json``."""

    kind: str
    """Kind of the artefact, for example ``index``."""
    config: dict[str, Any]
    """Settings with which the artefact was made."""
    parents: dict[str, str] = field(default_factory=dict)
    """Fingerprints of the artefacts from which this artefact was made, by role (``encoder``, ``corpus`` …)."""
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Size in bytes (``size``) and SHA-256 (``sha256``) of each file, by relative path."""
    created_by: str = f"ragqa {__version__}"
    """Name and version of the program that made the artefact."""
    format: int = FORMAT
    """Version of the layout (``FORMAT``)."""

    @property
    def fingerprint(self) -> str:
        """Digest of the manifest, including the checksums of all files: 16 hexadecimal digits."""
        return hashlib.sha256(json.dumps(vars(self), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def origin(self) -> str:
        """Fingerprint of the artefact before its first update; updates do not change it."""
        return self.parents.get("origin", self.fingerprint)


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits.

    Raises:
        BadInput, OSError: as for ``resolve_input_file``.
    """
    with resolve_input_file(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(
    folder: Path,
    kind: str,
    config: dict[str, Any],
    parents: dict[str, str],
    *,
    known: Mapping[str, dict[str, Any]] | None = None,
    user_files: Collection[str] = (),
) -> Manifest:
    """Make a directory an artefact: write and return the manifest of its files.

    Args:
        folder: the directory; its ``*.lock`` files are not part of the artefact.
        kind: kind of artefact, for example ``index``.
        config: settings with which the artefact was made.
        parents: fingerprints of the artefacts from which it was made, by role.
        known: known entries of ``Manifest.files``, by relative path; these files are not read.
        user_files: relative paths of the user's files, which are not part of the artefact.

    Raises:
        OSError: a file cannot be read or written.
    """
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in (MANIFEST, f".{MANIFEST}.writing") and path.suffix != ".lock":
            name = path.relative_to(folder).as_posix()
            if name in user_files:
                continue
            entry = (known or {}).get(name)
            files[name] = entry or {"size": path.stat().st_size, "sha256": checksum(path)}
    manifest = Manifest(kind, config, parents, files)
    row = {"fingerprint": manifest.fingerprint, **vars(manifest)}
    write_text_whole(folder / MANIFEST, json.dumps(row, indent=1, ensure_ascii=False))
    return manifest


def read_manifest(path: Path, kind: str) -> Manifest:
    """Return the manifest of the artefact at ``path`` after checking every file against it.

    If all files have the same sizes, times and inodes as at the last full check, their contents are not read again.

    Args:
        path: directory of the artefact.
        kind: expected kind of artefact, for example ``index``.

    Raises:
        ArtefactError: ``path`` is not an artefact of this kind, or a file cannot be read.
        Mismatch: a newer version of ragqa wrote the artefact.
        DamagedArtefact: a file is missing or changed, or is not a regular file; the message names it.
    """
    manifest = peek_manifest(path)
    if manifest.kind != kind:
        raise ArtefactError(f"{path} is a ragqa {manifest.kind}, not a ragqa {kind}")
    try:
        _check_files(path, manifest)
    except DamagedArtefact:
        if peek_manifest(path).fingerprint != manifest.fingerprint:  # the artefact was replaced during the check
            return read_manifest(path, kind)
        raise
    return manifest


def peek_manifest(path: Path) -> Manifest:
    """Return the manifest of the artefact at ``path`` without checking its files.

    Raises:
        ArtefactError: ``path`` is not an artefact or cannot be read.
        Mismatch: a newer version of ragqa wrote the artefact.
        DamagedArtefact: the manifest is damaged.
    """
    file = path / MANIFEST
    try:
        if not path.exists():
            raise ArtefactError(f"{path} does not exist")
        if not file.is_file():
            command = f"ragqa index {shlex.quote(str(path))} --out {shlex.quote(f'{path.resolve().stem}.index')}"
            raise ArtefactError(
                f"{path} is not a ragqa directory (no {MANIFEST}); if it has documents, make an index of it: {command}"
            )
        if file.stat().st_size > MAX_MANIFEST_BYTES:
            raise DamagedArtefact(f"{file} is damaged: it is larger than any manifest; build it again")
        row = json.loads(resolve_input_file(file).read_text(encoding="utf-8"))
        expected = row.pop("fingerprint")
        manifest = Manifest(**row)
        is_newer = int(manifest.format) > FORMAT
        is_whole = manifest.fingerprint == expected
        flaw = find_flaw(vars(manifest)) if is_whole and not is_newer else None
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DamagedArtefact(f"{file} is damaged: it is not text; build it again") from error
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, OverflowError) as error:
        raise DamagedArtefact(f"{file} is damaged: {error!r}; build it again") from error
    if is_newer:
        raise Mismatch(f"{path} was written by {manifest.created_by} in format {manifest.format}: update ragqa")
    if not is_whole:
        raise DamagedArtefact(f"{file} is damaged: its content was changed; build it again")
    if flaw:
        raise DamagedArtefact(f"{file} is damaged: {flaw}; build it again")
    return manifest


def is_artefact(folder: Path) -> bool:
    """Return True if ``folder`` has a manifest and a file of ``TYPICAL_FILES``.

    Such a folder is not indexed as documents.
    """
    try:
        return (folder / MANIFEST).is_file() and has_typical_file(folder, *TYPICAL_FILES)
    except OSError:  # no permission to enter the folder
        return False


def list_checked_files(path: Path) -> set[str]:
    """Return the relative paths of an artefact's files at its last check, without the manifest.

    The set is empty if there is no readable record of a check.
    """
    try:
        return set(json.loads(_get_stamp_file(path).read_text())) - {MANIFEST}
    except (OSError, ValueError, TypeError):
        return set()


def has_typical_file(folder: Path, *kinds: str) -> bool:
    """Return True if ``folder`` holds a typical file of an artefact of one of ``kinds``."""
    return any((folder / name).exists() for kind in kinds for name in TYPICAL_FILES[kind])


def mark_checked(path: Path) -> None:
    """Record that the artefact at ``path`` is whole, so that its files need not be read again.

    Raises:
        ArtefactError, Mismatch: as for ``read_manifest``.
        DamagedArtefact: the manifest is damaged, or a file is missing or has another size than in the manifest.
    """
    _write_stamp(path, _read_file_states(path, peek_manifest(path)))


@contextmanager
def keep_checked(path: Path, manifest: Manifest) -> Iterator[None]:
    """Keep the record of the last full check while files of an artefact get or lose hard links.

    A new or deleted link changes the times of a file, so ``read_manifest`` would read all files again. At the end of
    the block, the artefact is marked as checked if nothing except links changed.

    Args:
        path: directory of the artefact.
        manifest: its manifest, from ``read_manifest``.

    Raises:
        ArtefactError, DamagedArtefact: a file is missing or cannot be read.
    """
    before = _read_link_independent_states(path, manifest)
    try:
        yield
    finally:
        with suppress(ArtefactError):
            is_same = peek_manifest(path).fingerprint == manifest.fingerprint
            if is_same and _read_link_independent_states(path, manifest) == before:
                mark_checked(path)


def _check_files(path: Path, manifest: Manifest) -> None:
    states = _read_file_states(path, manifest)
    with suppress(OSError, UnicodeDecodeError):
        if _get_stamp_file(path).read_text() == states:
            return
    for name, expected in manifest.files.items():
        try:
            actual = checksum(path / name)
        except OSError as error:
            raise ArtefactError(f"{path / name} cannot be read: {error.strerror}") from error
        if actual != expected["sha256"]:
            raise DamagedArtefact(
                f"{path / name} is damaged: its checksum is not the manifest's; {_get_remedy(manifest.kind)}"
            )
    _write_stamp(path, states)


def _get_stamp_file(path: Path) -> Path:
    """Return the cache file that records the last full check of the artefact at ``path``."""
    return get_cache_dir() / "checked" / hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:24]


def _write_stamp(path: Path, states: str) -> None:
    stamp = _get_stamp_file(path)
    with suppress(OSError):  # without a record, the next check takes longer
        stamp.parent.mkdir(parents=True, exist_ok=True)
        write_text_whole(stamp, states, is_durable=False)


def _read_file_states(path: Path, manifest: Manifest) -> str:
    check_entries(path)
    states = {MANIFEST: _read_file_state(path / MANIFEST, manifest.kind)}
    for name, expected in manifest.files.items():
        states[name] = _read_file_state(path / name, manifest.kind)
        if states[name][0] != expected["size"]:
            sizes = f"{states[name][0]} bytes instead of {expected['size']}"
            raise DamagedArtefact(f"{path / name} is damaged: {sizes}; {_get_remedy(manifest.kind)}")
    return json.dumps(states, sort_keys=True)


def _read_link_independent_states(path: Path, manifest: Manifest) -> dict[str, list[int]]:
    """Return each file's size, modification time and inode, which hard links do not change."""
    states = {name: _read_file_state(path / name, manifest.kind) for name in manifest.files}
    return {name: [size, modified, inode] for name, (size, modified, _, inode) in states.items()}


def _read_file_state(file: Path, kind: str) -> list[int]:
    """Return the size (bytes), modification and change time (nanoseconds) and inode of a file."""
    try:
        stat = file.stat()
    except FileNotFoundError as error:
        raise DamagedArtefact(f"{file} is missing; {_get_remedy(kind)}") from error
    except OSError as error:
        raise ArtefactError(f"{file} cannot be read: {error.strerror}") from error
    if not S_ISREG(stat.st_mode):
        raise DamagedArtefact(f"{file} is not a file; {_get_remedy(kind)}")
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def _get_remedy(kind: str) -> str:
    return "embed it again with --repair" if kind == "vectors" else f"make the {kind} again"
