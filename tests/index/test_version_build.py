"""Kills at any moment of a refresh change no byte of the index."""

from pathlib import Path

import numpy as np
import pytest
from conftest import Killed

pytest.importorskip("torch", reason="the extra torch is not installed")

from index import version_build
from index.refresh import open_blocking_refresher
from index.version_build import LocalEmbedder, make_version, plan_versions
from index.versions import Versions
from ragqa.errors import BadInput
from tests.helpers.refresh import (
    PASSAGES,
    ROWS,
    SETTINGS,
    kill_before_the_swap,
    list_names,
    read_vectors,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def stop_at(monkeypatch: pytest.MonkeyPatch, where: object, name: str, calls: int = 0, *, after: bool = False) -> None:
    """Raise Killed in the call of ``name`` after ``calls`` others, before or after its work."""
    real, remaining = getattr(where, name), [calls]

    def run_or_die(*args: object, **options: object) -> object:
        remaining[0] -= 1
        if remaining[0] >= 0 or after:
            result = real(*args, **options)
        if remaining[0] < 0:
            raise Killed
        return result

    monkeypatch.setattr(where, name, run_or_die)


MOMENTS = {
    "embedding": lambda patch: stop_at(patch, version_build, "embed_shard", 3),
    "building": lambda patch: stop_at(patch, version_build.mips, "build"),
    "vectors": lambda patch: stop_at(patch, version_build.mips, "write_rows", after=True),
    "sealing": lambda patch: stop_at(patch, version_build.artefacts, "write_manifest", after=True),
    "renaming": lambda patch: stop_at(patch, version_build.artefacts, "swap_into_place"),
    "after renaming": lambda patch: stop_at(patch, version_build.artefacts, "swap_into_place", after=True),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_while_building_changes_no_byte(
    moment: str, random_corpus: Path, tmp_path: Path, tower, trained, monkeypatch
) -> None:
    work, embedded = tmp_path / "work", [0]
    with monkeypatch.context() as patched:
        MOMENTS[moment](patched)
        with pytest.raises(Killed):
            trained.refresh(tower(0), 5)
    trained.close()
    with monkeypatch.context() as patched:
        real = version_build.embed_shard
        patched.setattr(version_build, "embed_shard", lambda *args: (embedded.append(args[3].first), real(*args)))
        reopened = open_blocking_refresher(random_corpus, work, SETTINGS)
    reopened.poll(5)
    assert reopened.version == 5
    assert embedded[1:] == (list(range(3 * ROWS, PASSAGES, ROWS)) if moment == "embedding" else [])
    assert read_vectors(work, 5) == read_vectors(work, 0)
    assert list_names(work) == [f"{what}-0000000{step}" for what in ("index", "snapshot") for step in (0, 5)]
    reopened.close()


def test_snapshots_are_written_atomically(random_corpus: Path, tmp_path: Path, tower, trained) -> None:
    class DyingTower:
        def save(self, folder: Path) -> None:
            tower(1).save(folder)
            (folder / "tokenizer.json").unlink()
            raise Killed

    with pytest.raises(Killed):
        trained.refresh(DyingTower(), 5)
    (tmp_path / "work" / ".snapshot-00000005.writing").mkdir()  # a remnant of a killed process
    trained.close()
    reopened = open_blocking_refresher(random_corpus, tmp_path / "work", SETTINGS)
    reopened.poll(6)
    assert reopened.version == 0 and list_names(tmp_path / "work") == ["index-00000000", "snapshot-00000000"]
    reopened.close()


@pytest.mark.thorough
def test_training_resumes_after_a_kill_between_rename_and_swap(
    random_corpus: Path, tmp_path: Path, small: Path, tower, trained
) -> None:
    trained.close()
    work = tmp_path / "work"
    kill_before_the_swap(random_corpus, work, small, function="open_blocking_refresher", address="")
    reopened = open_blocking_refresher(random_corpus, work, SETTINGS)
    reopened.poll(5)
    assert reopened.version == 5 and read_vectors(work, 5) == read_vectors(work, 0) and reopened.log == []
    reopened.close()


def test_a_reopened_refresher_continues_with_its_version(random_corpus: Path, tmp_path: Path, tower, trained) -> None:
    with pytest.raises(BadInput, match="another process is at work"):
        open_blocking_refresher(random_corpus, tmp_path / "work")
    for step in (5, 10):
        trained.refresh(tower(step), step)
        trained.poll(step)
    before = np.array(trained.poll(10).vectors[0:PASSAGES])
    trained.close()
    reopened = open_blocking_refresher(random_corpus, tmp_path / "work", SETTINGS)
    assert reopened.version == 10 and np.array_equal(reopened.poll(11).vectors[0:PASSAGES], before)
    reopened.close()
    with pytest.raises(BadInput, match=r"version 0 is not in .* \(it has 5, 10\)"):
        open_blocking_refresher(random_corpus, tmp_path / "work", version=0)
    older = open_blocking_refresher(random_corpus, tmp_path / "work", SETTINGS, version=5)
    assert older.version == 5 and not np.array_equal(older.poll(6).vectors[0:PASSAGES], before)
    assert list_names(tmp_path / "work") == ["index-00000005", "snapshot-00000005"]
    older.refresh(tower(10), 10)
    assert np.array_equal(older.poll(10).vectors[0:PASSAGES], before)
    older.close()


def test_a_version_started_before_the_checkpoint_is_finished(random_corpus: Path, tmp_path: Path, tower) -> None:
    """The checkpoint of step 12 names version 5. Version 10 was being built; step 15 is repeated."""
    plan = plan_versions(random_corpus, tmp_path / "work", SETTINGS)
    versions = Versions(plan)
    for step in (5, 10, 15):
        versions.write_snapshot(tower(step), step)
    make_version(plan, 5, LocalEmbedder(plan.open_passages(), "cpu"))
    assert versions.resume(5, 12) == (5, [10])
    assert list_names(plan.work) == ["index-00000005", "snapshot-00000005", "snapshot-00000010"]
    assert versions.resume(5) == (5, [])
    assert list_names(plan.work) == ["index-00000005", "snapshot-00000005"]


def test_the_version_of_a_checkpoint_stays_with_two_later_ones(random_corpus: Path, tmp_path: Path, tower) -> None:
    """Two versions were built after the checkpoint, whose own version is needed after a second kill."""
    plan = plan_versions(random_corpus, tmp_path / "work", SETTINGS)
    versions = Versions(plan)
    for step in (5, 10, 15):
        versions.write_snapshot(tower(step), step)
        make_version(plan, step, LocalEmbedder(plan.open_passages(), "cpu"))
    for _ in range(2):
        assert versions.resume(5, 16) == (15, [])
        assert versions.list_steps("index") == [5, 10, 15]


def test_a_damaged_version_is_built_again_from_its_snapshot(
    random_corpus: Path, tmp_path: Path, tower, trained
) -> None:
    work = tmp_path / "work"
    trained.refresh(tower(0), 5)
    trained.close()
    file = work / "index-00000005" / "vectors.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    reopened = open_blocking_refresher(random_corpus, work, SETTINGS)
    reopened.poll(5)
    assert reopened.version == 5 and read_vectors(work, 5) == read_vectors(work, 0)
    reopened.close()


def test_a_damaged_shard_is_embedded_again(random_corpus: Path, tmp_path: Path, tower, trained, monkeypatch) -> None:
    work, real = tmp_path / "work", version_build.embed_shard
    written: list[Path] = []

    def flip_a_byte(*args: object) -> None:
        real(*args)
        file = args[2] / args[3].vectors_file
        if file not in written and args[3].first == ROWS:
            file.write_bytes(file.read_bytes()[:-1] + b"?")
        written.append(file)

    monkeypatch.setattr(version_build, "embed_shard", flip_a_byte)
    trained.refresh(tower(0), 5)
    trained.poll(5)
    assert len(written) == len({*written}) + 1 and read_vectors(work, 5) == read_vectors(work, 0)
