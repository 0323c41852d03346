"""Versions of a refreshed index on disk, each made from a snapshot of the weights.

    work/.lock                        lock of the process that trains
    work/.snapshot-00000500.writing/  snapshot being written
    work/snapshot-00000500/           encoder with the weights of step 500
    work/.index-00000500.lock         lock of the process that builds the version
    work/.index-00000500.making/      index being built: begun.json (its inputs), shards/ of vectors, and made/
    work/index-00000500/              manifest.json, and the files of ragqa.retrieval.vectors.mips.build

A rename completes a snapshot or an index. The last two versions and their snapshots stay on disk. On Linux, a version
that is still in use can be deleted, because deleted files stay mapped.
"""

import logging
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from index.version_build import VersionPlan
from ragqa import artefacts
from ragqa.artefacts.sync import sync_tree
from ragqa.errors import ArtefactError, BadInput, DamagedArtefact, Mismatch, RefreshFailed
from ragqa.retrieval.vectors import mips
from ragqa.retrieval.vectors.index_kinds import Effort
from ragqa.retrieval.vectors.mips import Mips
from ragqa.retrieval.vectors.store import open_built_vectors

KEEP = 2
"""Number of the newest versions that stay on disk."""
_NAME = re.compile(r"\.?(snapshot|index)-(\d{8,})(\.making|\.writing)?")
RESUME_HINT = "resume with the version of a checkpoint, or start in an empty directory"
_PROBES = 64
"""Number of vectors that are checked for zeros before an index is used."""
logger = logging.getLogger("ragqa.refresh")


class SavableModel(Protocol):
    """Model that can save its weights, for example a passage tower in training."""

    def save(self, folder: Path, /) -> None:
        """Write the weights into an empty ``folder``, from which ``load_encoder`` reads them."""


class Versions:
    """Index versions and snapshots of a run, managed by the training process.

    Args:
        plan: inputs and folders of the run.

    Raises:
        Mismatch: the passages have changed since the run began.
    """

    def __init__(self, plan: VersionPlan) -> None:
        self.plan = plan
        store = plan.open_passages()
        self._rows, self._deleted = len(store), store.deleted

    def list_steps(self, kind: str) -> list[int]:
        """Return the sorted steps of all complete folders of a kind, ``snapshot`` or ``index``."""
        return sorted(step for _, step, path in self._list_folders() if path.name == f"{kind}-{step:08d}")

    def resume(self, version: int | None, step: int | None = None) -> tuple[int | None, list[int]]:
        """Return the version to continue with, and the steps that still have to be built.

        Damaged versions, and versions that are no longer needed, are deleted.

        Args:
            version: version that a checkpoint names; None without a checkpoint.
            step: training step of the checkpoint, by default ``version``. Versions of later steps are deleted first,
                because training will repeat these steps.

        Returns:
            The newest version, or None if there is none; and the steps in ascending order.

        Raises:
            BadInput: there is no such version.
            ArtefactError: ``version`` is damaged.
            Mismatch: the directory holds indexes of other passages.
        """
        for path in self.plan.work.glob(".snapshot-*.writing"):
            shutil.rmtree(path, ignore_errors=True)
        if version is not None:
            self._delete_later(version, version if step is None else step)
        newest = self._find_newest_whole()
        newer = [step for step in self.list_steps("snapshot") if newest is None or step > newest]
        started = [step for step in newer if self.plan.get_build_folder(step).exists()]
        pending = sorted({*started[:1], *newer[-1:]})
        for finished in self.list_steps("index"):  # a kill after the rename leaves the build folder
            shutil.rmtree(self.plan.get_build_folder(finished), ignore_errors=True)
        # The checkpoint's version is needed again if the run is killed before its next checkpoint.
        self.prune([*pending, *([] if version is None else [version])])
        return newest, pending

    def _delete_later(self, version: int, step: int) -> None:
        versions = self.list_steps("index")
        if version not in versions:
            present = ", ".join(map(str, versions)) or "none"
            problem = f"version {version} is not in {self.plan.work} (it has {present})"
            raise BadInput(f"{problem}: start in an empty directory")
        self._check(artefacts.read_manifest(self.plan.get_index_folder(version), artefacts.VECTORS_ARTEFACT), version)
        for _, other, path in self._list_folders():
            if other > step:
                shutil.rmtree(path)

    def _find_newest_whole(self) -> int | None:
        for step in reversed(self.list_steps("index")):
            try:
                self._check(artefacts.read_manifest(self.plan.get_index_folder(step), artefacts.VECTORS_ARTEFACT), step)
                return step
            except Mismatch:
                raise
            except ArtefactError as error:
                logger.warning("version %d cannot be used and is deleted: %s", step, error)
                shutil.rmtree(self.plan.get_index_folder(step))
        return None

    def write_snapshot(self, model: SavableModel, step: int) -> None:
        """Write the snapshot of ``step`` atomically, unless it exists with the same weights.

        Args:
            model: passage tower in training.
            step: training step of its weights.

        Raises:
            RefreshFailed: the snapshot cannot be written.
            BadInput: there are other weights of this step, or a snapshot or index of a later step.
        """
        target = self.plan.get_snapshot_folder(step)
        if (newest := max((*self.list_steps("snapshot"), *self.list_steps("index")), default=step)) > step:
            raise BadInput(f"{self.plan.work} holds step {newest}, later than {step}: {RESUME_HINT}")
        temporary = target.with_name(f".{target.name}.writing")
        try:
            _save_model(model, temporary)
            if not target.exists():
                temporary.rename(target)
            elif _compute_checksums(temporary) != _compute_checksums(target):
                raise BadInput(f"{target} holds other weights of step {step}: start in an empty directory")
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def open(self, step: int) -> Mips:
        """Check the index of ``step`` and map it into memory.

        The check compares file sizes but no checksums, because training would wait for them. A version that fails is
        deleted.

        Raises:
            ArtefactError: the version is incomplete or damaged, or belongs to other passages.
        """
        try:
            return self._open(self.plan.get_index_folder(step), step)
        except ArtefactError:
            shutil.rmtree(self.plan.get_index_folder(step), ignore_errors=True)
            raise

    def _open(self, folder: Path, step: int) -> Mips:
        manifest, settings = artefacts.peek_manifest(folder), self.plan.settings
        self._check(manifest, step)
        for name, expected in manifest.files.items():
            try:
                size = (folder / name).stat().st_size
            except OSError as error:
                raise DamagedArtefact(f"{folder / name} is damaged: {error.strerror}") from error
            if size != expected["size"]:
                raise DamagedArtefact(f"{folder / name} is damaged: {size} bytes instead of {expected['size']}")
        vectors = open_built_vectors(folder)
        if vectors.shape != (self._rows, manifest.config["width"]):
            raise DamagedArtefact(f"{folder} holds vectors {vectors.shape} for {self._rows} passages")
        if not vectors[np.linspace(0, self._rows - 1, _PROBES).astype(int)].any(axis=1).all():
            raise DamagedArtefact(f"{folder} holds vectors that are zero")
        return mips.open_index(
            folder,
            manifest.config["kind"],
            effort=Effort.from_manifest(manifest.config["search"]),
            device=settings.search_device,
            engine=settings.engine,
            deleted=self._deleted,
        )

    def _check(self, manifest: artefacts.Manifest, step: int) -> None:
        if manifest.kind != artefacts.VECTORS_ARTEFACT or manifest.parents["corpus"] != self.plan.fingerprint:
            problem = f"{self.plan.get_index_folder(step)} is not of the passages of {self.plan.corpus}"
            raise Mismatch(f"{problem}: use another directory")
        if (manifest.config["step"], manifest.config["rows"]) != (step, self._rows):
            raise DamagedArtefact(
                f"{self.plan.get_index_folder(step)} does not hold the {self._rows} passages at step {step}"
            )

    def count_whole_shards(self, step: int) -> int:
        """Return the number of finished shards of the version of ``step`` that is being built."""
        return len(list((self.plan.get_build_folder(step) / "shards").glob("*.json")))

    def prune(self, needed: list[int]) -> None:
        """Delete versions and snapshots, finished or not, except the newest and the needed ones.

        Args:
            needed: training steps of versions to keep, in addition to the newest ``KEEP`` finished versions.
        """
        keep = {*self.list_steps("index")[-KEEP:], *needed}
        for _, step, path in self._list_folders():
            if step not in keep:
                shutil.rmtree(path, ignore_errors=True)

    def _list_folders(self) -> Iterator[tuple[str, int, Path]]:
        """Yield kind, step and path of every folder of a version, finished or not."""
        for path in sorted(self.plan.work.iterdir()):
            if path.is_dir() and (match := _NAME.fullmatch(path.name)):
                yield match[1], int(match[2]), path


def _save_model(model: SavableModel, folder: Path) -> None:
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        model.save(folder)
        sync_tree(folder)
    except Exception as error:  # a full disk raises OSError, SafetensorError, or an exception of the model's own
        raise RefreshFailed(f"cannot write the weights to {folder}: {error}") from error


def _compute_checksums(folder: Path) -> dict[str, str]:
    """Return the checksum of each file but ``config.json``, which names transformers' version."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "config.json"]
    return {path.relative_to(folder).as_posix(): artefacts.checksum(path) for path in files}
