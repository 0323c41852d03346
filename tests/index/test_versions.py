"""Failures, damage and updates while an index is refreshed leave the previous index in use."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from index import version_build  # noqa: E402
from index.refresh import open_blocking_refresher  # noqa: E402
from ragqa import artefacts  # noqa: E402
from ragqa.corpus.store import PassageStore  # noqa: E402
from ragqa.errors import DamagedArtefact, Mismatch, RefreshFailed  # noqa: E402
from ragqa.indexing.update import update_index  # noqa: E402
from tests.helpers.refresh import (  # noqa: E402
    PASSAGES,
    SETTINGS,
    Run,
    list_names,
    write_corpus,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_version_is_given_up_after_three_attempts_without_progress(training: Run, tower) -> None:
    training.refresh(tower(0), 0)
    training.builder.finish()
    old = training.poll(0)
    training.refresh(tower(1), 5)
    for _ in range(2):
        training.builder.result = "the disk is full"
        assert training.poll(6) is old
    assert training.builder.started == [0, 5, 5, 5]
    shards = training.work / ".index-00000005.making" / "shards"
    shards.mkdir(parents=True)
    (shards / "0000000000.json").touch()  # an attempt that finished a shard is progress
    training.builder.result = "an actor died"
    assert training.poll(7) is old
    training.builder.result = "the disk is full"
    assert training.poll(8) is old
    training.builder.result = "the disk is full"
    with pytest.raises(RefreshFailed, match=r"weights of step 5: the disk is full; the previous index stays"):
        training.poll(8)
    assert training.poll(9) is old  # raised once
    training.refresh(tower(1), 10)
    assert list_names(training.work) == ["index-00000000", "snapshot-00000000", "snapshot-00000010"]
    training.builder.finish()
    training.poll(11)
    assert training.refresher.version == 10


def test_a_full_disk_is_reported_and_leaves_the_old_index(trained, tmp_path: Path, tower, monkeypatch) -> None:
    def fill_disk(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    old = trained.poll(1)
    with monkeypatch.context() as patched:
        patched.setattr(version_build, "embed_shard", fill_disk)
        trained.refresh(tower(1), 5)
    with pytest.raises(RefreshFailed, match=r"weights of step 5: cannot write .*No space left on device") as error:
        trained.poll(5)
    assert "\n" not in str(error.value) and trained.poll(6) is old
    broken = tower(1)
    broken.save = fill_disk
    with pytest.raises(RefreshFailed, match=r"cannot write the weights .*No space left"):
        trained.refresh(broken, 7)
    trained.refresh(tower(1), 8)
    assert trained.poll(8) is not old
    assert list_names(tmp_path / "work") == [
        f"{what}-0000000{step}" for what in ("index", "snapshot") for step in (0, 8)
    ]


def test_broken_weights_make_no_index(trained, tmp_path: Path, tower) -> None:
    old = trained.poll(1)
    for step, value, problem in ((5, float("nan"), "is not finite"), (6, 0.0, "is zero")):
        broken = tower(1)
        with torch.no_grad():
            broken.model.encoder.layer[1].output.LayerNorm.weight.fill_(value)
            broken.model.encoder.layer[1].output.LayerNorm.bias.fill_(value)
        trained.refresh(broken, step)
        with pytest.raises(RefreshFailed, match=f"the vector of passage 0 {problem}"):
            trained.poll(step)
        assert trained.poll(step) is old
    assert "index-00000005" not in list_names(tmp_path / "work")


def test_a_damaged_or_changed_corpus_is_reported(tmp_path: Path, tower) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    refresher = open_blocking_refresher(corpus, tmp_path / "work", SETTINGS)
    refresher.refresh(tower(0), 0)
    old = refresher.poll(0)
    file = corpus / "passages" / "00000.arrow"
    whole = file.read_bytes()
    file.write_bytes(whole[:2000] + bytes([whole[2000] ^ 1]) + whole[2001:])
    refresher.refresh(tower(1), 1)
    with pytest.raises(RefreshFailed, match=r"00000\.arrow is damaged"):
        refresher.poll(1)
    file.write_bytes(whole)
    (tmp_path / "new.txt").write_text("w1 w2 w3")
    update_index(corpus, add=[tmp_path / "new.txt"])
    refresher.refresh(tower(1), 2)
    with pytest.raises(RefreshFailed, match="have changed since training began"):
        refresher.poll(2)
    assert refresher.poll(3) is old
    refresher.close()
    with pytest.raises(Mismatch, match="is not of the passages of"):
        open_blocking_refresher(corpus, tmp_path / "work")


def test_deleted_passages_are_never_returned(tmp_path: Path, tower) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    update_index(corpus, delete=["7"])
    deleted = PassageStore.open(corpus / "passages").deleted
    refresher = open_blocking_refresher(corpus, tmp_path / "work")
    refresher.refresh(tower(0), 0)
    index = refresher.poll(0)
    found = index.search(np.asarray(index.vectors[deleted], np.float32), PASSAGES)[0]
    assert len(deleted) == 1 and len(index) == PASSAGES and sorted({*range(PASSAGES)} - {*found.rows}) == list(deleted)
    refresher.close()


def write_zeros(folder: Path) -> None:
    np.save(folder / "vectors.npy", np.zeros_like(np.load(folder / "vectors.npy")))


def truncate_vectors(folder: Path) -> None:
    whole = (folder / "vectors.npy").read_bytes()
    (folder / "vectors.npy").write_bytes(whole[: len(whole) // 2])


def drop_a_vector(folder: Path) -> None:
    manifest = artefacts.peek_manifest(folder)
    np.save(folder / "vectors.npy", np.load(folder / "vectors.npy")[:-1])
    artefacts.write_manifest(folder, "dense", manifest.config, manifest.parents)


def name_another_corpus(folder: Path) -> None:
    manifest = artefacts.peek_manifest(folder)
    artefacts.write_manifest(folder, "dense", manifest.config, {**manifest.parents, "corpus": "0" * 64})


@pytest.mark.parametrize("spoil", [write_zeros, truncate_vectors, drop_a_vector, name_another_corpus])
def test_damaged_versions_are_never_used(training: Run, tower, spoil: Callable[[Path], None]) -> None:
    training.refresh(tower(0), 0)
    training.builder.finish()
    old = training.poll(0)
    training.refresh(tower(1), 1)
    training.builder.finish()
    spoil(training.work / "index-00000001")
    with pytest.raises((DamagedArtefact, Mismatch), match="index-00000001"):
        training.poll(1)
    assert training.poll(2) is old and training.refresher.version == 0
    training.refresh(tower(1), 1)  # the damaged version of step 1 is built again
    training.builder.finish()
    assert (
        len(training.poll(3)) == PASSAGES
        and training.refresher.version == 1
        and np.asarray(training.poll(3).vectors[0:1]).any()
    )


def test_a_damaged_version_is_not_one_of_the_two_that_stay(training: Run, tower) -> None:
    for step in (0, 1):
        training.refresh(tower(step), step)
        training.builder.finish()
        training.poll(step)
    training.refresh(tower(2), 2)
    training.builder.finish()
    (training.work / "index-00000002" / "vectors.npy").unlink()
    with pytest.raises(DamagedArtefact, match=r"vectors\.npy is damaged: No such file"):
        training.poll(2)
    training.refresh(tower(3), 3)
    assert list_names(training.work) == [
        "index-00000000",
        "index-00000001",
        *[f"snapshot-0000000{step}" for step in (0, 1, 3)],
    ]
