"""Checkpoints: weights, optimizer, random state and step, each in safetensors, none pickled."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn


@dataclass
class TrainState:
    """All that a training step changes: a run restored from it takes the very next step."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: int = 0


def save(state: TrainState, folder: Path, *, keep: int = 2) -> Path:
    """Write ``folder/step-N`` whole or not at all, and delete all but the newest ``keep``."""
    target = folder / f"step-{state.step:08d}"
    aside = folder / f".{target.name}.writing"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    save_file({k: v.contiguous() for k, v in state.model.state_dict().items()}, aside / "model.safetensors")
    save_file(_optimizer_tensors(state.optimizer), aside / "optimizer.safetensors")
    save_file({"torch": torch.get_rng_state()}, aside / "random.safetensors")
    (aside / "state.json").write_text(json.dumps({"step": state.step}))
    shutil.rmtree(target, ignore_errors=True)
    aside.rename(target)
    for old in checkpoints(folder)[:-keep]:
        shutil.rmtree(old)
    return target


def checkpoints(folder: Path) -> list[Path]:
    """The whole checkpoints under ``folder``, oldest first."""
    return sorted(p for p in folder.glob("step-*") if (p / "state.json").is_file())


def restore(state: TrainState, folder: Path) -> bool:
    """Load the newest checkpoint under ``folder`` into ``state``; False where there is none."""
    found = checkpoints(folder)
    if not found:
        return False
    path = found[-1]
    state.model.load_state_dict(load_file(path / "model.safetensors"))
    saved = load_file(path / "optimizer.safetensors")
    for index, parameter in enumerate(_parameters(state.optimizer)):
        entries = {k.split("/")[1]: v for k, v in saved.items() if k.split("/")[0] == str(index)}
        if entries:
            state.optimizer.state[parameter] = entries
    torch.set_rng_state(load_file(path / "random.safetensors")["torch"])
    state.step = json.loads((path / "state.json").read_text())["step"]
    return True


def _parameters(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    return {
        f"{index}/{name}": torch.as_tensor(value).contiguous()
        for index, parameter in enumerate(_parameters(optimizer))
        for name, value in optimizer.state.get(parameter, {}).items()
    }
