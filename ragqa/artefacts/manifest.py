"""Manifests, and the checks of artefacts against them.

A directory is an artefact (index, pipeline, encoder, reader …) if its ``manifest.json`` names every other file with its
size and checksum, and itself by its fingerprint.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragqa import __version__
from ragqa.artefacts.files import write_text_whole
from ragqa.artefacts.paths import get_cache_dir
from ragqa.errors import ArtefactError, DamagedArtefact, Mismatch

FORMAT = 1
"""Version of the layout; a newer one is refused."""
MANIFEST = "manifest.json"
CALIBRATION = "calibration.json"
"""File next to a reader's weights from which its confidence is computed."""
VECTORS_ARTEFACT = "dense"
"""Kind of artefact that holds only passage vectors, made by a refresh during training."""
TYPICAL_FILES = {
    "index": ("passages",),
    "pipeline": ("pipeline.json",),
    "encoder": ("model.onnx",),
    "reader": ("model.onnx",),
    "report": ("report.json",),
    "vectors": ("begun.json",),
    VECTORS_ARTEFACT: ("vectors.npy", "codes.npy"),
}
"""Files by which an artefact of each kind is recognised even if its manifest is damaged."""


@dataclass(frozen=True)
class Manifest:
    """Content of a ``manifest.json``."""

    kind: str
    config: dict[str, Any]
    parents: dict[str, str] = field(default_factory=dict)
    """Fingerprints of the artefacts that it was made from, by role (``encoder``, ``corpus`` …)."""
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Relative path to ``size`` (bytes) and ``sha256``."""
    created_by: str = f"ragqa {__version__}"
    format: int = FORMAT

    @property
    def fingerprint(self) -> str:
        """Digest of the manifest, and so of all files: 16 hexadecimal digits."""
        return hashlib.sha256(json.dumps(vars(self), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def origin(self) -> str:
        """Fingerprint of the first version, which updates do not change."""
        return self.parents.get("origin", self.fingerprint)


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(
    folder: Path,
    kind: str,
    config: dict[str, Any],
    parents: dict[str, str],
    *,
    known: Mapping[str, dict[str, Any]] | None = None,
) -> Manifest:
    """Write the manifest of the files in ``folder``, which makes it an artefact.

    Args:
        folder: the directory; its ``*.lock`` files are left out.
        kind: kind of artefact, for example ``index``.
        config: settings that it was made with.
        parents: fingerprints of the artefacts that it was made from, by role.
        known: entries of files that need not be read, by relative path.
    """
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in (MANIFEST, f".{MANIFEST}.writing") and path.suffix != ".lock":
            name = path.relative_to(folder).as_posix()
            entry = (known or {}).get(name)
            files[name] = entry or {"size": path.stat().st_size, "sha256": checksum(path)}
    manifest = Manifest(kind, config, parents, files)
    row = {"fingerprint": manifest.fingerprint, **vars(manifest)}
    write_text_whole(folder / MANIFEST, json.dumps(row, indent=1, ensure_ascii=False))
    return manifest


def read_manifest(path: Path, kind: str) -> Manifest:
    """Return the manifest of the artefact at ``path`` after checking every file against it.

    Files with the same size, times and inode as at the last full check are not read again.

    Raises:
        ArtefactError: ``path`` is not an artefact of this kind.
        Mismatch: a newer version of ragqa wrote it.
        DamagedArtefact: a file is missing, truncated or changed; the message names it.
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
    """Return the manifest at ``path`` without a check of the files; see ``read_manifest``."""
    file = path / MANIFEST
    try:
        if not path.exists():
            raise ArtefactError(f"{path} does not exist")
        if not file.is_file():
            raise ArtefactError(
                f"{path} is not a ragqa directory (no {MANIFEST}): ragqa index makes an index, ragqa eval a report"
            )
        row = json.loads(file.read_text(encoding="utf-8"))
        expected = row.pop("fingerprint")
        manifest = Manifest(**row)
        is_newer = int(manifest.format) > FORMAT
        is_whole = manifest.fingerprint == expected
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DamagedArtefact(f"{file} is damaged: it is not text; build it again") from error
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise DamagedArtefact(f"{file} is damaged: {error!r}; build it again") from error
    if is_newer:
        raise Mismatch(f"{path} was written by {manifest.created_by} in format {manifest.format}: update ragqa")
    if not is_whole:
        raise DamagedArtefact(f"{file} is damaged: its content was changed; build it again")
    return manifest


def is_artefact(folder: Path) -> bool:
    """Tell whether ragqa made ``folder``, so that it is not indexed as a document."""
    try:
        return (folder / MANIFEST).is_file() and has_typical_file(folder, *TYPICAL_FILES)
    except OSError:  # a folder that may not be entered
        return False


def has_typical_file(folder: Path, *kinds: str) -> bool:
    """Tell whether ``folder`` holds a typical file of an artefact of one of ``kinds``."""
    return any((folder / name).exists() for kind in kinds for name in TYPICAL_FILES[kind])


def mark_checked(path: Path) -> None:
    """Record that the artefact at ``path``, which was just written, is whole."""
    _write_stamp(path, _file_states(path, peek_manifest(path)))


@contextmanager
def keep_checked(path: Path, manifest: Manifest) -> Iterator[None]:
    """Keep the record of the last full check while files of an artefact get or lose hard links.

    A link changes a file's times, so that the next reader would check all files again. The artefact is marked as
    checked at the end of the block if its files are still the same.
    """
    before = _link_independent_states(path, manifest)
    try:
        yield
    finally:
        with suppress(ArtefactError):
            is_same = peek_manifest(path).fingerprint == manifest.fingerprint
            if is_same and _link_independent_states(path, manifest) == before:
                mark_checked(path)


def _check_files(path: Path, manifest: Manifest) -> None:
    states = _file_states(path, manifest)
    with suppress(OSError, UnicodeDecodeError):
        if _stamp_file(path).read_text() == states:
            return
    for name, expected in manifest.files.items():
        try:
            actual = checksum(path / name)
        except OSError as error:
            raise ArtefactError(f"{path / name} cannot be read: {error.strerror}") from error
        if actual != expected["sha256"]:
            raise DamagedArtefact(f"{path / name} is damaged: its checksum is not the manifest's; {_remedy(manifest)}")
    _write_stamp(path, states)


def _stamp_file(path: Path) -> Path:
    return get_cache_dir() / "checked" / hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:24]


def _write_stamp(path: Path, states: str) -> None:
    stamp = _stamp_file(path)
    with suppress(OSError):  # a cache that cannot be written costs time, nothing else
        stamp.parent.mkdir(parents=True, exist_ok=True)
        write_text_whole(stamp, states)


def _file_states(path: Path, manifest: Manifest) -> str:
    """Return size, times and inode of every file; raise DamagedArtefact if a size differs."""
    states = {MANIFEST: _file_state(path / MANIFEST)}
    for name, expected in manifest.files.items():
        states[name] = _file_state(path / name)
        if states[name][0] != expected["size"]:
            sizes = f"{states[name][0]} bytes instead of {expected['size']}"
            raise DamagedArtefact(f"{path / name} is damaged: {sizes}; {_remedy(manifest)}")
    return json.dumps(states, sort_keys=True)


def _link_independent_states(path: Path, manifest: Manifest) -> dict[str, list[int]]:
    """Return size, modification time and inode of every file, which links do not change."""
    states = {name: _file_state(path / name) for name in manifest.files}
    return {name: [size, modified, inode] for name, (size, modified, _, inode) in states.items()}


def _file_state(file: Path) -> list[int]:
    try:
        stat = file.stat()
    except FileNotFoundError as error:
        raise DamagedArtefact(f"{file} is missing; build it again") from error
    except OSError as error:
        raise ArtefactError(f"{file} cannot be read: {error.strerror}") from error
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def _remedy(manifest: Manifest) -> str:
    return "embed it again with --repair" if manifest.kind == "vectors" else "make it again"
