"""Checkpoints with weights, optimizer, random states, step and values of the recipe."""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import Tensor, nn

from ragqa import artefacts
from ragqa.errors import DamagedArtefact, summarize_error

STATE = "state.json"
"""File that is written last, so that it marks a complete checkpoint."""


@dataclass
class TrainState:
    """Parts of a run that training changes; a checkpoint adds torch's random states."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: int = 0
    """Number of completed steps."""
    extra: dict[str, Any] = field(default_factory=dict)
    """JSON values of the recipe, for example the version of its index."""


def save(state: TrainState, folder: Path, *, keep: int = 2) -> Path:
    """Write a checkpoint and delete all but the newest ``keep`` checkpoints.

    If the folder already has a checkpoint of this step, from which the run was resumed, nothing is written or deleted.

    Args:
        state: state of the run.
        folder: directory of all checkpoints of the run.
        keep: number of checkpoints to keep, including the new one; at least 1.

    Returns:
        Directory of the checkpoint, ``folder/step-N``.

    Raises:
        BadInput: the checkpoint cannot be written, for example because the disk is full.
    """
    target = folder / f"step-{state.step:08d}"
    if target in list_checkpoints(folder):
        return target
    with artefacts.report_write_errors(target), artefacts.create_directory(target) as temporary:
        save_model(state.model, str(temporary / "model.safetensors"))  # unlike save_file, writes tied weights once
        save_file(_get_optimizer_tensors(state.optimizer), temporary / "optimizer.safetensors")
        random = {"cpu": torch.get_rng_state()}
        if torch.cuda.is_available():
            random["cuda"] = torch.cuda.get_rng_state()
        save_file(random, temporary / "random.safetensors")
        checksums = {file.name: artefacts.checksum(file) for file in sorted(temporary.iterdir())}
        (temporary / STATE).write_text(json.dumps({"step": state.step, "extra": state.extra, "files": checksums}))
    for old in list_checkpoints(folder)[:-keep]:
        (old / STATE).unlink()  # first, so that a half-deleted checkpoint does not count as complete
        shutil.rmtree(old)
    return target


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the directories of the complete checkpoints in ``folder``, oldest first."""
    return sorted(path for path in folder.glob("step-*") if (path / STATE).is_file())


def read_extras(folder: Path) -> list[dict[str, Any]]:
    """Return the ``extra`` values of the complete checkpoints in ``folder``, oldest first."""
    return [json.loads((path / STATE).read_text())["extra"] for path in list_checkpoints(folder)]


def restore(state: TrainState, folder: Path) -> bool:
    """Load the newest checkpoint in ``folder`` into ``state``; return False if there is none.

    The checkpoint also restores the states of torch's random generators.

    Args:
        state: state to overwrite.
        folder: directory of all checkpoints of the run.

    Raises:
        DamagedArtefact: the checkpoint is damaged or belongs to another model.
    """
    checkpoints = list_checkpoints(folder)
    if not checkpoints:
        return False
    path = checkpoints[-1]
    try:
        row = json.loads((path / STATE).read_text())
        for name, digest in row.get("files", {}).items():  # checkpoints of earlier versions list no files
            if artefacts.checksum(path / name) != digest:
                raise ValueError(f"{name} has changed since it was written")
        load_model(state.model, path / "model.safetensors")
        tensors = load_file(path / "optimizer.safetensors")
        random = load_file(path / "random.safetensors")
    except Exception as error:  # safetensors raises its own exception types
        reason = summarize_error(error)
        earlier = "delete it to resume from the one before it, or " if len(checkpoints) > 1 else ""
        raise DamagedArtefact(
            f"{path} does not fit this run ({reason}): {earlier}start in an empty directory"
        ) from error
    parameters = _list_parameters(state.optimizer)
    for key, value in tensors.items():
        index, name = key.split("/")
        parameter = parameters[int(index)]
        # Step counts stay on the CPU, as in torch.
        state.optimizer.state[parameter][name] = value if name == "step" else value.to(parameter.device)
    torch.set_rng_state(random["cpu"])
    if "cuda" in random and torch.cuda.is_available():
        torch.cuda.set_rng_state(random["cuda"])
    state.step, state.extra = row["step"], row["extra"]
    return True


def _list_parameters(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _get_optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"{index}/{name}": torch.as_tensor(value).contiguous()
        for index, parameter in enumerate(_list_parameters(optimizer))
        for name, value in optimizer.state.get(parameter, {}).items()
    }
