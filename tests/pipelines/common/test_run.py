"""A training run resumes after a kill, keeps its settings and its directory."""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import pytest
import torch
from conftest import wait_for
from safetensors import SafetensorError
from torch import nn

from pipelines.common.config import (
    HeldOutConfig,
    MaskingConfig,
    RefreshConfig,
    TrainingConfig,
    TrainingIndexConfig,
    WritingConfig,
)
from pipelines.common.run import Run, open_run, write_model
from pipelines.common.run_directory import has_checkpoint
from ragqa.errors import BadInput, DamagedArtefact
from ragqa.progress import Bars
from ragqa.settings.checks import report_together, require_positive
from ragqa.settings.command_line import parse_config
from ragqa.settings.groups import FLAT, make_config, replace_settings
from ragqa.training.log import read_rows
from tests.helpers.errors import assert_one_line
from tests.helpers.models import TiedLinear, one_thread


@dataclass(frozen=True, kw_only=True)
class CountingConfig(TrainingConfig):
    """Settings of the recipe below."""

    steps: int = 30
    lr: float = 0.1
    save_every: int = 4
    name: str = "a"
    begun_from: Path | None = None


def recipe(config: CountingConfig, notify: Callable[[str], None] = lambda line: None) -> list[float]:
    """The smallest recipe there is; the losses of its log."""
    torch.manual_seed(0)
    model = TiedLinear()
    with open_run(config, model, name="toy", notify=notify) as run:
        optimizer = run.state.optimizer
        torch.rand(run.step + 1)  # what a run does as it begins or goes on is not the same
        while True:
            if run.is_due(10):
                run.report(recall=float(run.step))
            if run.is_due(config.save_every) and run.step:
                run.save(version=run.step)
            if run.is_done:
                break
            run.begin_step()
            loss = model(torch.randn(4, 3)).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.finish_step(loss=loss.item())
        assert run.saved_extras("version") == [28, 30]
    return [row["loss"] for row in read_rows(config.out) if "loss" in row]


def test_the_time_of_a_step_leaves_out_evaluations_and_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 7 s a step and 100 s of evaluations, indexes and checkpoints before each."""
    now = 0.0
    monkeypatch.setattr("pipelines.common.run.perf_counter", lambda: now)
    config, model = CountingConfig(out=tmp_path, steps=3), TiedLinear()
    monkeypatch.setattr("pipelines.common.run.measure_peak_flops", lambda device: 10.0)
    with open_run(config, model, name="toy") as run:
        while not run.is_done:
            now += 100.0
            run.report(recall=0.5)
            run.begin_step()
            now += 7.0
            run.finish_step(tokens=140, flops=35.0)
    steps = [row for row in read_rows(tmp_path) if "seconds" in row]
    assert [(row["seconds"], row["tokens/s"], row["utilisation"]) for row in steps] == [(7.0, 20, 0.5)] * 3


def test_a_run_shows_its_rate_and_the_time_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("PLAIN_FIRST", "PLAIN_EVERY"):  # a line for each step
        monkeypatch.setattr(f"ragqa.progress.{name}", 0.0)
    with open_run(CountingConfig(out=tmp_path, steps=3), TiedLinear(), name="toy", progress=Bars()) as run:
        for step in run.remaining_steps(100):
            run.finish_step(nll=0.5 + step)
    *steps, total = capsys.readouterr().err.splitlines()
    for number, line in enumerate(steps):
        assert re.fullmatch(rf"toy: {number + 1}/3 steps, [\d,.]+ steps/s, 0:00:00 left, nll {number}\.500", line)
    assert len(steps) == 3 and re.fullmatch(r"toy: 3 steps in \d\.\d s", total)


KILLED = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
from tests.pipelines.common import test_run as own
from pipelines.common.run import Run
slow = Run.finish_step
def stepped(self, **row):
    slow(self, **row)
    if self.step > 9:
        time.sleep(60)  # until it is killed
Run.finish_step = stepped
own.recipe(own.CountingConfig(out=Path(sys.argv[1])))
"""


def test_a_killed_run_continues_with_the_same_steps(tmp_path: Path) -> None:
    lines: list[str] = []
    with one_thread() as environment:
        whole = recipe(CountingConfig(out=tmp_path / "whole"), lines.append)
        config = CountingConfig(out=tmp_path / "killed")
        with subprocess.Popen([sys.executable, "-c", KILLED, str(config.out)], env=environment) as process:
            wait_for(lambda: len(read_rows(config.out)) > 10, 300)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        assert has_checkpoint(config.out) and not (config.out / "checkpoints" / "step-00000030").exists()
        assert recipe(config) == whole
    steps = [row["step"] for row in read_rows(config.out) if "loss" in row]
    assert steps == list(range(30))
    assert lines == ["step 0: recall 0", "step 10: recall 10", "step 20: recall 20", "step 30: recall 30"]


TWO = """
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
import torch
import torch.distributed as dist
from torch.nn.functional import dropout
from pipelines.common.run import Run, open_run
from ragqa.training.step import optimise
from tests.pipelines.common import test_run as own

out, port, rank = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
seen = []

def train(config, until):
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8)
    with open_run(config, model, name="toy") as run:
        while not run.is_done and run.step < until:
            if run.step % 2 == 0 and run.step:
                run.save()
            run.begin_step()
            kept = dropout(torch.ones(1 + 2 * rank, 8))  # the shares of two processes are not of one size
            seen.append(kept[0].count_nonzero().item())
            optimise(model(kept).square().sum(), run.state.optimizer, rate=0.1, clip=9.0, step=run.step)
            run.finish_step()
    dist.barrier()
    return model.weight.tolist()

whole = train(own.CountingConfig(out=out / "whole", steps=6), 6)
masks = list(seen)
broken = own.CountingConfig(out=out / "broken", steps=6)
train(broken, 5)
assert train(broken, 6) == whole
assert seen == [*masks, *masks[:5], *masks[4:]]  # the one before the kill was taken again
print(masks)
dist.destroy_process_group()
"""


@pytest.mark.thorough
def test_each_process_continues_with_its_own_dropout(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    with one_thread() as environment:
        command = [sys.executable, "-c", TWO, str(tmp_path), port]
        both = [subprocess.Popen([*command, rank], env=environment, stdout=subprocess.PIPE, text=True) for rank in "01"]
        first, second = [process.communicate(timeout=300)[0] for process in both]
    assert not any(process.returncode for process in both)
    assert len(json.loads(first)) == 6 and first != second


def test_a_run_refuses_other_settings(tmp_path: Path) -> None:
    config = CountingConfig(out=tmp_path / "run")
    recipe(config)
    assert json.loads((config.out / "config.json").read_text())["lr"] == 0.1
    assert_one_line(
        lambda: recipe(replace(config, lr=0.2, name="b")),
        BadInput,
        "another directory",
        "lr 0.1, not 0.2",
        "name a, not b",
    )
    recipe(replace(config, save_every=2))  # changes no step
    other = tmp_path / "moved"
    config.out.rename(other)
    recipe(replace(config, out=other))


def test_a_run_without_a_checkpoint_may_begin_with_other_settings(tmp_path: Path) -> None:
    """A loss that was not finite asks for another learning rate."""
    config = CountingConfig(out=tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Run, "finish_step", lambda self, **row: (_ for _ in ()).throw(KeyboardInterrupt))
        recipe(config)
    assert len(recipe(replace(config, lr=0.05))) == 30
    with pytest.raises(BadInput, match=r"other settings \(lr 0\.05, not 0\.1\)"):
        recipe(config)


@pytest.mark.parametrize("name", ["manifest.json", "config.json", "notes.md", "model/thesis.txt"])
def test_a_run_refuses_a_directory_of_something_else(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text('{"model_type": "bart"}')
    first = Path(name).parts[0]
    assert_one_line(
        lambda: recipe(CountingConfig(out=tmp_path)),
        BadInput,
        f"is not the directory of a run, because it holds {first}",
        "another directory",
    )
    assert (tmp_path / name).read_text() == '{"model_type": "bart"}'
    assert [file.name for file in tmp_path.iterdir() if not file.name.startswith(".")] == [first]


def test_a_run_refuses_other_inputs(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    (weights / "tower").mkdir(parents=True)
    (weights / "tower" / "model.safetensors").write_bytes(b"one")
    config = CountingConfig(out=tmp_path / "run", begun_from=weights)
    losses = recipe(config)
    settings = config.out / "config.json"
    before = settings.stat().st_ino
    assert recipe(config) == losses and settings.stat().st_ino == before  # not written again
    weights.rename(tmp_path / "moved")
    weights = tmp_path / "moved"
    config = replace(config, begun_from=weights)
    assert recipe(config) == losses  # from the same, wherever it lies
    (weights / "tower" / "model.safetensors").write_bytes(b"two")
    assert_one_line(lambda: recipe(config), BadInput, "another directory", "what is in begun_from")
    settings.write_text("")
    assert_one_line(lambda: recipe(config), DamagedArtefact, f"{settings} is damaged", "another directory")


def test_a_run_is_locked(tmp_path: Path) -> None:
    model = nn.Linear(1, 1)
    config = CountingConfig(out=tmp_path)
    with open_run(config, model, name="one"):
        assert_one_line(
            lambda: open_run(config, model, name="two").__enter__(),
            BadInput,
            "another process is at work",
        )


@dataclass(frozen=True, kw_only=True)
class CheckedConfig(TrainingConfig):
    """Settings with checks of their own."""

    out: Path = Path("run")
    steps: int = 10
    lr: float = 0.1
    k: int = 1
    index: Annotated[TrainingIndexConfig, FLAT] = TrainingIndexConfig()
    refresh: Annotated[RefreshConfig, FLAT] = RefreshConfig()

    @report_together()
    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "k")


def test_all_settings_out_of_range_are_named_at_once() -> None:
    CheckedConfig(warmup=10, dropout=0.0)
    message = "dropout = 1.0, warmup = 11, k = 0: out of range (dropout: 0 or more and below 1; warmup: at most the 10 "
    assert_one_line(lambda: CheckedConfig(warmup=11, dropout=1.0, k=0), BadInput, message, "k: above 0)")


def test_groups_check_themselves() -> None:
    RefreshConfig(refresh_every=5, max_staleness=5)
    for make_group, text in (
        (lambda: TrainingIndexConfig(kind="tree"), "kind = tree: out of range (kind: one of flat, hnsw"),
        (lambda: RefreshConfig(refresh_every=5, max_staleness=4), "max_staleness = 4: out of range (max_st"),
        (lambda: RefreshConfig(refresh_every=None, max_staleness=4), "there is no refresh to wait for"),
        (lambda: HeldOutConfig(sample=0, eval_every=0), "sample = 0, eval_every = 0: out of range"),
        (lambda: MaskingConfig(masking="all", spans=0), "masking = all, spans = 0: out of range"),
        (lambda: WritingConfig(generator=Path("g"), max_answer=1), "max_answer = 1: out of range"),
    ):
        assert_one_line(make_group, BadInput, text)


def test_settings_out_of_range_in_several_groups_are_named_at_once(tmp_path: Path) -> None:
    settings = {"k": 0, "kind": "tree", "refresh-every": 0}
    (tmp_path / "c.json").write_text(json.dumps(settings))
    options = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
    for make in (
        lambda: parse_config(CheckedConfig, None, options),
        lambda: parse_config(CheckedConfig, None, ["--config", str(tmp_path / "c.json")]),
        lambda: make_config(CheckedConfig, k=0, kind="tree", refresh_every=0),
        lambda: replace_settings(CheckedConfig(), k=0, kind="tree", refresh_every=0),
    ):
        assert_one_line(make, BadInput, "kind = tree", "refresh_every = 0", "k = 0", "k: above 0")
    assert CheckedConfig(k=1).k == 1, "later checks are not collected"
    assert_one_line(lambda: CheckedConfig(k=0), BadInput, "k = 0: out of range")


def test_a_model_that_cannot_be_written_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    model = SimpleNamespace(save=fail)
    assert_one_line(lambda: write_model(model, tmp_path / "model"), BadInput, "model", "No space left on device")
    assert not (tmp_path / "model").exists()
