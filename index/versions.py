"""Versions of an index on disk, each made from a snapshot of the weights: whole, or not there.

    work/snapshot-00000500/           weights of step 500, as an encoder that is loaded
    work/.index-00000500.making/      shards/ that are embedded, made/ that is being built
    work/index-00000500/              what ragqa.retrieval.vectors.mips.build writes of the kind, manifest.json

A folder whose name begins with a dot is half-made; renaming it is the last thing that is done to it. The last two
versions are kept with their snapshots. Deleting a version that somebody still searches does no harm on Linux, where
mapped files live on without a name.
"""

import logging
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from index.version_build import Plan
from ragqa import artefacts
from ragqa.artefacts import Manifest
from ragqa.errors import ArtefactError, BadInput, DamagedArtefact, Mismatch, RefreshFailed
from ragqa.retrieval.registry import VECTORS_ARTEFACT
from ragqa.retrieval.vectors import mips
from ragqa.retrieval.vectors.kinds import FlatEngine
from ragqa.retrieval.vectors.mips import Mips
from ragqa.retrieval.vectors.store import open_first

KEPT = 2
"""Versions that stay on disk."""
_NAME = re.compile(r"\.?(snapshot|index)-(\d{8,})(\.making|\.writing)?")
_PROBED = 64
"""Rows that are looked at before an index is taken."""
logger = logging.getLogger("ragqa.refresh")


class Saves(Protocol):
    """A model, of a refresh a passage tower in training."""

    def save(self, folder: Path, /) -> None:
        """Write into an empty ``folder``; of a tower what ``ragqa.runtime.encoder.load_encoder`` takes."""
        ...


class Versions:
    """The versions of a run, as the process that trains sees them: it alone writes snapshots and deletes."""

    def __init__(self, plan: Plan, *, device: str = "cpu", engine: str = FlatEngine.AUTO) -> None:
        """``device`` and ``engine`` search, see ``ragqa.retrieval.vectors.mips.open_index``."""
        self.plan = plan
        store = plan.passages()
        self._rows, self._deleted = len(store), store.deleted
        self._device, self._engine = device, engine

    def steps(self, what: str) -> list[int]:
        """Steps of all that is whole of ``what`` (``snapshot`` or ``index``), rising."""
        return sorted(
            step for name, step, path in self._folders() if path.name == f"{name}-{step:08d}" and name == what
        )

    def take_up(self, at: int | None, upto: int | None = None) -> tuple[int | None, list[int]]:
        """After a kill: the version to go on with, and the steps whose snapshots still wait to be made, rising.

        With ``at``, the version in use when training had come to step ``upto`` (by default that of ``at``), all that
        is later than that step is deleted: those steps will be taken again.
        """
        for path in self.plan.work.glob(".snapshot-*.writing"):
            shutil.rmtree(path, ignore_errors=True)
        if at is not None:
            self._go_back(at, at if upto is None else upto)
        version = self._newest_whole()
        newer = [step for step in self.steps("snapshot") if version is None or step > version]
        begun = [step for step in newer if self.plan.making(step).exists()]
        unmade = sorted({*begun[:1], *newer[-1:]})
        for step in self.steps("index"):  # killed after the rename
            shutil.rmtree(self.plan.making(step), ignore_errors=True)
        self.prune([*unmade, *([] if at is None else [at])])  # a checkpoint names that one
        return version, unmade

    def _go_back(self, at: int, upto: int) -> None:
        if at not in self.steps("index"):
            there = ", ".join(map(str, self.steps("index"))) or "none"
            raise BadInput(f"version {at} is not in {self.plan.work} (there: {there}): begin in an empty directory")
        self._check(artefacts.read_manifest(self.plan.index(at), VECTORS_ARTEFACT), at)
        for _, step, path in self._folders():
            if step > upto:
                shutil.rmtree(path)

    def _newest_whole(self) -> int | None:
        for step in reversed(self.steps("index")):
            try:
                self._check(artefacts.read_manifest(self.plan.index(step), VECTORS_ARTEFACT), step)
                return step
            except Mismatch:
                raise
            except ArtefactError as error:
                logger.warning("version %d is not taken up: %s", step, error)
                shutil.rmtree(self.plan.index(step))
        return None

    def write_snapshot(self, model: Saves, step: int) -> None:
        """Write ``work/snapshot-STEP`` whole or not at all; one that is there with the same weights stays.

        Raises RefreshFailed where it cannot be written, BadInput where other weights of this or a later step are there.
        """
        target = self.plan.snapshot(step)
        later = [other for what in ("snapshot", "index") for other in self.steps(what) if other > step]
        if later:
            raise BadInput(
                f"{self.plan.work} holds step {max(later)}, later than {step}: open it with at=, or an empty one"
            )
        aside = target.with_name(f".{target.name}.writing")
        try:
            _save(model, aside)
            if not target.exists():
                aside.rename(target)
            elif _contents(aside) != _contents(target):
                raise BadInput(f"{target} holds other weights of step {step}: begin in an empty directory")
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def open(self, step: int) -> tuple[Mips, Manifest]:
        """The index of ``step``, mapped, once it is known to be all of it and of these passages.

        Checksums were compared when it was made; to read it all again would keep training waiting. What is
        not whole is deleted, to be made again by the next refresh of this step.

        Raises:
            ArtefactError: it is not.
        """
        try:
            return self._open(step)
        except ArtefactError:
            shutil.rmtree(self.plan.index(step), ignore_errors=True)
            raise

    def _open(self, step: int) -> tuple[Mips, Manifest]:
        folder = self.plan.index(step)
        manifest = artefacts.peek_manifest(folder)
        self._check(manifest, step)
        for name, expected in manifest.files.items():
            if (size := _size(folder / name)) != expected["size"]:
                raise DamagedArtefact(f"{folder / name} is damaged: {size} bytes instead of {expected['size']}")
        vectors = open_first(folder)
        if vectors.shape != (self._rows, manifest.config["width"]):
            raise DamagedArtefact(f"{folder} holds vectors {vectors.shape} for {self._rows} passages")
        if not vectors[np.linspace(0, self._rows - 1, _PROBED).astype(int)].any(axis=1).all():
            raise DamagedArtefact(f"{folder} holds vectors that are zero")
        config = manifest.config
        index = mips.open_index(
            folder,
            config["kind"],
            effort=mips.Effort.from_manifest(config["search"]),
            device=self._device,
            engine=self._engine,
            deleted=self._deleted,
        )
        return index, manifest

    def _check(self, manifest: Manifest, step: int) -> None:
        if manifest.kind != VECTORS_ARTEFACT or manifest.parents["corpus"] != self.plan.fingerprint:
            raise Mismatch(
                f"{self.plan.index(step)} is not of the passages of {self.plan.corpus}: use another directory"
            )
        if (manifest.config["step"], manifest.config["rows"]) != (step, self._rows):
            raise DamagedArtefact(f"{self.plan.index(step)} does not hold the {self._rows} passages at step {step}")

    def whole_shards(self, step: int) -> int:
        """How many shards of a version in the making are there."""
        return len(list((self.plan.making(step) / "shards").glob("*.json")))

    def prune(self, needed: list[int]) -> None:
        """Delete all but the last two versions and those of the steps ``needed``, finished or not."""
        kept = {*self.steps("index")[-KEPT:], *needed}
        for _, step, path in self._folders():
            if step not in kept:
                shutil.rmtree(path, ignore_errors=True)

    def _folders(self) -> Iterator[tuple[str, int, Path]]:
        for path in sorted(self.plan.work.iterdir()):
            if path.is_dir() and (match := _NAME.fullmatch(path.name)):
                yield match[1], int(match[2]), path


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError as error:
        raise DamagedArtefact(f"{file} is damaged: {error.strerror}") from error


def _save(model: Saves, folder: Path) -> None:
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        model.save(folder)
    except Exception as error:  # full disks come as OSError, as SafetensorError, and as what the model makes of them
        raise RefreshFailed(f"cannot write the weights to {folder}: {error}") from error


def _contents(folder: Path) -> dict[str, str]:
    """Checksums of weights and tokenizer; configurations name the version of transformers, which may have changed."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "config.json"]
    return {path.relative_to(folder).as_posix(): artefacts.checksum(path) for path in files}
