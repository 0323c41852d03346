"""A refreshed index is swapped when whole, its cost is logged, and kills at any moment change no byte of it."""

import errno
import gc
import itertools
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, wait_for

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from index import version_build  # noqa: E402
from index.refresh import IndexRefresher, RefreshSettings, open_blocking_refresher, open_ray_refresher  # noqa: E402
from index.version_build import BuildSeconds, LocalEmbedder, VersionPlan, make_version, plan_versions  # noqa: E402
from index.versions import Versions  # noqa: E402
from ragqa import artefacts  # noqa: E402
from ragqa.corpus.store import PassageStore  # noqa: E402
from ragqa.errors import BadInput, DamagedArtefact, Mismatch, RefreshFailed, StaleIndex  # noqa: E402
from ragqa.indexing.build import IndexConfig, build_index  # noqa: E402
from ragqa.indexing.update import update_index  # noqa: E402
from ragqa.runtime.encoder import load_encoder  # noqa: E402
from ragqa.training import precision  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore:unclosed <socket:ResourceWarning")
PASSAGES, ROWS = 300, 40
SETTINGS = RefreshSettings(shard_rows=ROWS)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """The tiny model gains nothing from more threads, and loses much next to other processes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def write_corpus(folder: Path, seed: int = 0, passages: int = PASSAGES) -> Path:
    """Write an index without vectors over passages of random words."""
    folder.mkdir(exist_ok=True)
    words = np.random.default_rng(seed).integers(0, 1100, (passages, 12))
    with (folder / "c.jsonl").open("w") as file:
        for number, row in enumerate(words):
            text = " ".join(f"w{word}" for word in row)
            file.write(json.dumps({"id": str(number), "title": f"w{number}", "text": text}) + "\n")
    build_index([folder / "c.jsonl"], folder / "c.index", IndexConfig(retriever="bm25"))
    return folder / "c.index"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


class Tower:
    """A passage tower whose weights change with ``seed``."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        from transformers import BertModel

        self.folder, self.model = folder, BertModel.from_pretrained(folder)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))

    def save(self, folder: Path) -> None:
        self.model.save_pretrained(folder)
        shutil.copy(self.folder / "tokenizer.json", folder)


@pytest.fixture(scope="module")
def tower(small: Path) -> Callable[[int], Tower]:
    return lambda seed: Tower(small, seed)


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeBuilder:
    """Builds a version when a test says so, in place of the actors."""

    attempts = 3

    def __init__(self, plan: VersionPlan) -> None:
        self.plan, self.embedder = plan, LocalEmbedder(plan.open_passages(), "cpu")
        self.started: list[int] = []
        self.result: BuildSeconds | str | None = None
        self.on_wait: Callable[[], None] = lambda: pytest.fail("training waits for a version that nobody builds")

    def start(self, step: int) -> None:
        self.started.append(step)

    def finish(self, embedding: float = 0.0, building: float = 0.0) -> None:
        make_version(self.plan, self.started[-1], self.embedder)
        self.result = BuildSeconds(embedding, building)

    def wait_for_result(self, timeout: float) -> BuildSeconds | str | None:
        if timeout and self.result is None:
            self.on_wait()
        result, self.result = self.result, None
        return result

    def close(self) -> None:
        pass


class Run:
    """A training run with a fake builder and a fake clock."""

    def __init__(self, corpus: Path, work: Path, max_staleness: int | None = None) -> None:
        plan = plan_versions(corpus, work, replace(SETTINGS, max_staleness=max_staleness))
        self.builder, self.clock, self.work = FakeBuilder(plan), Clock(), work
        self.refresher = IndexRefresher(Versions(plan), lambda: self.builder, version=None, step=None, clock=self.clock)
        self.refresh, self.poll = self.refresher.refresh, self.refresher.poll

    def train(self, first: int, last: int, seconds: float) -> None:
        """Poll and take a step of ``seconds``, from ``first`` up to but without ``last``."""
        for step in range(first, last):
            self.poll(step)
            self.clock.now += seconds


@pytest.fixture
def run(corpus: Path, tmp_path: Path) -> Iterator[Run]:
    made = Run(corpus, tmp_path / "work")
    yield made
    made.refresher.close()


def vectors(work: Path, step: int) -> bytes:
    return (work / f"index-{step:08d}" / "vectors.npy").read_bytes()


def names(work: Path) -> list[str]:
    return sorted(path.name for path in work.iterdir() if path.name != ".lock")


# Swaps


def test_an_index_is_made_from_the_snapshot(corpus: Path, tmp_path: Path, tower) -> None:
    with_seed = tower(1)
    refresher = open_blocking_refresher(corpus, tmp_path / "work", SETTINGS)
    before = torch.random.get_rng_state()
    refresher.refresh(with_seed, 7)
    assert torch.equal(torch.random.get_rng_state(), before)  # a refresh does not change the steps that follow
    index = refresher.poll(7)
    with_seed.save(tmp_path / "encoder")
    encoder = load_encoder(tmp_path / "encoder", precision=precision.choose_precision("cpu"))
    wanted = encoder.encode([p.titled for p in PassageStore.open(corpus / "passages").get(range(PASSAGES))])
    assert np.allclose(np.asarray(index.vectors[0:PASSAGES]), wanted, atol=2e-3)
    assert [r.rows[0] for r in index.search(wanted, 1)] == list(range(PASSAGES))
    manifest = artefacts.read_manifest(tmp_path / "work" / "index-00000007", "dense")
    assert manifest.config["step"] == refresher.version == 7 and manifest.config["rows"] == PASSAGES
    assert manifest.parents == {
        "corpus": artefacts.peek_manifest(corpus).parents["corpus"],
        "encoder": encoder.fingerprint,
    }
    refresher.close()


@pytest.mark.parametrize("kind", ["hnsw", "sq8"])
def test_approximate_kinds_are_searched(corpus: Path, tmp_path: Path, tower, kind: str) -> None:
    pytest.importorskip("faiss", reason="the extra cpu is not installed")
    refresher = open_blocking_refresher(corpus, tmp_path, RefreshSettings(kind=kind))
    refresher.refresh(tower(1), 0)
    index = refresher.poll(0)
    queries = np.asarray(index.vectors[0:20], np.float32)
    assert [r.rows[0] for r in index.search(queries, 3)] == list(range(20))
    assert (tmp_path / "index-00000000" / "faiss.index").is_file()
    refresher.close()


def test_a_kind_without_float16_vectors_is_refreshed_and_resumed(corpus: Path, tmp_path: Path, tower) -> None:
    pytest.importorskip("faiss", reason="the extra cpu is not installed")
    work = tmp_path / "work"
    (tmp_path / "q.jsonl").write_text("".join(f'{{"question": "w{n} w{n + 1}", "answers": []}}\n' for n in range(30)))
    settings = RefreshSettings(kind="ivf-rabitq", recall=0.9, questions=tmp_path / "q.jsonl", shard_rows=ROWS)
    refresher = open_blocking_refresher(corpus, work, settings)
    for step in (0, 5):
        refresher.refresh(tower(step), step)
        index = refresher.poll(step)
    made = work / "index-00000005"
    search = artefacts.read_manifest(made, "dense").config["search"]
    assert (search["wanted"], search["queries"], search["made_up"]) == (0.9, 30, False) and search["recall"] >= 0.9
    assert (made / "codes.npy").is_file() and not (made / "vectors.npy").exists()
    queries = np.asarray(index.vectors[0:20], np.float32)
    found = [r.rows.tolist() for r in index.search(queries, 3)]
    assert [rows[0] for rows in found] == list(range(20))
    refresher.close()
    again = open_blocking_refresher(corpus, work, settings)
    assert again.version == 5 and [r.rows.tolist() for r in again.poll(6).search(queries, 3)] == found
    again.close()
    assert artefacts.is_artefact(made)  # and so is never read as documents
    (made / "manifest.json").write_text("{")
    artefacts.check_replaceable(made, "dense")
    (made / "codes.npy").unlink()
    with pytest.raises(BadInput, match="is not a ragqa dense"):
        artefacts.check_replaceable(made, "dense")


def test_impossible_recall_settings_are_refused_at_once(corpus: Path, tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="the extra cpu is not installed")
    (tmp_path / "none.jsonl").touch()
    with pytest.raises(BadInput, match=r"recall = 1\.5: a share above 0 and up to 1"):
        open_blocking_refresher(corpus, tmp_path, RefreshSettings(kind="sq8", recall=1.5))
    with pytest.raises(BadInput, match=r"no questions in .*none\.jsonl"):
        open_blocking_refresher(corpus, tmp_path, RefreshSettings(kind="sq8", questions=tmp_path / "none.jsonl"))
    # An exact search needs no questions and does not read them.
    open_blocking_refresher(corpus, tmp_path, RefreshSettings(questions=tmp_path / "none.jsonl")).close()


def test_training_has_the_old_index_until_the_new_one_is_whole(run: Run, tower) -> None:
    run.refresh(tower(0), 0)
    run.builder.finish()
    old = run.poll(0)
    run.refresh(tower(1), 5)
    assert run.poll(6) is old and run.refresher.version == 0
    run.builder.finish()
    new = run.poll(7)
    assert new is not old and run.refresher.version == 5 and run.poll(8) is new
    assert len(old.search(np.ones((1, old.width), np.float32), 3)[0]) == 3  # who holds it still can


def test_the_newest_snapshot_waits_until_the_current_build_is_finished(run: Run, tower) -> None:
    run.refresh(tower(0), 0)
    run.builder.finish()
    run.poll(0)
    for step in (10, 20, 30):
        run.refresh(tower(step), step)
    assert run.builder.started == [0, 10]
    assert names(run.work) == ["index-00000000", "snapshot-00000000", "snapshot-00000010", "snapshot-00000030"]
    run.builder.finish()
    run.poll(31)
    assert run.refresher.version == 10 and run.builder.started == [0, 10, 30]
    run.builder.finish()
    run.poll(32)
    assert run.refresher.version == 30
    assert names(run.work) == [f"{what}-000000{step}" for what in ("index", "snapshot") for step in (10, 30)]


def test_the_log_of_a_swap_agrees_with_hand_computation(run: Run, tower, caplog: pytest.LogCaptureFixture) -> None:
    class Slow:
        def save(self, folder: Path) -> None:
            tower(1).save(folder)
            run.clock.now += 2.0

    caplog.set_level(logging.INFO, "ragqa.refresh")
    run.refresh(tower(0), 0)
    run.builder.finish(embedding=4, building=1)
    run.train(0, 10, seconds=1.0)  # 9 steps of 1 s without a refresh; one begins within the tenth
    run.refresh(Slow(), 10)
    run.train(10, 15, seconds=1.5)  # 4 steps during the build, which ends within the fifth
    run.builder.finish(embedding=6, building=0.5)
    run.poll(15)
    first, second = run.refresher.log
    assert first.as_dict() == {
        "step": 0,
        "version": 0,
        "staleness_before": None,
        "staleness": 0,
        "embedding": 4,
        "building": 1,
        "stood": 0.0,
        "slowdown": None,
    }
    assert second.as_dict() == {
        "step": 15,
        "version": 10,
        "staleness_before": 15,
        "staleness": 5,
        "embedding": 6,
        "building": 0.5,
        "stood": 2.0,
        "slowdown": 1.5,
    }
    assert caplog.messages[-1] == (
        "step 15: index of step 10 (5 steps stale, 15 steps stale before); embedded in 6.0 s, built in 0.5 s; "
        "training stood still for 2.00 s; steps took 1.50 times as long meanwhile"
    )


def test_training_waits_when_the_index_is_too_old(
    corpus: Path, tmp_path: Path, tower, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger("ragqa.refresh")
    for name, value in (("disabled", False), ("propagate", True)):  # libraries of other tests set up logging anew
        monkeypatch.setattr(logger, name, value)
    caplog.set_level(logging.WARNING, logger.name)
    run = Run(corpus, tmp_path, max_staleness=10)
    run.refresh(tower(0), 0)
    run.builder.finish()
    run.poll(0)
    run.refresh(tower(1), 5)
    run.poll(10)  # 10 steps stale: still within
    assert run.refresher.version == 0 and not caplog.records

    def finish_after_7_seconds() -> None:
        run.clock.now += 7.0
        run.builder.finish()

    run.builder.on_wait = finish_after_7_seconds
    run.poll(11)
    assert run.refresher.version == 5 and run.refresher.log[-1].stood == 7.0
    assert caplog.messages == [
        "step 11: the index is 11 steps old, more than 10: training waits for version 5",
    ]
    run.poll(15)
    with pytest.raises(StaleIndex, match=r"step 16: .* 11 steps old, more than 10, and none is being built: call ref"):
        run.poll(16)
    run.refresher.close()


def test_training_waits_past_a_version_that_is_too_old_itself(corpus: Path, tmp_path: Path, tower) -> None:
    run = Run(corpus, tmp_path, max_staleness=10)
    for step in (0, 50):
        run.refresh(tower(step), step)
    run.builder.on_wait = run.builder.finish
    run.poll(55)
    assert run.builder.started == [0, 50] and [swap.version for swap in run.refresher.log] == [50]
    run.refresher.close()


def test_training_waits_for_the_first_index(run: Run, tower) -> None:
    with pytest.raises(StaleIndex, match=r"there is no index yet, .* call refresh"):
        run.poll(0)
    run.refresh(tower(0), 0)
    run.builder.on_wait = run.builder.finish
    assert len(run.poll(0)) == PASSAGES


def test_steps_must_not_go_back(run: Run, tower) -> None:
    run.refresh(tower(0), 10)
    run.builder.finish()
    run.poll(10)
    run.refresh(tower(0), 10)  # after a checkpoint of this very step
    assert run.builder.started == [10]
    same = tower(0)

    def by_another_version(folder: Path) -> None:
        tower(0).save(folder)
        file = folder / "config.json"
        file.write_text(file.read_text() + "\n")

    same.save = by_another_version
    run.refresh(same, 10)
    with pytest.raises(BadInput, match="other weights of step 10"):
        run.refresh(tower(1), 10)
    with pytest.raises(BadInput, match="holds step 10, later than 9"):
        run.refresh(tower(1), 9)
    with pytest.raises(BadInput, match="of step 10, later than 9"):
        run.poll(9)
    assert names(run.work) == ["index-00000010", "snapshot-00000010"]


# Failures


def test_a_version_is_given_up_after_three_attempts_without_progress(run: Run, tower) -> None:
    run.refresh(tower(0), 0)
    run.builder.finish()
    old = run.poll(0)
    run.refresh(tower(1), 5)
    for _ in range(2):
        run.builder.result = "the disk is full"
        assert run.poll(6) is old
    assert run.builder.started == [0, 5, 5, 5]
    shards = run.work / ".index-00000005.making" / "shards"
    shards.mkdir(parents=True)
    (shards / "0000000000.json").touch()  # an attempt that finished a shard is progress
    run.builder.result = "an actor died"
    assert run.poll(7) is old
    run.builder.result = "the disk is full"
    assert run.poll(8) is old
    run.builder.result = "the disk is full"
    with pytest.raises(RefreshFailed, match=r"weights of step 5: the disk is full; the previous index stays"):
        run.poll(8)
    assert run.poll(9) is old  # raised once
    run.refresh(tower(1), 10)
    assert names(run.work) == ["index-00000000", "snapshot-00000000", "snapshot-00000010"]
    run.builder.finish()
    run.poll(11)
    assert run.refresher.version == 10


@pytest.fixture
def trained(corpus: Path, tmp_path: Path, tower) -> Iterator[IndexRefresher]:
    """A blocking refresher over ``tmp_path/work`` with version 0."""
    refresher = open_blocking_refresher(corpus, tmp_path / "work", SETTINGS)
    refresher.refresh(tower(0), 0)
    refresher.poll(0)
    yield refresher
    refresher.close()


def test_a_full_disk_is_reported_and_leaves_the_old_index(trained, tmp_path: Path, tower, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    old = trained.poll(1)
    with monkeypatch.context() as patched:
        patched.setattr(version_build, "embed_shard", full)
        trained.refresh(tower(1), 5)
    with pytest.raises(RefreshFailed, match=r"weights of step 5: cannot write .*No space left on device") as error:
        trained.poll(5)
    assert "\n" not in str(error.value) and trained.poll(6) is old
    broken = tower(1)
    broken.save = full
    with pytest.raises(RefreshFailed, match=r"cannot write the weights .*No space left"):
        trained.refresh(broken, 7)
    trained.refresh(tower(1), 8)
    assert trained.poll(8) is not old
    assert names(tmp_path / "work") == [f"{what}-0000000{step}" for what in ("index", "snapshot") for step in (0, 8)]


def test_broken_weights_make_no_index(trained, tmp_path: Path, tower) -> None:
    old = trained.poll(1)
    for step, value, said in ((5, float("nan"), "is not finite"), (6, 0.0, "is zero")):
        broken = tower(1)
        with torch.no_grad():
            broken.model.encoder.layer[1].output.LayerNorm.weight.fill_(value)
            broken.model.encoder.layer[1].output.LayerNorm.bias.fill_(value)
        trained.refresh(broken, step)
        with pytest.raises(RefreshFailed, match=f"the vector of passage 0 {said}"):
            trained.poll(step)
        assert trained.poll(step) is old
    assert "index-00000005" not in names(tmp_path / "work")


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


def zeros(folder: Path) -> None:
    np.save(folder / "vectors.npy", np.zeros_like(np.load(folder / "vectors.npy")))


def half(folder: Path) -> None:
    whole = (folder / "vectors.npy").read_bytes()
    (folder / "vectors.npy").write_bytes(whole[: len(whole) // 2])


def fewer(folder: Path) -> None:
    manifest = artefacts.peek_manifest(folder)
    np.save(folder / "vectors.npy", np.load(folder / "vectors.npy")[:-1])
    artefacts.write_manifest(folder, "dense", manifest.config, manifest.parents)


def of_others(folder: Path) -> None:
    manifest = artefacts.peek_manifest(folder)
    artefacts.write_manifest(folder, "dense", manifest.config, {**manifest.parents, "corpus": "0" * 64})


@pytest.mark.parametrize("spoil", [zeros, half, fewer, of_others])
def test_damaged_versions_are_never_used(run: Run, tower, spoil: Callable[[Path], None]) -> None:
    run.refresh(tower(0), 0)
    run.builder.finish()
    old = run.poll(0)
    run.refresh(tower(1), 1)
    run.builder.finish()
    spoil(run.work / "index-00000001")
    with pytest.raises((DamagedArtefact, Mismatch), match="index-00000001"):
        run.poll(1)
    assert run.poll(2) is old and run.refresher.version == 0
    run.refresh(tower(1), 1)  # of the same step: what was found damaged is made anew
    run.builder.finish()
    assert len(run.poll(3)) == PASSAGES and run.refresher.version == 1 and np.asarray(run.poll(3).vectors[0:1]).any()


def test_a_damaged_version_is_not_one_of_the_two_that_stay(run: Run, tower) -> None:
    for step in (0, 1):
        run.refresh(tower(step), step)
        run.builder.finish()
        run.poll(step)
    run.refresh(tower(2), 2)
    run.builder.finish()
    (run.work / "index-00000002" / "vectors.npy").unlink()
    with pytest.raises(DamagedArtefact, match=r"vectors\.npy is damaged: No such file"):
        run.poll(2)
    run.refresh(tower(3), 3)
    assert names(run.work) == [
        "index-00000000",
        "index-00000001",
        *[f"snapshot-0000000{step}" for step in (0, 1, 3)],
    ]


# Kills


class Killed(BaseException):
    """Stops everything but ``finally`` blocks, like SIGKILL."""


def stop_at(monkeypatch: pytest.MonkeyPatch, where: object, name: str, calls: int = 0, *, after: bool = False) -> None:
    """Raise Killed in the call of ``name`` after ``calls`` others, before or after its work."""
    real, left = getattr(where, name), [calls]

    def dies(*args: object, **options: object) -> object:
        left[0] -= 1
        if left[0] >= 0 or after:
            result = real(*args, **options)
        if left[0] < 0:
            raise Killed
        return result

    monkeypatch.setattr(where, name, dies)


MOMENTS = {
    "embedding": lambda patch: stop_at(patch, version_build, "embed_shard", 3),
    "building": lambda patch: stop_at(patch, version_build.mips, "build"),
    "vectors": lambda patch: stop_at(patch, version_build.mips, "write_rows", after=True),
    "sealing": lambda patch: stop_at(patch, version_build.artefacts, "write_manifest", after=True),
    "renaming": lambda patch: stop_at(patch, version_build.artefacts, "swap_into_place"),
    "renamed": lambda patch: stop_at(patch, version_build.artefacts, "swap_into_place", after=True),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_while_building_changes_no_byte(
    moment: str, corpus: Path, tmp_path: Path, tower, trained, monkeypatch
) -> None:
    work, whole = tmp_path / "work", [0]
    with monkeypatch.context() as patched:
        MOMENTS[moment](patched)
        with pytest.raises(Killed):
            trained.refresh(tower(0), 5)
    trained.close()
    with monkeypatch.context() as patched:
        real = version_build.embed_shard
        patched.setattr(version_build, "embed_shard", lambda *args: (whole.append(args[3].first), real(*args)))
        again = open_blocking_refresher(corpus, work, SETTINGS)
    again.poll(5)
    assert again.version == 5
    assert whole[1:] == (list(range(3 * ROWS, PASSAGES, ROWS)) if moment == "embedding" else [])
    assert vectors(work, 5) == vectors(work, 0)
    assert names(work) == [f"{what}-0000000{step}" for what in ("index", "snapshot") for step in (0, 5)]
    again.close()


def test_snapshots_are_written_atomically(corpus: Path, tmp_path: Path, tower, trained) -> None:
    class Dying:
        def save(self, folder: Path) -> None:
            tower(1).save(folder)
            (folder / "tokenizer.json").unlink()
            raise Killed

    with pytest.raises(Killed):
        trained.refresh(Dying(), 5)
    (tmp_path / "work" / ".snapshot-00000005.writing").mkdir()  # as SIGKILL leaves it
    trained.close()
    again = open_blocking_refresher(corpus, tmp_path / "work", SETTINGS)
    again.poll(6)
    assert again.version == 0 and names(tmp_path / "work") == ["index-00000000", "snapshot-00000000"]
    again.close()


SCRIPT = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
from index import refresh
from index.refresh import {function} as open_refresher
from tests.index.test_refresh import Tower
if "{address}":
    import ray
    ray.init(address="{address}", log_to_driver=False, configure_logging=False)
refresher = open_refresher(Path(sys.argv[1]), Path(sys.argv[2]), refresh.RefreshSettings(shard_rows=40))
refresher.refresh(Tower(Path(sys.argv[3]), 0), 5)
while not (Path(sys.argv[2]) / "index-00000005").exists():
    pass
os.kill(os.getpid(), signal.SIGKILL)  # after the rename, before the poll that swaps
"""


def kill_before_the_swap(corpus: Path, work: Path, small: Path, **names: str) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    command = [sys.executable, "-c", SCRIPT.format(**names), str(corpus), str(work), str(small)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.thorough
def test_training_resumes_after_a_kill_between_rename_and_swap(
    corpus: Path, tmp_path: Path, small: Path, tower, trained
) -> None:
    trained.close()
    work = tmp_path / "work"
    kill_before_the_swap(corpus, work, small, function="open_blocking_refresher", address="")
    again = open_blocking_refresher(corpus, work, SETTINGS)
    again.poll(5)
    assert again.version == 5 and vectors(work, 5) == vectors(work, 0) and again.log == []
    again.close()


def test_a_reopened_refresher_continues_with_its_version(corpus: Path, tmp_path: Path, tower, trained) -> None:
    with pytest.raises(BadInput, match="another process is at work"):
        open_blocking_refresher(corpus, tmp_path / "work")
    for step in (5, 10):
        trained.refresh(tower(step), step)
        trained.poll(step)
    before = np.array(trained.poll(10).vectors[0:PASSAGES])
    trained.close()
    again = open_blocking_refresher(corpus, tmp_path / "work", SETTINGS)
    assert again.version == 10 and np.array_equal(again.poll(11).vectors[0:PASSAGES], before)
    again.close()
    with pytest.raises(BadInput, match=r"version 0 is not in .* \(it has 5, 10\)"):
        open_blocking_refresher(corpus, tmp_path / "work", version=0)
    back = open_blocking_refresher(corpus, tmp_path / "work", SETTINGS, version=5)
    assert back.version == 5 and not np.array_equal(back.poll(6).vectors[0:PASSAGES], before)
    assert names(tmp_path / "work") == ["index-00000005", "snapshot-00000005"]
    back.refresh(tower(10), 10)
    assert np.array_equal(back.poll(10).vectors[0:PASSAGES], before)
    back.close()


def test_a_version_started_before_the_checkpoint_is_finished(corpus: Path, tmp_path: Path, tower) -> None:
    """A checkpoint of step 12 names version 5; version 10 was being built, step 15 will come again."""
    plan = plan_versions(corpus, tmp_path / "work", SETTINGS)
    versions = Versions(plan)
    for step in (5, 10, 15):
        versions.write_snapshot(tower(step), step)
    make_version(plan, 5, LocalEmbedder(plan.open_passages(), "cpu"))
    assert versions.resume(5, 12) == (5, [10])
    assert names(plan.work) == ["index-00000005", "snapshot-00000005", "snapshot-00000010"]
    assert versions.resume(5) == (5, [])
    assert names(plan.work) == ["index-00000005", "snapshot-00000005"]


def test_the_version_of_a_checkpoint_stays_with_two_later_ones(corpus: Path, tmp_path: Path, tower) -> None:
    """Two versions were built between checkpoint and kill; a second kill must find the first again."""
    plan = plan_versions(corpus, tmp_path / "work", SETTINGS)
    versions = Versions(plan)
    for step in (5, 10, 15):
        versions.write_snapshot(tower(step), step)
        make_version(plan, step, LocalEmbedder(plan.open_passages(), "cpu"))
    for _ in range(2):
        assert versions.resume(5, 16) == (15, [])
        assert versions.list_steps("index") == [5, 10, 15]


def test_a_damaged_version_is_built_again_from_its_snapshot(corpus: Path, tmp_path: Path, tower, trained) -> None:
    work = tmp_path / "work"
    trained.refresh(tower(0), 5)
    trained.close()
    file = work / "index-00000005" / "vectors.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    again = open_blocking_refresher(corpus, work, SETTINGS)
    again.poll(5)
    assert again.version == 5 and vectors(work, 5) == vectors(work, 0)
    again.close()


def test_a_damaged_shard_is_embedded_again(corpus: Path, tmp_path: Path, tower, trained, monkeypatch) -> None:
    work, real = tmp_path / "work", version_build.embed_shard
    written: list[Path] = []

    def flips(*args: object) -> None:
        real(*args)
        file = args[2] / args[3].vectors
        if file not in written and args[3].first == ROWS:
            file.write_bytes(file.read_bytes()[:-1] + b"?")
        written.append(file)

    monkeypatch.setattr(version_build, "embed_shard", flips)
    trained.refresh(tower(0), 5)
    trained.poll(5)
    assert len(written) == len({*written}) + 1 and vectors(work, 5) == vectors(work, 0)


# On Ray


@pytest.fixture(scope="module")
def ray() -> Iterator[object]:
    """Start Ray for all tests of this file."""
    ray = pytest.importorskip("ray", reason="the extra ray is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        quiet = {"include_dashboard": False, "log_to_driver": False, "configure_logging": False}
        ray.init(address="local", num_cpus=4, **quiet)  # not a cluster that happens to run here
        yield ray
        ray.shutdown()
    gc.collect()  # sockets that Ray leaves open are found here, and not in another test


@pytest.fixture(scope="module")
def beside(ray, corpus: Path, tower, tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexRefresher]:
    """Open a refresher with two actors, and build version 0 undisturbed."""
    work = tmp_path_factory.mktemp("refreshed")
    refresher = open_ray_refresher(corpus, work, SETTINGS, workers=2)
    refresher.refresh(tower(0), 0)
    refresher.poll(0)
    yield refresher
    refresher.close()


@pytest.fixture(scope="module")
def undisturbed(beside: IndexRefresher) -> bytes:
    """Return the vectors of that version."""
    return vectors(directory(beside), 0)


def directory(refresher: IndexRefresher) -> Path:
    return refresher._versions.plan.work


def actors(refresher: IndexRefresher) -> tuple[object, list[object]]:
    """Return the coordinator and the encoding actors."""
    builder = refresher._builder
    return builder._coordinator, builder._encoders


def in_actor(ray, actor, act: Callable[..., object]) -> object:
    return ray.get(actor.__ray_call__.options(max_task_retries=-1).remote(act))  # once it is restarted


def recording(file: Path, fault: str | None = None, waits_for: Path | None = None) -> Callable[[object], None]:
    """Return a patch for an actor: it notes every shard in ``file``, or fails; it starts after ``waits_for`` exists."""

    def patch(_: object) -> None:
        from index import version_build

        real = version_build.__dict__.setdefault("real", version_build.embed_shard)

        def records(*args: object) -> object:
            if fault:
                raise OSError(28, fault)
            while waits_for and not waits_for.exists():
                time.sleep(0.01)
            with file.open("a") as out:
                out.write(f"{args[3].first}\n")
            return real(*args)

        version_build.embed_shard = records

    return patch


def hanging(module: str, name: str, mark: Path, calls: int = 0, *, after: bool = False) -> Callable[[object], int]:
    """Return a patch for an actor: a call of ``name`` after ``calls`` others writes ``mark`` and hangs."""

    def patch(_: object) -> int:
        import importlib

        where, left = importlib.import_module(module), [calls]
        real = getattr(where, name)

        def hangs(*args: object, **options: object) -> object:
            left[0] -= 1
            if left[0] >= 0 or after:
                result = real(*args, **options)
            if left[0] < 0:
                mark.touch()
                time.sleep(600)
            return result

        setattr(where, name, hangs)
        return os.getpid()

    return patch


def swapped(refresher: IndexRefresher, step: int, version: int) -> Callable[[], bool]:
    """Return a condition: a poll returns this version."""
    return lambda: refresher.poll(step) is not None and refresher.version == version


def test_ray_builds_the_same_version_as_the_blocking_refresher(beside, corpus: Path, tmp_path: Path, tower) -> None:
    blocking = open_blocking_refresher(corpus, tmp_path, SETTINGS)
    blocking.refresh(tower(0), 0)
    index = blocking.poll(0)
    blocking.close()
    made = directory(beside) / "index-00000000"
    assert np.allclose(np.load(made / "vectors.npy"), np.asarray(index.vectors[0:PASSAGES]), atol=2e-3)
    assert (
        artefacts.read_manifest(made, "dense").parents == artefacts.peek_manifest(tmp_path / "index-00000000").parents
    )


MARKED = {
    "embedding": ("index.version_build", "embed_shard", 2, False),
    "building": ("ragqa.retrieval.vectors.mips", "build", 0, False),
    "renaming": ("ragqa.artefacts", "swap_into_place", 0, False),
    "renamed": ("ragqa.artefacts", "swap_into_place", 0, True),
}


@pytest.mark.parametrize("moment", MARKED)
def test_killed_actors_change_no_byte(moment: str, ray, beside, undisturbed: bytes, tmp_path: Path, tower) -> None:
    work, mark, made = directory(beside), tmp_path / "mark", tmp_path / "made"
    last = beside.version
    step = last + 10
    coordinator, encoders = actors(beside)
    module, name, calls, after = MARKED[moment]
    waits_for_mark = mark if moment == "embedding" else None  # so that the other actor gets its third shard and hangs
    for encoder, waits_for in zip(encoders, (None, waits_for_mark), strict=True):
        in_actor(ray, encoder, recording(made, waits_for=waits_for))
    hangs = encoders[0] if moment == "embedding" else coordinator
    pids = {in_actor(ray, hangs, hanging(module, name, mark, calls, after=after))}
    pids.add(in_actor(ray, coordinator, lambda _: os.getpid()))
    beside.refresh(tower(0), step)
    wait_for(mark.exists)
    shards = 7 if moment == "embedding" else 8
    wait_for(lambda: beside._versions.count_whole_shards(step) == shards)
    old = beside.poll(step + 1)
    assert beside.version == last
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_for(swapped(beside, step + 2, step))
    assert beside.poll(step + 3) is not old
    assert vectors(work, step) == undisturbed
    noted = made.read_text().split()
    assert len(noted) == len({*noted})  # whole shards were not embedded again
    assert names(work) == [f"{what}-{kept:08d}" for what in ("index", "snapshot") for kept in (last, step)]


def test_repeated_failures_are_reported(ray, beside, undisturbed: bytes, tmp_path: Path, tower) -> None:
    class Incomplete:
        def save(self, folder: Path) -> None:
            tower(1).model.save_pretrained(folder)

    last = beside.version
    old = beside.poll(last)
    beside.refresh(Incomplete(), last + 1)
    with pytest.raises(RefreshFailed, match=f"weights of step {last + 1}: .*tokenizer.json"):
        wait_for(swapped(beside, last + 2, last + 1))
    for encoder in actors(beside)[1]:
        in_actor(ray, encoder, recording(tmp_path / "made", "No space left on device"))
    beside.refresh(tower(0), last + 3)
    with pytest.raises(RefreshFailed, match=f"weights of step {last + 3}: .*No space left on device"):
        wait_for(swapped(beside, last + 4, last + 3))
    assert beside.poll(last + 5) is old and beside.version == last
    for encoder in actors(beside)[1]:
        in_actor(ray, encoder, recording(tmp_path / "made"))
    beside.refresh(tower(0), last + 10)
    wait_for(swapped(beside, last + 11, last + 10))
    assert vectors(directory(beside), last + 10) == undisturbed


@pytest.mark.slow
def test_training_killed_on_ray_resumes_the_same_versions(
    ray, corpus: Path, tmp_path: Path, small: Path, undisturbed: bytes
) -> None:
    """Kill once between rename and swap, and once with all actors while a shard is embedded."""
    work, address = tmp_path / "work", ray.get_runtime_context().gcs_address
    kill_before_the_swap(corpus, work, small, function="open_ray_refresher", address=address)
    again = open_ray_refresher(corpus, work, SETTINGS)
    assert again.version == 5 and len(again.poll(6)) == PASSAGES and vectors(work, 5) == undisturbed
    made, encoder = tmp_path / "made", actors(again)[1][0]
    in_actor(ray, encoder, recording(made))
    in_actor(ray, encoder, hanging("index.version_build", "embed_shard", tmp_path / "mark", 3))
    again.refresh(Tower(small, 0), 10)
    wait_for((tmp_path / "mark").exists)
    again.close()
    noted = made.read_text().split()
    resumed = open_ray_refresher(corpus, work, replace(SETTINGS, max_staleness=3))
    in_actor(ray, actors(resumed)[1][0], recording(made))
    resumed.poll(11)  # waits: the index is 6 steps old
    assert resumed.version == 10 and vectors(work, 10) == undisturbed
    assert noted == ["0", "40", "80"] and not {*noted} & {*made.read_text().split()[3:]}
    resumed.close()


def kill_at_random(ray, refresher: IndexRefresher, model: Tower, rng: np.random.Generator) -> None:
    """Kill some of the actors after some of the shards."""
    step, versions = refresher.version + 1, refresher._versions
    coordinator, encoders = actors(refresher)
    pids = [in_actor(ray, actor, lambda _: os.getpid()) for actor in (coordinator, *encoders)]
    refresher.refresh(model, step)
    after = int(rng.integers(9))
    wait_for(lambda: versions.count_whole_shards(step) >= after or step in versions.list_steps("index"))
    for pid in rng.choice(pids, int(rng.integers(1, 4)), replace=False):
        os.kill(int(pid), signal.SIGKILL)
    wait_for(swapped(refresher, step, step))


@pytest.mark.slow
def test_actors_killed_at_twenty_random_moments_change_no_byte(ray, beside, undisturbed: bytes, tower) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        kill_at_random(ray, beside, tower(0), rng)
        assert vectors(directory(beside), beside.version) == undisturbed


def train(refresher: IndexRefresher, model: Tower, swaps: int) -> float:
    """Train first without and then always with a refresh under way; return the seconds with one."""
    optimizer = torch.optim.SGD(model.model.parameters(), lr=1e-4)
    texts = torch.randint(5, 1100, (64, 32), generator=torch.Generator().manual_seed(0))
    before, began = len(refresher.log), 0.0
    for step in itertools.count(1):
        newer = len(refresher.log) - before
        index = refresher.poll(step)
        if newer == swaps:
            return time.perf_counter() - began
        if step == 50:
            began = time.perf_counter()
        if step == 50 or len(refresher.log) - before > newer:
            refresher.refresh(model, step)
        queries = model.model(texts).last_hidden_state.mean(1)
        index.search(queries[:8].detach().numpy(), 5)
        queries.square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.slow
def test_training_hardly_stands_still_during_refreshes(ray, tmp_path: Path, tower) -> None:
    """It stands still for less than 2 % of the time, with refreshes on the same cores all the time."""
    corpus = write_corpus(tmp_path / "corpus", passages=12_000)
    refresher = open_ray_refresher(corpus, tmp_path / "work")
    model = tower(0)
    refresher.refresh(model, 0)
    refresher.poll(0)
    seconds = train(refresher, model, swaps=3)
    swaps = refresher.log[1:]
    refresher.close()
    assert len(swaps) == 3 and all(swap.staleness > 0 and swap.slowdown is not None for swap in swaps)
    assert sum(swap.stood for swap in swaps) < 0.02 * seconds, (swaps, seconds)
