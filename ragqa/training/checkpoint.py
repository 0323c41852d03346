"""Checkpoints: weights, optimizer, random state, step and what else a recipe keeps; nothing is pickled."""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn

from ragqa import artefacts
from ragqa.artefacts import as_bad_input
from ragqa.errors import DamagedArtefact

STATE = "state.json"
"""Written last: a directory with it is a whole checkpoint."""


@dataclass
class TrainState:
    """All that a training step changes: a run restored from it takes the very next step."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: int = 0
    extra: dict[str, Any] = field(default_factory=dict)
    """What a recipe keeps beside, as JSON has it: the version of its index, say."""


def save(state: TrainState, folder: Path, *, keep: int = 2) -> Path:
    """Write ``folder/step-N`` whole or not at all, and delete all but the newest ``keep``.

    One that is there stays: a run that goes on from it comes by its step again, in the same state.

    Raises:
        BadInput: the disk is full, say.
    """
    target = folder / f"step-{state.step:08d}"
    if target in checkpoints(folder):
        return target
    aside = folder / f".{target.name}.writing"
    with as_bad_input(target):
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        save_model(state.model, str(aside / "model.safetensors"))  # tied weights once
        save_file(_optimizer_tensors(state.optimizer), aside / "optimizer.safetensors")
        save_file(_random_states(), aside / "random.safetensors")
        sums = {file.name: artefacts.checksum(file) for file in sorted(aside.iterdir())}
        (aside / STATE).write_text(json.dumps({"step": state.step, "extra": state.extra, "files": sums}))
        shutil.rmtree(target, ignore_errors=True)  # what a kill left of deleting it
        aside.rename(target)
    for old in checkpoints(folder)[:-keep]:
        (old / STATE).unlink()  # first: half of a checkpoint is none
        shutil.rmtree(old)
    return target


def checkpoints(folder: Path) -> list[Path]:
    """The whole checkpoints under ``folder``, oldest first."""
    return sorted(p for p in folder.glob("step-*") if (p / STATE).is_file())


def extras(folder: Path) -> list[dict[str, Any]]:
    """What the checkpoints under ``folder`` keep beside, oldest first."""
    return [json.loads((path / STATE).read_text())["extra"] for path in checkpoints(folder)]


def restore(state: TrainState, folder: Path) -> bool:
    """Load the newest checkpoint under ``folder`` into ``state``; False where there is none.

    Raises:
        DamagedArtefact: it is not of this model, or not whole.
    """
    found = checkpoints(folder)
    if not found:
        return False
    path = found[-1]
    other = "delete it to go on from the one before, or" * (len(found) > 1)
    try:
        row = json.loads((path / STATE).read_text())
        for name, digest in row.get("files", {}).items():  # earlier versions have none
            if artefacts.checksum(path / name) != digest:
                raise ValueError(f"{name} is not as it was written")
        load_model(state.model, path / "model.safetensors")
        saved = load_file(path / "optimizer.safetensors")
        random = load_file(path / "random.safetensors")
    except Exception as error:  # safetensors raises its own kinds
        reason = str(error).strip().split("\n")[0]
        told = f"{path} does not fit this run ({reason}): {other} begin in an empty directory"
        raise DamagedArtefact(" ".join(told.split())) from error
    for index, parameter in enumerate(_parameters(state.optimizer)):
        entries = {
            k.split("/")[1]: v.to(_place(k, parameter)) for k, v in saved.items() if k.split("/")[0] == str(index)
        }
        if entries:
            state.optimizer.state[parameter] = entries
    torch.set_rng_state(random["cpu"])
    if "cuda" in random and torch.cuda.is_available():
        torch.cuda.set_rng_state(random["cuda"])
    state.step, state.extra = row["step"], row["extra"]
    return True


def _place(name: str, parameter: nn.Parameter) -> torch.device:
    """Where an entry lives: moments beside their parameter, the count of steps where torch keeps it."""
    return torch.device("cpu") if name.endswith("/step") else parameter.device


def _random_states() -> dict[str, torch.Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _parameters(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    return {
        f"{index}/{name}": torch.as_tensor(value).contiguous()
        for index, parameter in enumerate(_parameters(optimizer))
        for name, value in optimizer.state.get(parameter, {}).items()
    }
