"""The index that follows the weights in training: when it is swapped, what it costs, and what is killed on the way.

Whatever dies, the index is that of an undisturbed run, byte for byte, and training has the old one until then.
"""

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
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, wait_for

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from index import version_build  # noqa: E402
from index.refresh import IndexRefresher, blocking_refresher, ray_refresher  # noqa: E402
from index.version_build import Encoding, Made, Plan, make_version  # noqa: E402
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


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """The tiny model gains nothing by more, and loses much where others are at work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def write_corpus(folder: Path, seed: int = 0, passages: int = PASSAGES) -> Path:
    """An index without vectors, over passages of random words."""
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
        drawn = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=drawn))

    def save(self, folder: Path) -> None:
        self.model.save_pretrained(folder)
        shutil.copy(self.folder / "tokenizer.json", folder)


@pytest.fixture(scope="module")
def tower(small: Path) -> Callable[[int], Tower]:
    return lambda seed: Tower(small, seed)


class Clock:
    """Seconds that pass when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Held:
    """Makes a version when a test says so, and so stands for the actors."""

    attempts = 3

    def __init__(self, plan: Plan) -> None:
        self.plan, self.encoding = plan, Encoding(plan.passages(), "cpu")
        self.begun: list[int] = []
        self.outcome: Made | str | None = None
        self.meanwhile: Callable[[], None] = lambda: pytest.fail("training waits for what nobody makes")

    def begin(self, step: int) -> None:
        self.begun.append(step)

    def finish(self, embedding: float = 0.0, building: float = 0.0) -> None:
        make_version(self.plan, self.begun[-1], self.encoding)
        self.outcome = Made(embedding, building)

    def result(self, timeout: float) -> Made | str | None:
        if timeout and self.outcome is None:
            self.meanwhile()
        outcome, self.outcome = self.outcome, None
        return outcome

    def close(self) -> None:
        pass


class Run:
    """A training run with a held maker and a held clock."""

    def __init__(self, corpus: Path, work: Path, max_staleness: int | None = None) -> None:
        plan = Plan.of(corpus, work, "flat", ROWS, 0.95, None)
        self.maker, self.clock, self.work = Held(plan), Clock(), work
        self.refresher = IndexRefresher(
            Versions(plan), lambda: self.maker, max_staleness=max_staleness, at=None, clock=self.clock
        )
        self.refresh, self.poll = self.refresher.refresh, self.refresher.poll

    def steps(self, first: int, last: int, seconds: float) -> None:
        """Train: poll, then a step of so many seconds, ``last`` excluded."""
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


# When an index is swapped


def test_an_index_is_that_of_the_snapshot(corpus: Path, tmp_path: Path, tower) -> None:
    with_seed = tower(1)
    refresher = blocking_refresher(corpus, tmp_path / "work", shard_rows=ROWS)
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
def test_other_kinds_of_index(corpus: Path, tmp_path: Path, tower, kind: str) -> None:
    pytest.importorskip("faiss", reason="the extra cpu is not installed")
    refresher = blocking_refresher(corpus, tmp_path, kind=kind)
    refresher.refresh(tower(1), 0)
    index = refresher.poll(0)
    queries = np.asarray(index.vectors[0:20], np.float32)
    assert [r.rows[0] for r in index.search(queries, 3)] == list(range(20))
    assert (tmp_path / "index-00000000" / "faiss.index").is_file()
    refresher.close()


def test_a_kind_without_float16_from_refresh_to_refresh(corpus: Path, tmp_path: Path, tower) -> None:
    pytest.importorskip("faiss", reason="the extra cpu is not installed")
    work = tmp_path / "work"
    (tmp_path / "q.jsonl").write_text("".join(f'{{"question": "w{n} w{n + 1}", "answers": []}}\n' for n in range(30)))
    options = {"kind": "ivf-rabitq", "recall": 0.9, "questions": tmp_path / "q.jsonl", "shard_rows": ROWS}
    refresher = blocking_refresher(corpus, work, **options)
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
    again = blocking_refresher(corpus, work, **options)
    assert again.version == 5 and [r.rows.tolist() for r in again.poll(6).search(queries, 3)] == found
    again.close()
    assert artefacts.is_artefact(made)  # and so is never read as documents
    (made / "manifest.json").write_text("{")
    artefacts.check_replaceable(made, "dense")
    (made / "codes.npy").unlink()
    with pytest.raises(BadInput, match="is not a ragqa dense"):
        artefacts.check_replaceable(made, "dense")


def test_a_wish_for_recall_that_cannot_be_met_is_refused_at_once(corpus: Path, tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="the extra cpu is not installed")
    (tmp_path / "none.jsonl").touch()
    with pytest.raises(BadInput, match=r"recall = 1\.5: a share above 0 and up to 1"):
        blocking_refresher(corpus, tmp_path, kind="sq8", recall=1.5)
    with pytest.raises(BadInput, match=r"no questions in .*none\.jsonl"):
        blocking_refresher(corpus, tmp_path, kind="sq8", questions=tmp_path / "none.jsonl")
    # An exact search has no use for questions, and does not read them.
    blocking_refresher(corpus, tmp_path, questions=tmp_path / "none.jsonl").close()


def test_training_has_the_old_index_until_the_new_one_is_whole(run: Run, tower) -> None:
    run.refresh(tower(0), 0)
    run.maker.finish()
    old = run.poll(0)
    run.refresh(tower(1), 5)
    assert run.poll(6) is old and run.refresher.version == 0
    run.maker.finish()
    new = run.poll(7)
    assert new is not old and run.refresher.version == 5 and run.poll(8) is new
    assert len(old.search(np.ones((1, old.width), np.float32), 3)[0]) == 3  # who holds it still can


def test_the_newest_snapshot_wins_and_the_one_in_the_making_is_made_to_its_end(run: Run, tower) -> None:
    run.refresh(tower(0), 0)
    run.maker.finish()
    run.poll(0)
    for step in (10, 20, 30):
        run.refresh(tower(step), step)
    assert run.maker.begun == [0, 10]
    assert names(run.work) == ["index-00000000", "snapshot-00000000", "snapshot-00000010", "snapshot-00000030"]
    run.maker.finish()
    run.poll(31)
    assert run.refresher.version == 10 and run.maker.begun == [0, 10, 30]
    run.maker.finish()
    run.poll(32)
    assert run.refresher.version == 30
    assert names(run.work) == [f"{what}-000000{step}" for what in ("index", "snapshot") for step in (10, 30)]


def test_the_log_of_a_swap_by_hand(run: Run, tower, caplog: pytest.LogCaptureFixture) -> None:
    class Slow:
        def save(self, folder: Path) -> None:
            tower(1).save(folder)
            run.clock.now += 2.0

    caplog.set_level(logging.INFO, "ragqa.refresh")
    run.refresh(tower(0), 0)
    run.maker.finish(embedding=4, building=1)
    run.steps(0, 10, seconds=1.0)  # 9 steps of 1 s alone; the tenth has a refresh in it and counts as neither
    run.refresh(Slow(), 10)
    run.steps(10, 15, seconds=1.5)  # 4 steps beside the making; when the fifth ends it is finished
    run.maker.finish(embedding=6, building=0.5)
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


def test_training_waits_when_the_bound_is_passed(
    corpus: Path, tmp_path: Path, tower, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger("ragqa.refresh")
    for name, value in (("disabled", False), ("propagate", True)):  # libraries of other tests set up logging anew
        monkeypatch.setattr(logger, name, value)
    caplog.set_level(logging.WARNING, logger.name)
    run = Run(corpus, tmp_path, max_staleness=10)
    run.refresh(tower(0), 0)
    run.maker.finish()
    run.poll(0)
    run.refresh(tower(1), 5)
    run.poll(10)  # 10 steps stale: still within
    assert run.refresher.version == 0 and not caplog.records

    def meanwhile() -> None:
        run.clock.now += 7.0
        run.maker.finish()

    run.maker.meanwhile = meanwhile
    run.poll(11)
    assert run.refresher.version == 5 and run.refresher.log[-1].stood == 7.0
    assert caplog.messages == [
        "step 11: the index is 11 steps old, more than 10: training waits for version 5",
    ]
    run.poll(15)
    with pytest.raises(StaleIndex, match=r"step 16: .* 11 steps old, more than 10, and none is being made: call ref"):
        run.poll(16)
    run.refresher.close()


def test_a_version_that_is_too_old_itself_is_waited_past(corpus: Path, tmp_path: Path, tower) -> None:
    run = Run(corpus, tmp_path, max_staleness=10)
    for step in (0, 50):
        run.refresh(tower(step), step)
    run.maker.meanwhile = run.maker.finish
    run.poll(55)
    assert run.maker.begun == [0, 50] and [swap.version for swap in run.refresher.log] == [50]
    run.refresher.close()


def test_without_an_index_training_waits_for_the_first(run: Run, tower) -> None:
    with pytest.raises(StaleIndex, match=r"there is no index yet, .* call refresh"):
        run.poll(0)
    run.refresh(tower(0), 0)
    run.maker.meanwhile = run.maker.finish
    assert len(run.poll(0)) == PASSAGES


def test_steps_that_do_not_count_up(run: Run, tower) -> None:
    run.refresh(tower(0), 10)
    run.maker.finish()
    run.poll(10)
    run.refresh(tower(0), 10)  # after a checkpoint of this very step
    assert run.maker.begun == [10]
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


# What fails


def test_a_version_is_begun_again_and_given_up_after_three_vain_attempts(run: Run, tower) -> None:
    run.refresh(tower(0), 0)
    run.maker.finish()
    old = run.poll(0)
    run.refresh(tower(1), 5)
    for _ in range(2):
        run.maker.outcome = "the disk is full"
        assert run.poll(6) is old
    assert run.maker.begun == [0, 5, 5, 5]
    shards = run.work / ".index-00000005.making" / "shards"
    shards.mkdir(parents=True)
    (shards / "0000000000.json").touch()  # an attempt that finished a shard is not in vain
    run.maker.outcome = "an actor died"
    assert run.poll(7) is old
    run.maker.outcome = "the disk is full"
    assert run.poll(8) is old
    run.maker.outcome = "the disk is full"
    with pytest.raises(RefreshFailed, match=r"weights of step 5: the disk is full; the index before it stays"):
        run.poll(8)
    assert run.poll(9) is old  # said once
    run.refresh(tower(1), 10)
    assert names(run.work) == ["index-00000000", "snapshot-00000000", "snapshot-00000010"]
    run.maker.finish()
    run.poll(11)
    assert run.refresher.version == 10


@pytest.fixture
def trained(corpus: Path, tmp_path: Path, tower) -> Iterator[IndexRefresher]:
    """A blocking refresher over ``tmp_path/work`` with version 0."""
    refresher = blocking_refresher(corpus, tmp_path / "work", shard_rows=ROWS)
    refresher.refresh(tower(0), 0)
    refresher.poll(0)
    yield refresher
    refresher.close()


def test_a_full_disk_reaches_training_and_leaves_the_old_index(trained, tmp_path: Path, tower, monkeypatch) -> None:
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


def test_weights_that_are_broken_make_no_index(trained, tmp_path: Path, tower) -> None:
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


def test_a_corpus_that_is_damaged_or_changed_reaches_training(tmp_path: Path, tower) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    refresher = blocking_refresher(corpus, tmp_path / "work", shard_rows=ROWS)
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
    with pytest.raises(RefreshFailed, match="holds other passages than when training began"):
        refresher.poll(2)
    assert refresher.poll(3) is old
    refresher.close()
    with pytest.raises(Mismatch, match="is not of the passages of"):
        blocking_refresher(corpus, tmp_path / "work")


def test_passages_that_were_deleted_are_never_found(tmp_path: Path, tower) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    update_index(corpus, delete=["7"])
    deleted = PassageStore.open(corpus / "passages").deleted
    refresher = blocking_refresher(corpus, tmp_path / "work")
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
def test_what_is_not_whole_is_never_taken(run: Run, tower, spoil: Callable[[Path], None]) -> None:
    run.refresh(tower(0), 0)
    run.maker.finish()
    old = run.poll(0)
    run.refresh(tower(1), 1)
    run.maker.finish()
    spoil(run.work / "index-00000001")
    with pytest.raises((DamagedArtefact, Mismatch), match="index-00000001"):
        run.poll(1)
    assert run.poll(2) is old and run.refresher.version == 0
    run.refresh(tower(1), 1)  # of the same step: what was found damaged is made anew
    run.maker.finish()
    assert len(run.poll(3)) == PASSAGES and run.refresher.version == 1 and np.asarray(run.poll(3).vectors[0:1]).any()


def test_a_version_that_was_not_whole_is_none_of_the_two_that_are_kept(run: Run, tower) -> None:
    for step in (0, 1):
        run.refresh(tower(step), step)
        run.maker.finish()
        run.poll(step)
    run.refresh(tower(2), 2)
    run.maker.finish()
    (run.work / "index-00000002" / "vectors.npy").unlink()
    with pytest.raises(DamagedArtefact, match=r"vectors\.npy is damaged: No such file"):
        run.poll(2)
    run.refresh(tower(3), 3)
    assert names(run.work) == [
        "index-00000000",
        "index-00000001",
        *[f"snapshot-0000000{step}" for step in (0, 1, 3)],
    ]


# Going on after a kill


class Killed(BaseException):
    """Nothing after it runs, as after SIGKILL, but for what ``finally`` cleans up."""


def stop_at(monkeypatch: pytest.MonkeyPatch, where: object, name: str, calls: int = 0, *, after: bool = False) -> None:
    """Die in the call of ``name`` that follows so many others, once its work is done or before."""
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
    "renaming": lambda patch: stop_at(patch, version_build.artefacts.atomic, "swap_into_place"),
    "renamed": lambda patch: stop_at(patch, version_build.artefacts.atomic, "swap_into_place", after=True),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_while(moment: str, corpus: Path, tmp_path: Path, tower, trained, monkeypatch) -> None:
    work, whole = tmp_path / "work", [0]
    with monkeypatch.context() as patched:
        MOMENTS[moment](patched)
        with pytest.raises(Killed):
            trained.refresh(tower(0), 5)
    trained.close()
    with monkeypatch.context() as patched:
        real = version_build.embed_shard
        patched.setattr(version_build, "embed_shard", lambda *args: (whole.append(args[3].first), real(*args)))
        again = blocking_refresher(corpus, work, shard_rows=ROWS)
    again.poll(5)
    assert again.version == 5
    assert whole[1:] == (list(range(3 * ROWS, PASSAGES, ROWS)) if moment == "embedding" else [])
    assert vectors(work, 5) == vectors(work, 0)
    assert names(work) == [f"{what}-0000000{step}" for what in ("index", "snapshot") for step in (0, 5)]
    again.close()


def test_a_snapshot_is_whole_or_not_there(corpus: Path, tmp_path: Path, tower, trained) -> None:
    class Dying:
        def save(self, folder: Path) -> None:
            tower(1).save(folder)
            (folder / "tokenizer.json").unlink()
            raise Killed

    with pytest.raises(Killed):
        trained.refresh(Dying(), 5)
    (tmp_path / "work" / ".snapshot-00000005.writing").mkdir()  # as SIGKILL leaves it
    trained.close()
    again = blocking_refresher(corpus, tmp_path / "work", shard_rows=ROWS)
    again.poll(6)
    assert again.version == 0 and names(tmp_path / "work") == ["index-00000000", "snapshot-00000000"]
    again.close()


SCRIPT = """
import os, signal, sys
from pathlib import Path
from index.{module} import {refresher} as open_refresher
from tests.index.test_refresh import Tower
if "{address}":
    import ray
    ray.init(address="{address}", log_to_driver=False, configure_logging=False)
refresher = open_refresher(Path(sys.argv[1]), Path(sys.argv[2]), shard_rows=40{options})
refresher.refresh(Tower(Path(sys.argv[3]), 0), 5)
while not (Path(sys.argv[2]) / "index-00000005").exists():
    pass
os.kill(os.getpid(), signal.SIGKILL)  # after the rename, before the poll that swaps
"""


def killed_before_the_swap(corpus: Path, work: Path, small: Path, **names: str) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    command = [sys.executable, "-c", SCRIPT.format(module="refresh", **names), str(corpus), str(work), str(small)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.thorough
def test_training_killed_between_rename_and_swap(corpus: Path, tmp_path: Path, small: Path, tower, trained) -> None:
    trained.close()
    work = tmp_path / "work"
    killed_before_the_swap(corpus, work, small, refresher="blocking_refresher", address="", options="")
    again = blocking_refresher(corpus, work, shard_rows=ROWS)
    again.poll(5)
    assert again.version == 5 and vectors(work, 5) == vectors(work, 0) and again.log == []
    again.close()


def test_opened_again_it_goes_on_with_the_version_it_had(corpus: Path, tmp_path: Path, tower, trained) -> None:
    with pytest.raises(BadInput, match="another process is at work"):
        blocking_refresher(corpus, tmp_path / "work")
    for step in (5, 10):
        trained.refresh(tower(step), step)
        trained.poll(step)
    before = np.array(trained.poll(10).vectors[0:PASSAGES])
    trained.close()
    again = blocking_refresher(corpus, tmp_path / "work", shard_rows=ROWS)
    assert again.version == 10 and np.array_equal(again.poll(11).vectors[0:PASSAGES], before)
    again.close()
    with pytest.raises(BadInput, match=r"version 0 is not in .* \(there: 5, 10\)"):
        blocking_refresher(corpus, tmp_path / "work", at=0)
    back = blocking_refresher(corpus, tmp_path / "work", shard_rows=ROWS, at=5)
    assert back.version == 5 and not np.array_equal(back.poll(6).vectors[0:PASSAGES], before)
    assert names(tmp_path / "work") == ["index-00000005", "snapshot-00000005"]
    back.refresh(tower(10), 10)
    assert np.array_equal(back.poll(10).vectors[0:PASSAGES], before)
    back.close()


def test_what_was_begun_before_the_checkpoint_goes_on(corpus: Path, tmp_path: Path, tower) -> None:
    """A checkpoint of step 12 knows version 5; that of step 10 was being made, that of step 15 comes again."""
    plan = Plan.of(corpus, tmp_path / "work", "flat", ROWS, 0.95, None)
    versions = Versions(plan)
    for step in (5, 10, 15):
        versions.write_snapshot(tower(step), step)
    make_version(plan, 5, Encoding(plan.passages(), "cpu"))
    assert versions.take_up(5, 12) == (5, [10])
    assert names(plan.work) == ["index-00000005", "snapshot-00000005", "snapshot-00000010"]
    assert versions.take_up(5) == (5, [])
    assert names(plan.work) == ["index-00000005", "snapshot-00000005"]


def test_the_version_of_a_checkpoint_stays_beside_two_later_ones(corpus: Path, tmp_path: Path, tower) -> None:
    """Those that were made between the checkpoint and the kill; a second kill must find the first one again."""
    plan = Plan.of(corpus, tmp_path / "work", "flat", ROWS, 0.95, None)
    versions = Versions(plan)
    for step in (5, 10, 15):
        versions.write_snapshot(tower(step), step)
        make_version(plan, step, Encoding(plan.passages(), "cpu"))
    for _ in range(2):
        assert versions.take_up(5, 16) == (15, [])
        assert versions.steps("index") == [5, 10, 15]


def test_a_damaged_version_is_made_again_from_its_snapshot(corpus: Path, tmp_path: Path, tower, trained) -> None:
    work = tmp_path / "work"
    trained.refresh(tower(0), 5)
    trained.close()
    file = work / "index-00000005" / "vectors.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    again = blocking_refresher(corpus, work, shard_rows=ROWS)
    again.poll(5)
    assert again.version == 5 and vectors(work, 5) == vectors(work, 0)
    again.close()


def test_a_shard_that_is_damaged_is_made_again(corpus: Path, tmp_path: Path, tower, trained, monkeypatch) -> None:
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
    """Ray for all tests here."""
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
    """A refresher with two actors, and version 0, which was made with nobody's interference."""
    work = tmp_path_factory.mktemp("refreshed")
    refresher = ray_refresher(corpus, work, max_staleness=None, workers=2, shard_rows=ROWS)
    refresher.refresh(tower(0), 0)
    refresher.poll(0)
    yield refresher
    refresher.close()


@pytest.fixture(scope="module")
def undisturbed(beside: IndexRefresher) -> bytes:
    """The vectors of that version."""
    return vectors(directory(beside), 0)


def directory(refresher: IndexRefresher) -> Path:
    return refresher._versions.plan.work


def actors(refresher: IndexRefresher) -> tuple[object, list[object]]:
    """The coordinator and the encoders."""
    maker = refresher._maker
    return maker._coordinator, maker._encoders


def in_actor(ray, actor, act: Callable[..., object]) -> object:
    return ray.get(actor.__ray_call__.options(max_task_retries=-1).remote(act))  # once it is there again


def recording(file: Path, fault: str | None = None, waits_for: Path | None = None) -> Callable[[object], None]:
    """Done in an actor: every shard that it makes is noted in ``file``, or fails, until this is done again.

    None is begun before ``waits_for`` is there.
    """

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
    """Done in an actor: the call of ``name`` that follows so many others writes ``mark`` and hangs; the actor's pid."""

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
    """Whether a poll finds this version."""
    return lambda: refresher.poll(step) is not None and refresher.version == version


def test_ray_makes_what_the_blocking_refresher_makes(beside, corpus: Path, tmp_path: Path, tower) -> None:
    blocking = blocking_refresher(corpus, tmp_path, shard_rows=ROWS)
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
def test_actors_killed_while(moment: str, ray, beside, undisturbed: bytes, tmp_path: Path, tower) -> None:
    work, mark, made = directory(beside), tmp_path / "mark", tmp_path / "made"
    last = beside.version
    step = last + 10
    coordinator, encoders = actors(beside)
    module, name, calls, after = MARKED[moment]
    leaves_work = mark if moment == "embedding" else None  # to the one that hangs in its third shard
    for encoder, waits_for in zip(encoders, (None, leaves_work), strict=True):
        in_actor(ray, encoder, recording(made, waits_for=waits_for))
    hangs = encoders[0] if moment == "embedding" else coordinator
    pids = {in_actor(ray, hangs, hanging(module, name, mark, calls, after=after))}
    pids.add(in_actor(ray, coordinator, lambda _: os.getpid()))
    beside.refresh(tower(0), step)
    wait_for(mark.exists)
    shards = 7 if moment == "embedding" else 8
    wait_for(lambda: beside._versions.whole_shards(step) == shards)
    old = beside.poll(step + 1)
    assert beside.version == last
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_for(swapped(beside, step + 2, step))
    assert beside.poll(step + 3) is not old
    assert vectors(work, step) == undisturbed
    noted = made.read_text().split()
    assert len(noted) == len({*noted})  # what was whole was not made again
    assert names(work) == [f"{what}-{kept:08d}" for what in ("index", "snapshot") for kept in (last, step)]


def test_what_fails_again_and_again_reaches_training(ray, beside, undisturbed: bytes, tmp_path: Path, tower) -> None:
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
def test_training_killed_on_ray(ray, corpus: Path, tmp_path: Path, small: Path, undisturbed: bytes) -> None:
    """Once while an actor makes a shard, with all its actors; once between rename and swap."""
    work, address = tmp_path / "work", ray.get_runtime_context().gcs_address
    names_of = {"refresher": "ray_refresher", "address": address}
    killed_before_the_swap(corpus, work, small, options=", max_staleness=None", **names_of)
    again = ray_refresher(corpus, work, max_staleness=None, shard_rows=ROWS)
    assert again.version == 5 and len(again.poll(6)) == PASSAGES and vectors(work, 5) == undisturbed
    made, encoder = tmp_path / "made", actors(again)[1][0]
    in_actor(ray, encoder, recording(made))
    in_actor(ray, encoder, hanging("index.version_build", "embed_shard", tmp_path / "mark", 3))
    again.refresh(Tower(small, 0), 10)
    wait_for((tmp_path / "mark").exists)
    again.close()
    noted = made.read_text().split()
    resumed = ray_refresher(corpus, work, max_staleness=3, shard_rows=ROWS)
    in_actor(ray, actors(resumed)[1][0], recording(made))
    resumed.poll(11)  # waits: the index is 6 steps old
    assert resumed.version == 10 and vectors(work, 10) == undisturbed
    assert noted == ["0", "40", "80"] and not {*noted} & {*made.read_text().split()[3:]}
    resumed.close()


def killed_at_random(ray, refresher: IndexRefresher, model: Tower, rng: np.random.Generator) -> None:
    """Some of the actors die after some of the shards, and again a little later."""
    step, versions = refresher.version + 1, refresher._versions
    coordinator, encoders = actors(refresher)
    pids = [in_actor(ray, actor, lambda _: os.getpid()) for actor in (coordinator, *encoders)]
    refresher.refresh(model, step)
    after = int(rng.integers(9))
    wait_for(lambda: versions.whole_shards(step) >= after or step in versions.steps("index"))
    for pid in rng.choice(pids, int(rng.integers(1, 4)), replace=False):
        os.kill(int(pid), signal.SIGKILL)
    wait_for(swapped(refresher, step, step))


@pytest.mark.slow
def test_actors_killed_at_twenty_random_moments(ray, beside, undisturbed: bytes, tower) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        killed_at_random(ray, beside, tower(0), rng)
        assert vectors(directory(beside), beside.version) == undisturbed


def train(refresher: IndexRefresher, model: Tower, swaps: int) -> float:
    """Steps, the first ones with nobody beside them, then with a refresh always under way; seconds with one."""
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
def test_training_hardly_stands_still_beside_a_refresher(ray, tmp_path: Path, tower) -> None:
    """Less than 2 % of the time, with real steps and one refresh after the other on the same cores."""
    corpus = write_corpus(tmp_path / "corpus", passages=12_000)
    refresher = ray_refresher(corpus, tmp_path / "work", max_staleness=None)
    model = tower(0)
    refresher.refresh(model, 0)
    refresher.poll(0)
    seconds = train(refresher, model, swaps=3)
    swaps = refresher.log[1:]
    refresher.close()
    assert len(swaps) == 3 and all(swap.staleness > 0 and swap.slowdown is not None for swap in swaps)
    assert sum(swap.stood for swap in swaps) < 0.02 * seconds, (swaps, seconds)
