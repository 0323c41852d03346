"""Training in several processes by Ray Train, and the progress that they send."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pipelines.common.processes import (
    ProgressSender,
    _make_absolute,
    describe_failure,
    replay_messages,
    train_in_processes,
)
from pipelines.dpr import loop as dpr
from pipelines.orqa import fine_tune_loop, inverse_cloze_loop
from pipelines.realm import pretrain_loop, reader_warmup_loop
from pipelines.realm.config import ReaderWarmupConfig
from ragqa.errors import BadInput
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder
from ragqa.settings.groups import make_config, replace_settings
from ragqa.training.log import read_rows
from tests.helpers import closed_world, tiny
from tests.helpers.two_processes import (
    ROOT,
    RecordedProgress,
    make_supervised_configs,
    measure_distance,
    read_weights,
    save_spread_retriever,
)


def test_a_missing_device_is_reported(small: Path, tmp_path: Path) -> None:
    world = tiny.write(tmp_path / "world")
    dpr_config, _ = make_supervised_configs(world, small, small, tmp_path)
    for device in ("nonsense", "cuda:99"):
        with pytest.raises(BadInput, match=f"--device {device}: torch sees no such device on this machine"):
            train_in_processes(dpr.main, replace_settings(dpr_config, device=device))
    with pytest.raises(BadInput, match="device cuda in 2 processes: --gpus gives each of them its own"):
        train_in_processes(dpr.main, replace_settings(dpr_config, device="cuda", processes=2))
    assert not dpr_config.out.exists()


def test_workers_get_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert _make_absolute((Path("a"), Path("/b"))) == (tmp_path / "a", Path("/b"))
    assert (_make_absolute(Path("c")), _make_absolute("c"), _make_absolute(3), _make_absolute(None)) == (
        tmp_path / "c",
        "c",
        3,
        None,
    )


def test_an_error_in_a_worker_is_reported_in_one_line() -> None:
    trace = 'Traceback (most recent call last):\n  File "locks.py", line 24, in locked\n    raise BadInput("wait")\n'
    own = RuntimeError(f"2 workers failed\n{trace}ragqa.errors.BadInput: another process is at work: wait for it\n")
    assert describe_failure(own) == "another process is at work: wait for it"
    wrapped = RuntimeError("the run failed")
    wrapped.__cause__ = RuntimeError("out of\n memory")
    assert describe_failure(wrapped) == "out of memory"


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[None]:
    """Start Ray with three CPUs: for two workers and their controller."""
    ray = pytest.importorskip("ray", reason="the extra ray is not installed")
    environment = {"PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.delenv("RAY_ADDRESS", raising=False)
        ray.init(address="local", num_cpus=3, include_dashboard=False, log_to_driver=False, configure_logging=False)
        try:
            yield
        finally:
            ray.shutdown()


def test_progress_of_the_first_process_is_replayed() -> None:
    messages: list[tuple[Any, ...]] = []
    sender = ProgressSender(messages.append)
    with sender.step("outer", 10, "steps", 3) as outer:
        outer.advance_to(4)
        sender.notify("a line")
        for done in range(5, 10):
            outer.advance_to(done)
    with sender.step("next", 2000) as following:
        for done in range(2001):
            following.advance_to(done)
    assert len(messages) < 100  # fewer than one message per step
    progress, lines = RecordedProgress(), []
    replay_messages(messages, progress, lines.append)
    assert progress.last == {"outer": 9, "next": 2000} and lines == ["a line"]
    progress = RecordedProgress()
    replay_messages([("begin", "one", 2, "", 0), ("at", 1)], progress, lines.append)  # the process died here
    assert progress.last == {"one": 1}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.use_:DeprecationWarning")  # Ray Train copies Ray Data's settings
def test_dpr_and_fine_tuning_learn_the_same_in_two_ray_workers(ray_cluster: None, small: Path, tmp_path: Path) -> None:
    """Losses differ by rounding in bfloat16, which depends on padding."""
    world, retriever = tiny.write(tmp_path / "world"), save_spread_retriever(small, tmp_path / "retriever")
    runs = {count: make_supervised_configs(world, small, retriever, tmp_path / count) for count in ("one", "two")}
    for recipe, one, two in zip((dpr, fine_tune_loop), *runs.values(), strict=True):
        once = {"rounds": 1} if recipe is dpr else {}
        first = recipe.main(replace_settings(one, **once))
        progress, lines = RecordedProgress(), []
        second = train_in_processes(
            recipe.main, replace_settings(two, processes=2, **once), progress=progress, notify=lines.append
        )
        steps = "DPR, round 1" if recipe is dpr else "fine-tuning"
        assert progress.last[steps] == 4 and any(line.startswith("step 4: ") for line in lines)
        assert second == two.out / "model"
        logs = (read_rows(run.out / "round-1" if recipe is dpr else run.out) for run in (one, two))
        losses = [(a["nll"], b["nll"]) for a, b in zip(*logs, strict=True) if "nll" in a]
        assert len(losses) == 4 and all(a == pytest.approx(b, rel=2e-2) for a, b in losses)
        assert all(
            torch.allclose(a, b, atol=5e-3) for a, b in zip(read_weights(first), read_weights(second), strict=True)
        )


@pytest.mark.filterwarnings("ignore:.use_:DeprecationWarning")  # Ray Train copies Ray Data's settings
def test_two_ray_workers_train_dpr_like_one_process(ray_cluster: None, small: Path, tmp_path: Path) -> None:
    """Losses, reported evaluations and the path of the result are the same."""
    world = tiny.write(tmp_path / "world")
    one, two = (make_supervised_configs(world, small, small, tmp_path / count)[0] for count in ("one", "two"))
    dpr.main(replace_settings(one, rounds=1))
    progress, lines = RecordedProgress(), []
    made = train_in_processes(
        dpr.main, replace_settings(two, processes=2, rounds=1), progress=progress, notify=lines.append
    )
    assert progress.last["DPR, round 1"] == 4 and any(line.startswith("step 4: ") for line in lines)
    assert made == two.out / "model"
    logs = (read_rows(run.out / "round-1") for run in (one, two))
    losses = [(a["nll"], b["nll"]) for a, b in zip(*logs, strict=True) if "nll" in a]
    assert len(losses) == 4 and all(a == pytest.approx(b, rel=2e-2) for a, b in losses)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.use_:DeprecationWarning")  # Ray Train copies Ray Data's settings
def test_masked_word_recipes_learn_the_same_in_two_ray_workers(ray_cluster: None, tmp_path: Path) -> None:
    """Warm starts and pretraining with a refreshed index have the losses and the weights of one process."""
    world = closed_world.make_world(30, 5, 0)
    folders = closed_world.write_world(world, tmp_path / "world", width=32)
    start = closed_world.init_encoder(folders, tmp_path / "start", 0)
    cloze = replace_settings(
        closed_world.inverse_cloze_config(folders, start, tmp_path / "cloze", seed=0, steps=3), batch=16, warmup=1
    )
    alone = inverse_cloze_loop.main(cloze)
    settings = closed_world.realm_config(folders, start, alone, tmp_path / "one", seed=0, steps=3)
    one = replace_settings(settings, batch=4, k=4, frozen=0, refresh_every=2, warmup=1, masking="words", dev=None)
    pretrain_loop.main(one)
    both = train_in_processes(inverse_cloze_loop.main, replace_settings(cloze, out=tmp_path / "cloze-2", processes=2))
    train_in_processes(pretrain_loop.main, replace_settings(one, out=tmp_path / "two", processes=2))
    followed = replace_settings(
        one, out=tmp_path / "each", frozen=3
    )  # one index, which all wait for, however slow the actor
    pretrain_loop.main(followed)
    train_in_processes(pretrain_loop.main, replace_settings(followed, out=tmp_path / "each-2", processes=2, workers=1))
    warmup = make_config(ReaderWarmupConfig,
        corpus=folders.corpus, encoder=start, out=tmp_path / "read", steps=3, batch=6, masking="words", max_text=24,
        max_block=24, warmup=1, dropout=0.0,
    )  # fmt: skip
    reader_warmup_loop.main(warmup)
    train_in_processes(reader_warmup_loop.main, replace_settings(warmup, out=tmp_path / "read-2", processes=2))
    runs = ("cloze", "cloze-2"), ("one", "two"), ("each", "each-2"), ("read", "read-2")
    for first, second in ((tmp_path / a, tmp_path / b) for a, b in runs):
        pairs = zip(read_rows(first), read_rows(second), strict=True)
        losses = [(a["nll"], b["nll"]) for a, b in pairs if "nll" in a]
        assert len(losses) == 3
        assert all(a == pytest.approx(b, rel=1e-2) for a, b in losses)
    towers = [DualEncoder.load(each) for each in (alone, both, one.out / "model", tmp_path / "two" / "model")]
    readers = [
        KnowledgeAugmentedEncoder.load(each) for each in (start, one.out / "reader", tmp_path / "two" / "reader")
    ]
    for before, first, second in ((towers[0], *towers[2:]), readers):
        assert measure_distance(first, second) < 0.25 * measure_distance(
            before, first
        )  # 0.12: Adam steps as far for what is rounded
    start_towers = DualEncoder.load(
        inverse_cloze_loop.main(replace_settings(cloze, out=tmp_path / "cloze-0", lr=1e-12))
    )
    assert measure_distance(*towers[:2]) < 0.1 * measure_distance(start_towers, towers[0])
