"""What all recipes share: gradients in parts, checkpoints, the log, and a run that goes on after a kill."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import ROOT, wait_for
from safetensors import SafetensorError
from torch import Tensor, nn

from pipelines.common.config import require
from pipelines.common.run import Run, begun, running, write_model
from ragqa.errors import BadInput, DamagedArtefact, NonFiniteLoss
from ragqa.objectives import in_batch_nll
from ragqa.training import checkpoint, gradient_cache
from ragqa.training.checkpoint import TrainState
from ragqa.training.log import MetricLog, read_rows
from ragqa.training.step import apply, optimise

# Gradients in parts


def towers(dropout: float) -> nn.ModuleList:
    torch.manual_seed(0)
    sides = [nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 4)) for _ in range(2)]
    return nn.ModuleList(sides).double()


def gradients(model: nn.Module) -> list[Tensor]:
    found = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    assert len(found) == len(list(model.parameters()))
    model.zero_grad(set_to_none=True)
    return found


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("sizes", [([2, 2, 3], [4, 1]), ([7], [2, 3]), ([7], [5])], ids=str)
def test_gradients_in_parts_are_those_of_the_whole(sizes: tuple[list[int], list[int]], dropout: float) -> None:
    """The plain gradient keeps all activations; random numbers are drawn by the same parts in the same order."""
    model = towers(dropout)
    rows = [torch.randn(7, 5, dtype=torch.double), torch.randn(5, 5, dtype=torch.double)]
    own = torch.tensor([0, 1, 2, 3, 4, 0, 1])
    sides = [
        [lambda tower=tower, part=part: tower(part) for part in side.split(cut)]
        for tower, side, cut in zip(model, rows, sizes, strict=True)
    ]

    def loss(questions: Tensor, passages: Tensor) -> Tensor:
        return in_batch_nll(questions, passages, own)

    torch.manual_seed(1)
    plain = loss(*(torch.cat([part() for part in side]) for side in sides))
    plain.backward()
    expected, after = gradients(model), torch.rand(3)
    torch.manual_seed(1)
    value = gradient_cache.backward(sides, loss)
    found, after_parts = gradients(model), torch.rand(3)
    assert value.item() == pytest.approx(plain.item(), abs=1e-12) and not value.requires_grad
    assert all(torch.allclose(a, b, atol=1e-6, rtol=0) for a, b in zip(found, expected, strict=True))
    assert any(gradient.abs().max() > 1e-3 for gradient in expected)
    assert torch.equal(after_parts, after)  # the second pass leaves no trace in the random numbers


def test_gradients_in_parts_are_added_to_those_that_are_there() -> None:
    layer = nn.Linear(3, 2, bias=False).double()
    rows = torch.randn(4, 3, dtype=torch.double)
    layer.weight.grad = torch.ones_like(layer.weight)
    gradient_cache.backward([[lambda: layer(rows[:1]), lambda: layer(rows[1:])]], lambda vectors: vectors.sum())
    assert torch.allclose(layer.weight.grad, 1 + rows.sum(0).expand(2, 3))


def test_no_step_is_taken_on_what_is_not_finite() -> None:
    layer = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(layer.parameters())
    before = layer.weight.detach().clone()
    layer.weight.grad = torch.tensor([[1.0, float("nan")]])
    one_line(lambda: apply(optimizer, rate=1.0, clip=1.0, step=7), NonFiniteLoss, "the gradient is nan at step 7")
    loss = layer(torch.tensor([[float("inf"), 0.0]])).sum()
    one_line(lambda: optimise(loss, optimizer, rate=1.0, clip=1.0, step=8), NonFiniteLoss, "inf at step 8")
    assert torch.equal(layer.weight, before)
    layer.weight.grad = torch.tensor([[3.0, 4.0]])
    assert apply(optimizer, rate=0.5, clip=1.0, step=9) == 5.0
    assert torch.allclose(layer.weight, before - 0.5 * torch.tensor([[0.6, 0.8]]), atol=1e-4)


# Checkpoints


class Tied(nn.Module):
    """Two names for one weight, as an encoder and its language-model head have."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 3)
        self.other.weight = self.one.weight

    def forward(self, rows: Tensor) -> Tensor:
        return self.other(torch.relu(self.one(rows)))


def state(seed: int) -> TrainState:
    torch.manual_seed(seed)
    model = Tied()
    return TrainState(model, torch.optim.AdamW(model.parameters(), lr=0.1))


def train(state: TrainState, steps: int) -> list[float]:
    """Steps on random rows; their losses."""
    losses = []
    for _ in range(steps):
        loss = state.model(torch.randn(4, 3)).square().sum()
        state.optimizer.zero_grad()
        loss.backward()
        state.optimizer.step()
        state.step += 1
        losses.append(loss.item())
    return losses


def test_what_is_restored_takes_the_very_next_steps(tmp_path: Path) -> None:
    first = state(0)
    train(first, 3)
    first.extra = {"index": 2}
    path = checkpoint.save(first, tmp_path)
    expected = train(first, 4)
    again = state(7)
    assert checkpoint.restore(again, tmp_path)
    assert (again.step, again.extra) == (3, {"index": 2})
    assert again.model.one.weight is again.model.other.weight
    assert train(again, 4) == expected
    assert {file.suffix for file in path.iterdir()} == {".safetensors", ".json"}  # nothing that is unpickled


def test_nothing_is_restored_from_nothing(tmp_path: Path) -> None:
    begun = state(0)
    assert not checkpoint.restore(begun, tmp_path / "none")
    assert begun.step == 0 and not begun.optimizer.state


def test_the_newest_whole_checkpoint_counts(tmp_path: Path) -> None:
    one = state(0)
    for step in (1, 2, 3):
        train(one, 1)
        one.extra = {"version": step}
        checkpoint.save(one, tmp_path)
    assert [path.name for path in checkpoint.checkpoints(tmp_path)] == ["step-00000002", "step-00000003"]
    assert [extra["version"] for extra in checkpoint.extras(tmp_path)] == [2, 3]
    (tmp_path / ".step-00000009.writing").mkdir()  # a kill while it was written
    other = state(1)
    checkpoint.restore(other, tmp_path)
    assert other.step == 3
    train(one, 1)
    checkpoint.save(one, tmp_path, keep=1)
    assert [path.name for path in checkpoint.checkpoints(tmp_path)] == ["step-00000004"]


def test_a_step_is_saved_once(tmp_path: Path) -> None:
    """A run that goes on from a checkpoint comes by it again: to replace it would leave none at a kill."""
    one = state(0)
    train(one, 1)
    path = checkpoint.save(one, tmp_path)
    before = path.stat().st_ino
    assert checkpoint.save(one, tmp_path) == path and path.stat().st_ino == before


def one_line(call: Callable[[], object], kind: type[Exception], *parts: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    told = str(caught.value)
    assert "\n" not in told and all(part in told for part in parts), told


def test_a_full_disk_is_one_line_and_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = state(0)
    before = checkpoint.save(one, tmp_path)
    train(one, 1)

    def full(*_: object, **__: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(checkpoint, "save_file", full)
    one_line(lambda: checkpoint.save(one, tmp_path), BadInput, "step-00000001", "No space left on device")
    assert checkpoint.checkpoints(tmp_path) == [before]
    linear = SimpleNamespace(save=lambda folder: full())
    one_line(lambda: write_model(linear, tmp_path / "model"), BadInput, "model", "No space left on device")
    assert not (tmp_path / "model").exists()


def test_checkpoints_that_do_not_fit_are_named(tmp_path: Path) -> None:
    saved = state(0)
    train(saved, 1)
    path = checkpoint.save(saved, tmp_path)
    model = nn.Linear(3, 3)
    other = TrainState(model, torch.optim.AdamW(model.parameters()))
    one_line(lambda: checkpoint.restore(other, tmp_path), DamagedArtefact, str(path), "begin in an empty directory")
    file = path / "optimizer.safetensors"
    file.write_bytes(file.read_bytes()[:40])
    one_line(lambda: checkpoint.restore(state(0), tmp_path), DamagedArtefact, str(path))


def test_a_byte_of_a_checkpoint_that_changed_is_noticed(tmp_path: Path) -> None:
    saved = state(0)
    train(saved, 1)
    first = checkpoint.save(saved, tmp_path)
    train(saved, 1)
    last = checkpoint.save(saved, tmp_path)
    weights = last / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    told = "model.safetensors is not as it was written"
    one_line(lambda: checkpoint.restore(state(0), tmp_path), DamagedArtefact, told, "delete it to go on from the one")
    shutil.rmtree(last)
    assert checkpoint.restore(other := state(0), tmp_path) and other.step == int(first.name[-8:])


# The log


def test_a_log_forgets_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    log = MetricLog(tmp_path, 0)
    for step in range(5):
        log.write(step, loss=step / 2)
    log.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "lo')  # a kill while it was written
    assert [row["step"] for row in read_rows(tmp_path)] == [0, 1, 2, 3, 4]
    log = MetricLog(tmp_path, 3)
    log.write(3, loss=9.0)
    log.close()
    assert [(row["step"], row["loss"]) for row in read_rows(tmp_path)] == [(0, 0), (1, 0.5), (2, 1.0), (3, 9.0)]
    assert read_rows(tmp_path / "none") == []


# Runs


@dataclass(frozen=True, kw_only=True)
class Config:
    """Of the recipe below."""

    out: Path
    steps: int = 30
    lr: float = 0.1
    save_every: int = 4
    name: str = "a"
    seed: int = 0
    begun_from: Path | None = None
    device: str = "cpu"


def recipe(config: Config, notify: Callable[[str], None] = lambda line: None) -> list[float]:
    """The smallest recipe there is; the losses of its log."""
    torch.manual_seed(0)
    model = Tied()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    with running(config, model, optimizer, name="toy", notify=notify) as run:
        torch.rand(run.step + 1)  # what a run does as it begins or goes on is not the same
        while True:
            if run.due(10):
                run.told(recall=float(run.step))
            if run.due(config.save_every) and run.step:
                run.save(version=run.step)
            if run.done:
                break
            run.begin()
            loss = model(torch.randn(4, 3)).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.stepped(loss=loss.item())
        assert run.kept("version") == [28, 30]
    return [row["loss"] for row in read_rows(config.out) if "loss" in row]


def test_a_step_takes_what_it_takes_and_not_what_is_between_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 7 s a step and 100 s of evaluations, indexes and checkpoints before each."""
    now = 0.0
    monkeypatch.setattr("pipelines.common.run.perf_counter", lambda: now)
    config, model = Config(out=tmp_path, steps=3), Tied()
    monkeypatch.setattr("pipelines.common.run.peak_flops", lambda device: 10.0)
    with running(config, model, torch.optim.AdamW(model.parameters()), name="toy") as run:
        while not run.done:
            now += 100.0
            run.told(recall=0.5)
            run.begin()
            now += 7.0
            run.stepped(tokens=140, flops=35.0)
    steps = [row for row in read_rows(tmp_path) if "seconds" in row]
    assert [(row["seconds"], row["tokens/s"], row["utilisation"]) for row in steps] == [(7.0, 20, 0.5)] * 3


KILLED = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
from tests.ragqa.training import test_training as own
from pipelines.common.run import Run
slow = Run.stepped
def stepped(self, **row):
    slow(self, **row)
    if self.step > 9:
        time.sleep(60)  # until it is killed
Run.stepped = stepped
own.recipe(own.Config(out=Path(sys.argv[1])))
"""


@contextmanager
def one_thread() -> Iterator[dict[str, str]]:
    """One thread here, and the environment of a process with one: sums come out the same."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
        yield {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    finally:
        torch.set_num_threads(before)


def test_a_run_that_was_killed_takes_the_steps_of_one_that_was_not(tmp_path: Path) -> None:
    told: list[str] = []
    with one_thread() as environment:
        whole = recipe(Config(out=tmp_path / "whole"), told.append)
        config = Config(out=tmp_path / "killed")
        with subprocess.Popen([sys.executable, "-c", KILLED, str(config.out)], env=environment) as process:
            wait_for(lambda: len(read_rows(config.out)) > 10, 300)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        assert begun(config.out) and not (config.out / "checkpoints" / "step-00000030").exists()
        assert recipe(config) == whole
    steps = [row["step"] for row in read_rows(config.out) if "loss" in row]
    assert steps == list(range(30))
    assert told == ["step 0: recall 0", "step 10: recall 10", "step 20: recall 20", "step 30: recall 30"]


TWO = """
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
import torch
import torch.distributed as dist
from torch.nn.functional import dropout
from pipelines.common.run import Run, running
from ragqa.training.step import optimise
from tests.ragqa.training import test_training as own

out, port, rank = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
seen = []

def train(config, until):
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8)
    with running(config, model, torch.optim.AdamW(model.parameters()), name="toy") as run:
        while not run.done and run.step < until:
            if run.step % 2 == 0 and run.step:
                run.save()
            run.begin()
            kept = dropout(torch.ones(1 + 2 * rank, 8))  # the shares of two processes are not of one size
            seen.append(kept[0].count_nonzero().item())
            optimise(model(kept).square().sum(), run.state.optimizer, rate=0.1, clip=9.0, step=run.step)
            run.stepped()
    dist.barrier()
    return model.weight.tolist()

whole = train(own.Config(out=out / "whole", steps=6), 6)
masks = list(seen)
broken = own.Config(out=out / "broken", steps=6)
train(broken, 5)
assert train(broken, 6) == whole
assert seen == [*masks, *masks[:5], *masks[4:]]  # the one before the kill was taken again
print(masks)
dist.destroy_process_group()
"""


@pytest.mark.thorough
def test_two_processes_go_on_with_the_dropout_of_each(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    with one_thread() as environment:
        command = [sys.executable, "-c", TWO, str(tmp_path), port]
        both = [subprocess.Popen([*command, rank], env=environment, stdout=subprocess.PIPE, text=True) for rank in "01"]
        first, second = [process.communicate(timeout=300)[0] for process in both]
    assert not any(process.returncode for process in both)
    assert len(json.loads(first)) == 6 and first != second


def test_a_run_keeps_its_settings(tmp_path: Path) -> None:
    config = Config(out=tmp_path / "run")
    recipe(config)
    assert json.loads((config.out / "config.json").read_text())["lr"] == 0.1
    one_line(
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
    config = Config(out=tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Run, "stepped", lambda self, **row: (_ for _ in ()).throw(KeyboardInterrupt))
        recipe(config)
    assert len(recipe(replace(config, lr=0.05))) == 30
    with pytest.raises(BadInput, match=r"other settings \(lr 0\.05, not 0\.1\)"):
        recipe(config)


@pytest.mark.parametrize("name", ["manifest.json", "config.json", "notes.md", "model/thesis.txt"])
def test_a_run_does_not_begin_in_something_else(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text('{"model_type": "bart"}')
    first = Path(name).parts[0]
    one_line(lambda: recipe(Config(out=tmp_path)), BadInput, f"is no run, but holds {first} of", "another directory")
    assert (tmp_path / name).read_text() == '{"model_type": "bart"}'
    assert [file.name for file in tmp_path.iterdir() if not file.name.startswith(".")] == [first]


def test_a_run_keeps_to_what_it_began_from(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    (weights / "tower").mkdir(parents=True)
    (weights / "tower" / "model.safetensors").write_bytes(b"one")
    config = Config(out=tmp_path / "run", begun_from=weights)
    losses = recipe(config)
    settings = config.out / "config.json"
    before = settings.stat().st_ino
    assert recipe(config) == losses and settings.stat().st_ino == before  # not written again
    weights.rename(tmp_path / "moved")
    weights = tmp_path / "moved"
    config = replace(config, begun_from=weights)
    assert recipe(config) == losses  # from the same, wherever it lies
    (weights / "tower" / "model.safetensors").write_bytes(b"two")
    one_line(lambda: recipe(config), BadInput, "another directory", "what is in begun_from")
    settings.write_text("")
    one_line(lambda: recipe(config), DamagedArtefact, f"{settings} is damaged", "another directory")


def test_two_processes_do_not_share_a_run(tmp_path: Path) -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters())
    config = Config(out=tmp_path)
    with running(config, model, optimizer, name="one"):
        one_line(
            lambda: running(config, model, optimizer, name="two").__enter__(), BadInput, "another process is at work"
        )


def test_all_that_is_wrong_is_told_at_once() -> None:
    meant = SimpleNamespace(steps=10, warmup=10, dropout=0.0, max_block=4, k=None)
    require(meant)
    require(meant, a=(True, "anything"))
    wrong = SimpleNamespace(steps=10, warmup=11, dropout=1.0, max_block=3, k=0, a=2, b=3)
    told = "k = 0, warmup = 11, max_block = 3, dropout = 1.0, a = 2: out of range (k: above 0; warmup: at most the 10 "
    one_line(lambda: require(wrong, a=(False, "3 or more"), b=(True, "none")), BadInput, told, "below 1; a: 3 or more)")
    one_line(lambda: require(SimpleNamespace(kind="tree")), BadInput, "kind = tree: out", "kind: one of flat, hnsw")
    every = SimpleNamespace(refresh_every=5, max_staleness=4)
    one_line(lambda: require(every), BadInput, "max_staleness = 4: out", "refresh_every or more")
    every.refresh_every = None
    one_line(lambda: require(every), BadInput, "there is no refresh to wait for")
