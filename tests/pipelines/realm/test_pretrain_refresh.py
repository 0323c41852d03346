"""REALM's index is refreshed in training, and a killed run continues with the same losses and versions."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from index import refresh
from pipelines.realm import pretrain_loop
from pipelines.realm.config import PretrainConfig
from ragqa.errors import BadInput, DamagedArtefact
from ragqa.models.dual_encoder import DualEncoder
from ragqa.retrieval.vectors.mips import open_index
from ragqa.settings.groups import collect_settings, replace_settings
from ragqa.training.log import read_rows
from tests.helpers.realm import (
    RealmInputs,
    make_pretrain_config,
    pretrain,
    read_losses,
)

ROOT = Path(__file__).parents[3]


@pytest.fixture
def config(realm_inputs: RealmInputs, tmp_path: Path) -> PretrainConfig:
    return make_pretrain_config(realm_inputs, tmp_path / "run")


def test_the_index_is_never_refreshed_without_an_interval(config: PretrainConfig) -> None:
    pretrain(replace_settings(config, refresh_every=None))
    rows = read_rows(config.out)
    assert [row["swap_version"] for row in rows if "swap_version" in row] == [0]
    assert [row["staleness"] for row in rows if "nll" in row] == [0, 0, 0, 1, 2, 3]
    assert [row["staleness"] for row in rows if "recall@5" in row] == [0, 1, 4]


TRAIN_UNTIL_KILLED = """
import sys, json, time
from pathlib import Path
from ragqa.settings.groups import make_config
from tests.helpers import closed_world
from pipelines.realm import pretrain_loop
arguments = json.loads(sys.argv[1])
world = closed_world.make_world(30, 5, 0)
paths = ("corpus", "encoder", "retriever", "out", "texts", "dev")
fields = {name: Path(value) if name in paths else value for name, value in arguments.items()}
step = pretrain_loop.train_step
def wait_at_step(run, *others, **options):
    if run.step == int(sys.argv[2]):
        print("here", flush=True)
        time.sleep(600)  # until it is killed
    return step(run, *others, **options)
pretrain_loop.train_step = wait_at_step
pretrain_loop.main(make_config(pretrain_loop.PretrainConfig, **fields), tagger=closed_world.ObjectTagger(world.objects))
"""


@pytest.mark.thorough
def test_a_killed_run_continues_with_the_same_losses(config: PretrainConfig) -> None:
    """With dropout; killed two steps after a checkpoint, or after the second refresh and before any checkpoint."""
    config = replace_settings(config, dropout=0.1, frozen=0)
    pretrain(config)
    for kill_step, save_every, checkpoints in ((5, 3, {"step-00000003"}), (3, 5, set())):
        broken = replace_settings(config, out=config.out.with_name(f"broken-{kill_step}"), save_every=save_every)
        arguments = [json.dumps(collect_settings(broken), default=str), str(kill_step)]
        with subprocess.Popen(
            [sys.executable, "-c", TRAIN_UNTIL_KILLED, *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert process.stdout is not None and process.stdout.readline() == b"here\n"
            process.send_signal(signal.SIGKILL)
        saved = {path.name for path in (broken.out / "checkpoints").glob("*")}
        assert saved - {"step-00000000"} == checkpoints
        pretrain(broken)
        assert read_losses(broken.out) == read_losses(config.out) and len(read_losses(config.out)) == 6
        one, other = DualEncoder.load(config.out / "model"), DualEncoder.load(broken.out / "model")
        assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_index_versions_that_checkpoints_name_are_kept(config: PretrainConfig) -> None:
    """They are also kept if the run continues with another interval between checkpoints."""
    step = pretrain_loop.train_step
    seen: list[tuple[int, list[str]]] = []

    def list_versions_and_stop(run: Any, *others: Any, **options: Any) -> dict[str, float]:
        seen.append((run.step, sorted(path.name for path in (config.out / "index").glob("index-*"))))
        if len(seen) == 4 or run.step == 9:
            raise KeyboardInterrupt
        return step(run, *others, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrain_loop, "train_step", list_versions_and_stop)
        for save_every in (3, 100):
            with pytest.raises(KeyboardInterrupt):
                pretrain(replace_settings(config, steps=12, save_every=save_every, frozen=0))
    assert seen[3] == (3, ["index-00000000", "index-00000002"])
    assert seen[-1] == (9, [f"index-0000000{step}" for step in (0, 2, 6, 8)])


def fill_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("patched", "message"),
    [
        ("index.version_build.embed_shard", "no index could be made from the weights of step 2: .*No space left"),
        ("ragqa.models.dual_encoder.DualEncoder.save_passages", "cannot write the weights .*No space left"),
        ("ragqa.retrieval.vectors.mips.open_index", "index-00000002 is damaged"),
    ],
)
def test_a_refresh_that_fails_is_reported_and_does_not_end_the_run(
    config: PretrainConfig, patched: str, message: str
) -> None:
    """The version of step 2 fails; training searches the version of step 0 until that of step 4 is ready."""
    step, lines, versions = pretrain_loop.train_step, list[str](), []

    def refuse_damaged(folder: Path, *_: object, **__: object) -> None:
        raise DamagedArtefact(f"{folder} is damaged")

    with pytest.MonkeyPatch.context() as patch:

        def break_next_refresh(run: Any, model: Any, index: Any, *others: Any) -> dict[str, float]:
            versions.append(run.step - index.staleness)
            figures = step(run, model, index, *others)
            if run.step == 2:  # a refresh follows this step
                patch.setattr(patched, refuse_damaged if "open" in patched else fill_disk)
            elif run.step == 3:
                patch.undo()
                patch.setattr(pretrain_loop, "train_step", break_next_refresh)
            return figures

        patch.setattr(pretrain_loop, "train_step", break_next_refresh)
        pretrain(replace_settings(config, frozen=0, dev=None), notify=lines.append)
    assert versions == [0, 0, 0, 0, 4, 4]
    (alarm,) = [line for line in lines if "ALARM" in line]
    assert re.search(message, alarm) and alarm.startswith("step 2: ")


def test_training_searches_the_older_version_if_a_new_one_cannot_be_made(
    config: PretrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_version = refresh.make_version

    def fail_at_step_2(plan: Any, step: int, *rest: Any) -> Any:
        if step == 2:
            raise BadInput("the disk is full")
        return make_version(plan, step, *rest)

    monkeypatch.setattr(refresh, "make_version", fail_at_step_2)
    lines: list[str] = []
    pretrain(replace_settings(config, dev=None), notify=lines.append)
    rows = read_rows(config.out)
    assert [row["staleness"] for row in rows if "nll" in row] == [0, 0, 0, 1, 2, 3]
    assert [row["swap_version"] for row in rows if "swap_version" in row] == [0, 4]
    (line,) = [line for line in lines if "disk" in line]
    assert line.startswith("step 4: ALARM: no index could be made from the weights of step 2: the disk is full")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore:unclosed <socket:ResourceWarning")
def test_actors_refresh_the_index_of_a_killed_run(config: PretrainConfig) -> None:
    """An actor of Ray embeds; steps, swaps and the limit of staleness hold after the run was killed and continued."""
    ray = pytest.importorskip("ray")
    config = replace_settings(config, workers=1, steps=12, frozen=0, max_staleness=3)
    with subprocess.Popen(
        [sys.executable, "-c", TRAIN_UNTIL_KILLED, json.dumps(collect_settings(config), default=str), "7"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"here\n"
        process.send_signal(signal.SIGKILL)
    try:
        pretrain(config)
    finally:
        ray.shutdown()
    rows = read_rows(config.out)
    assert [row["step"] for row in rows if "nll" in row] == list(range(12))
    staleness = [row["staleness"] for row in rows if "nll" in row]
    assert max(staleness) <= 3 and 0 < len([row for row in rows if "swap_version" in row]) <= 7
    vectors = open_index(config.out / "index" / f"index-{rows[-1]['step'] - rows[-1]['staleness']:08d}", "flat").vectors
    assert vectors.shape == (90, DualEncoder.load(config.out / "model").passages.width)
