"""A refreshed index is swapped in when it is complete, and its cost is logged."""

import logging
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from index.refresh import RefreshSettings, open_blocking_refresher  # noqa: E402
from ragqa import artefacts  # noqa: E402
from ragqa.corpus.store import PassageStore  # noqa: E402
from ragqa.errors import BadInput, StaleIndex  # noqa: E402
from ragqa.runtime.encoder import load_encoder  # noqa: E402
from ragqa.training import precision  # noqa: E402
from tests.helpers.refresh import PASSAGES, ROWS, SETTINGS, Run, list_names  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


def test_an_index_is_made_from_the_snapshot(random_corpus: Path, tmp_path: Path, tower) -> None:
    with_seed = tower(1)
    refresher = open_blocking_refresher(random_corpus, tmp_path / "work", SETTINGS)
    before = torch.random.get_rng_state()
    refresher.refresh(with_seed, 7)
    assert torch.equal(torch.random.get_rng_state(), before)  # a refresh does not change the steps that follow
    index = refresher.poll(7)
    with_seed.save(tmp_path / "encoder")
    encoder = load_encoder(tmp_path / "encoder", precision=precision.choose_precision("cpu"))
    vectors = encoder.encode(
        [p.titled_text for p in PassageStore.open(random_corpus / "passages").get(range(PASSAGES))]
    )
    assert np.allclose(np.asarray(index.vectors[0:PASSAGES]), vectors, atol=2e-3)
    assert [r.rows[0] for r in index.search(vectors, 1)] == list(range(PASSAGES))
    manifest = artefacts.read_manifest(tmp_path / "work" / "index-00000007", "dense")
    assert manifest.config["step"] == refresher.version == 7 and manifest.config["rows"] == PASSAGES
    assert manifest.parents == {
        "corpus": artefacts.peek_manifest(random_corpus).parents["corpus"],
        "encoder": encoder.fingerprint,
    }
    refresher.close()


@pytest.mark.parametrize("kind", ["hnsw", "sq8"])
def test_approximate_kinds_are_searched(random_corpus: Path, tmp_path: Path, tower, kind: str) -> None:
    pytest.importorskip("faiss", reason="the extra cpu is not installed")
    refresher = open_blocking_refresher(random_corpus, tmp_path, RefreshSettings(kind=kind))
    refresher.refresh(tower(1), 0)
    index = refresher.poll(0)
    queries = np.asarray(index.vectors[0:20], np.float32)
    assert [r.rows[0] for r in index.search(queries, 3)] == list(range(20))
    assert (tmp_path / "index-00000000" / "faiss.index").is_file()
    refresher.close()


def test_a_kind_without_float16_vectors_is_refreshed_and_resumed(random_corpus: Path, tmp_path: Path, tower) -> None:
    pytest.importorskip("faiss", reason="the extra cpu is not installed")
    work = tmp_path / "work"
    (tmp_path / "q.jsonl").write_text("".join(f'{{"question": "w{n} w{n + 1}", "answers": []}}\n' for n in range(30)))
    settings = RefreshSettings(kind="ivf-rabitq", recall=0.9, questions=tmp_path / "q.jsonl", shard_rows=ROWS)
    refresher = open_blocking_refresher(random_corpus, work, settings)
    for step in (0, 5):
        refresher.refresh(tower(step), step)
        index = refresher.poll(step)
    version_folder = work / "index-00000005"
    search = artefacts.read_manifest(version_folder, "dense").config["search"]
    assert (search["wanted"], search["queries"], search["made_up"]) == (0.9, 30, False) and search["recall"] >= 0.9
    assert (version_folder / "codes.npy").is_file() and not (version_folder / "vectors.npy").exists()
    queries = np.asarray(index.vectors[0:20], np.float32)
    rankings = [r.rows.tolist() for r in index.search(queries, 3)]
    assert [rows[0] for rows in rankings] == list(range(20))
    refresher.close()
    reopened = open_blocking_refresher(random_corpus, work, settings)
    assert reopened.version == 5 and [r.rows.tolist() for r in reopened.poll(6).search(queries, 3)] == rankings
    reopened.close()
    assert artefacts.is_artefact(version_folder)  # so its files are never indexed as documents
    (version_folder / "manifest.json").write_text("{")
    repaired = open_blocking_refresher(random_corpus, work, settings)  # makes the damaged version again
    assert repaired.poll(6).search(queries, 3) and repaired.version == 5
    artefacts.read_manifest(version_folder, "dense")
    repaired.close()


def test_impossible_recall_settings_are_refused_at_once(random_corpus: Path, tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="the extra cpu is not installed")
    (tmp_path / "none.jsonl").touch()
    with pytest.raises(BadInput, match=r"recall = 1\.5: a share above 0 and up to 1"):
        open_blocking_refresher(random_corpus, tmp_path, RefreshSettings(kind="sq8", recall=1.5))
    with pytest.raises(BadInput, match=r"no questions in .*none\.jsonl"):
        open_blocking_refresher(random_corpus, tmp_path, RefreshSettings(kind="sq8", questions=tmp_path / "none.jsonl"))
    # An exact search needs no questions and does not read them.
    open_blocking_refresher(random_corpus, tmp_path, RefreshSettings(questions=tmp_path / "none.jsonl")).close()


def test_training_has_the_old_index_until_the_new_one_is_whole(training: Run, tower) -> None:
    training.refresh(tower(0), 0)
    training.builder.finish()
    old = training.poll(0)
    training.refresh(tower(1), 5)
    assert training.poll(6) is old and training.refresher.version == 0
    training.builder.finish()
    new = training.poll(7)
    assert new is not old and training.refresher.version == 5 and training.poll(8) is new
    assert (
        len(old.search(np.ones((1, old.width), np.float32), 3)[0]) == 3
    )  # code that holds the old index can still search it


def test_the_newest_snapshot_waits_until_the_current_build_is_finished(training: Run, tower) -> None:
    training.refresh(tower(0), 0)
    training.builder.finish()
    training.poll(0)
    for step in (10, 20, 30):
        training.refresh(tower(step), step)
    assert training.builder.started == [0, 10]
    assert list_names(training.work) == [
        "index-00000000",
        "snapshot-00000000",
        "snapshot-00000010",
        "snapshot-00000030",
    ]
    training.builder.finish()
    training.poll(31)
    assert training.refresher.version == 10 and training.builder.started == [0, 10, 30]
    training.builder.finish()
    training.poll(32)
    assert training.refresher.version == 30
    assert list_names(training.work) == [f"{what}-000000{step}" for what in ("index", "snapshot") for step in (10, 30)]


def test_the_log_of_a_swap_agrees_with_hand_computation(training: Run, tower, caplog: pytest.LogCaptureFixture) -> None:
    class SlowTower:
        def save(self, folder: Path) -> None:
            tower(1).save(folder)
            training.clock.now += 2.0

    caplog.set_level(logging.INFO, "ragqa.refresh")
    training.refresh(tower(0), 0)
    training.builder.finish(embedding=4, building=1)
    training.train(0, 10, seconds=1.0)  # 9 steps of 1 s without a refresh; one begins within the tenth
    training.refresh(SlowTower(), 10)
    training.train(10, 15, seconds=1.5)  # 4 steps during the build, which ends within the fifth
    training.builder.finish(embedding=6, building=0.5)
    training.poll(15)
    first, second = training.refresher.log
    assert first.as_dict() == {
        "step": 0,
        "version": 0,
        "staleness_before": None,
        "staleness": 0,
        "embedding": 4,
        "building": 1,
        "paused": 0.0,
        "slowdown": None,
    }
    assert second.as_dict() == {
        "step": 15,
        "version": 10,
        "staleness_before": 15,
        "staleness": 5,
        "embedding": 6,
        "building": 0.5,
        "paused": 2.0,
        "slowdown": 1.5,
    }
    assert caplog.messages[-1] == (
        "step 15: index of step 10 (5 steps stale, 15 steps stale before); embedded in 6.0 s, built in 0.5 s; "
        "training paused for 2.00 s; steps took 1.50 times as long meanwhile"
    )


def test_training_waits_when_the_index_is_too_old(
    random_corpus: Path, tmp_path: Path, tower, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger("ragqa.refresh")
    for name, value in (("disabled", False), ("propagate", True)):  # libraries of other tests change the logging
        monkeypatch.setattr(logger, name, value)
    caplog.set_level(logging.WARNING, logger.name)
    training = Run(random_corpus, tmp_path, max_staleness=10)
    training.refresh(tower(0), 0)
    training.builder.finish()
    training.poll(0)
    training.refresh(tower(1), 5)
    training.poll(10)  # 10 steps stale, which is allowed
    assert training.refresher.version == 0 and not caplog.records

    def finish_after_7_seconds() -> None:
        training.clock.now += 7.0
        training.builder.finish()

    training.builder.on_wait = finish_after_7_seconds
    training.poll(11)
    assert training.refresher.version == 5 and training.refresher.log[-1].paused == 7.0
    assert caplog.messages == [
        "step 11: the index is 11 steps old, more than 10: training waits for version 5",
    ]
    training.poll(15)
    with pytest.raises(StaleIndex, match=r"step 16: .* 11 steps old, more than 10, and none is being built: call ref"):
        training.poll(16)
    training.refresher.close()


def test_training_waits_past_a_version_that_is_too_old_itself(random_corpus: Path, tmp_path: Path, tower) -> None:
    training = Run(random_corpus, tmp_path, max_staleness=10)
    for step in (0, 50):
        training.refresh(tower(step), step)
    training.builder.on_wait = training.builder.finish
    training.poll(55)
    assert training.builder.started == [0, 50] and [swap.version for swap in training.refresher.log] == [50]
    training.refresher.close()


def test_training_waits_for_the_first_index(training: Run, tower) -> None:
    with pytest.raises(StaleIndex, match=r"there is no index yet, .* call refresh"):
        training.poll(0)
    training.refresh(tower(0), 0)
    training.builder.on_wait = training.builder.finish
    assert len(training.poll(0)) == PASSAGES


def test_steps_must_not_go_back(training: Run, tower) -> None:
    training.refresh(tower(0), 10)
    training.builder.finish()
    training.poll(10)
    training.refresh(tower(0), 10)  # a run that resumes at step 10 repeats the call
    assert training.builder.started == [10]
    same = tower(0)

    def save_in_another_format(folder: Path) -> None:
        tower(0).save(folder)
        file = folder / "config.json"
        file.write_text(file.read_text() + "\n")

    same.save = save_in_another_format
    training.refresh(same, 10)
    with pytest.raises(BadInput, match="other weights of step 10"):
        training.refresh(tower(1), 10)
    with pytest.raises(BadInput, match="holds step 10, later than 9"):
        training.refresh(tower(1), 9)
    with pytest.raises(BadInput, match="of step 10, later than 9"):
        training.poll(9)
    assert list_names(training.work) == ["index-00000010", "snapshot-00000010"]
