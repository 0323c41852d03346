"""Training continues from a checkpoint with the same steps, and damaged checkpoints are named."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from torch import nn

from ragqa.errors import BadInput, DamagedArtefact
from ragqa.training import checkpoint
from ragqa.training.checkpoint import TrainState
from tests.helpers.errors import assert_one_line
from tests.helpers.models import TiedLinear


def make_state(seed: int) -> TrainState:
    torch.manual_seed(seed)
    model = TiedLinear()
    return TrainState(model, torch.optim.AdamW(model.parameters(), lr=0.1))


def train(state: TrainState, steps: int) -> list[float]:
    """Take steps on random rows and return their losses."""
    losses = []
    for _ in range(steps):
        loss = state.model(torch.randn(4, 3)).square().sum()
        state.optimizer.zero_grad()
        loss.backward()
        state.optimizer.step()
        state.step += 1
        losses.append(loss.item())
    return losses


def test_a_restored_state_continues_with_the_same_steps(tmp_path: Path) -> None:
    first = make_state(0)
    train(first, 3)
    first.extra = {"index": 2}
    path = checkpoint.save(first, tmp_path)
    expected = train(first, 4)
    restored = make_state(7)
    assert checkpoint.restore(restored, tmp_path)
    assert (restored.step, restored.extra) == (3, {"index": 2})
    assert restored.model.one.weight is restored.model.other.weight
    assert train(restored, 4) == expected
    assert {file.suffix for file in path.iterdir()} == {".safetensors", ".json"}  # nothing has to be unpickled


def test_restore_without_a_checkpoint_changes_nothing(tmp_path: Path) -> None:
    fresh = make_state(0)
    assert not checkpoint.restore(fresh, tmp_path / "none")
    assert fresh.step == 0 and not fresh.optimizer.state


def test_the_newest_whole_checkpoint_is_restored(tmp_path: Path) -> None:
    one = make_state(0)
    for step in (1, 2, 3):
        train(one, 1)
        one.extra = {"version": step}
        checkpoint.save(one, tmp_path)
    assert [path.name for path in checkpoint.list_checkpoints(tmp_path)] == ["step-00000002", "step-00000003"]
    assert [extra["version"] for extra in checkpoint.read_extras(tmp_path)] == [2, 3]
    (tmp_path / ".step-00000009.writing").mkdir()  # left by a kill during writing
    other = make_state(1)
    checkpoint.restore(other, tmp_path)
    assert other.step == 3
    train(one, 1)
    checkpoint.save(one, tmp_path, keep=1)
    assert [path.name for path in checkpoint.list_checkpoints(tmp_path)] == ["step-00000004"]


def test_an_existing_checkpoint_of_a_step_is_not_replaced(tmp_path: Path) -> None:
    """A resumed run comes to the step again; a kill while replacing it would leave no checkpoint."""
    one = make_state(0)
    train(one, 1)
    path = checkpoint.save(one, tmp_path)
    before = path.stat().st_ino
    assert checkpoint.save(one, tmp_path) == path and path.stat().st_ino == before


def test_a_full_disk_is_reported_and_earlier_checkpoints_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = make_state(0)
    before = checkpoint.save(one, tmp_path)
    train(one, 1)

    def fill_disk(*_: object, **__: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(checkpoint, "save_file", fill_disk)
    assert_one_line(lambda: checkpoint.save(one, tmp_path), BadInput, "step-00000001", "No space left on device")
    assert checkpoint.list_checkpoints(tmp_path) == [before]


def test_checkpoints_of_other_models_and_truncated_ones_are_named(tmp_path: Path) -> None:
    saved = make_state(0)
    train(saved, 1)
    path = checkpoint.save(saved, tmp_path)
    model = nn.Linear(3, 3)
    other = TrainState(model, torch.optim.AdamW(model.parameters()))
    assert_one_line(
        lambda: checkpoint.restore(other, tmp_path), DamagedArtefact, str(path), "start in an empty directory"
    )
    file = path / "optimizer.safetensors"
    file.write_bytes(file.read_bytes()[:40])
    assert_one_line(lambda: checkpoint.restore(make_state(0), tmp_path), DamagedArtefact, str(path))


def test_a_changed_byte_of_a_checkpoint_is_detected(tmp_path: Path) -> None:
    saved = make_state(0)
    train(saved, 1)
    first = checkpoint.save(saved, tmp_path)
    train(saved, 1)
    last = checkpoint.save(saved, tmp_path)
    weights = last / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    message = "model.safetensors has changed since it was written"
    assert_one_line(
        lambda: checkpoint.restore(make_state(0), tmp_path),
        DamagedArtefact,
        message,
        "delete it to resume from the one",
    )
    shutil.rmtree(last)
    assert checkpoint.restore(other := make_state(0), tmp_path) and other.step == int(first.name[-8:])
