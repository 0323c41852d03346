"""Record of the settings and inputs of a run, which are compared when the run continues.

Functions import torch only when they run, because command lines import this module, and --help does not need torch.
"""

import hashlib
import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from pipelines.common.config import TrainingConfig
from ragqa import artefacts
from ragqa.artefacts.lock import hold_lock
from ragqa.artefacts.machine import describe_hardware
from ragqa.errors import BadInput, DamagedArtefact
from ragqa.settings.groups import collect_settings

FREE = ("out", "save_every", "eval_every", "workers", "processes", "gpus", "device", "compile", "insecure")
"""Settings that are allowed to change when a run continues.

They change the losses only by rounding, with two exceptions. With dropout, another value of ``processes``, ``gpus``,
``device`` or ``compile`` drops other units. The number of ``workers`` decides at which step a new index is ready.
``eval_every`` does not change the losses, but decides which weights are evaluated.
"""
CHECKPOINTS = "checkpoints"
"""Name of the folder with the checkpoints."""
CONFIG = "config.json"
"""Name of the file with the settings, the digests of the inputs and the precision."""
INPUTS = "inputs"
"""Key in ``CONFIG`` for the digests of the files and directories that the settings name."""
PRECISION = "precision"
"""Key in ``CONFIG`` for the precision of a run, and the machine that chose the precision."""
PRECISIONS = ("float32", "bfloat16")
"""Precisions of a run on a CPU."""
_BEFORE_A_RUN = ("negatives.jsonl",)
"""Files that a recipe writes into the directory before its run starts."""
_RESULTS = ("model", "best", "generator", "pipeline", "system")
"""Directories that a run replaces with its results."""


def record_settings(config: Any, *, has_begun: bool) -> None:
    """Compare the settings of a run with its record, if there is one, and record them.

    Args:
        config: settings with a directory ``out``, which must exist, and a ``device``.
        has_begun: True if the run has a checkpoint; then only settings in ``FREE`` may have changed.

    Raises:
        BadInput: the settings or inputs have changed, or the directory holds something other than a run.
        ArtefactError, DamagedArtefact: the recorded settings or the manifest of an input cannot be read.
    """
    from ragqa.training import precision

    check_directory(config.out)
    now = json.loads(json.dumps(collect_settings(config), default=str)) | {INPUTS: digest_inputs(config)}
    now[PRECISION] = [precision.choose_precision(config.device), describe_hardware()]
    file = config.out / CONFIG
    before = read_record(file) if file.is_file() else None
    if before and has_begun and (differences := ", ".join(_find_differences(before, now))):
        raise BadInput(f"{config.out} holds a run with other settings ({differences}): choose another directory")
    if before != now:
        artefacts.write_text_whole(file, json.dumps(now, indent=1) + "\n")


def _find_differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    changed = [k for k in now if k not in (*FREE, INPUTS, PRECISION) and before.get(k) != now[k]]
    recorded = before.get(INPUTS, {}).keys() & now[INPUTS].keys()
    # Inputs are equal if their contents are, because a moved file or another spelling of its path changes no result.
    same = {name: now[INPUTS][name] == before[INPUTS][name] for name in recorded}
    differences = [f"{name} {before.get(name)}, not {now[name]}" for name in changed if not same.get(name)]
    return differences + [f"what is in {name}" for name in same if not same[name] and name not in changed]


def check_directory(out: Path) -> None:
    """Check that a run can write into a directory.

    Raises:
        BadInput: ``out`` is a file, or a directory that holds something other than a run.
        DamagedArtefact: the recorded settings of the run cannot be read.
    """
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file: choose a directory")
    names = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
    if artefacts.MANIFEST in names:
        foreign = [artefacts.MANIFEST]
    elif CONFIG in names:
        foreign = [] if "out" in read_record(out / CONFIG) else [CONFIG]  # the config.json of a model has no such key
    else:
        visible = [name for name in names if not name.startswith((".", *_BEFORE_A_RUN))]
        foreign = [name for name in visible if (out / name).is_file() or name in _RESULTS]
    if foreign:
        raise BadInput(f"{out} is not the directory of a run, because it holds {foreign[0]}: choose another directory")


def digest_inputs(config: Any) -> dict[str, str]:
    """Return the digests of the files and directories that settings name, by setting.

    Settings with a missing path, and ``out``, have no digest.

    Raises:
        BadInput: a path is a pipe, a device or a socket.
        ArtefactError, DamagedArtefact, Mismatch: as for ``artefacts.peek_manifest``.
    """
    digests = {}
    for name, value in collect_settings(config).items():
        paths = [path for path in (value if isinstance(value, tuple) else (value,)) if isinstance(path, Path)]
        if name != "out" and paths and all(path.exists() for path in paths):
            digests[name] = " ".join(map(_digest, paths))
    return digests


def _digest(path: Path) -> str:
    if (path / artefacts.MANIFEST).is_file():
        return artefacts.peek_manifest(path).fingerprint
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    rows = [f"{file.relative_to(path)} {artefacts.checksum(file)}" for file in files if file.is_file()]
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]


def read_record(file: Path) -> dict[str, Any]:
    """Read a JSON object that a run has written; raise DamagedArtefact if it is not JSON."""
    try:
        row: dict[str, Any] = json.loads(file.read_text())
    except ValueError as error:
        raise DamagedArtefact(f"{file} is damaged ({error}): choose another directory") from error
    return row


def choose_precision(config: TrainingConfig) -> str | None:
    """Return the precision of a run on a CPU; None on a GPU.

    A timing chooses the precision, and another timing can have another result. So a run keeps its first precision while
    it stays on the same machine. All processes use the precision of the first process.

    Raises:
        DamagedArtefact: the recorded settings cannot be read.
    """
    from ragqa.training import parallel, precision

    if config.device.startswith("cuda"):
        return None
    row = read_record(config.out / CONFIG) if (config.out / CONFIG).is_file() else {}
    name, machine = row.get(PRECISION) or (None, None)
    if machine != describe_hardware() or name not in PRECISIONS:
        name = precision.choose_precision(config.device)
    return PRECISIONS[parallel.broadcast_from_first(PRECISIONS.index(name)) or 0]


def lock_directory(out: Path) -> AbstractContextManager[None]:
    """Return a context manager that locks a directory in the first process.

    Raises:
        BadInput: another command holds the lock when the block is entered.
    """
    from ragqa.training import parallel

    return hold_lock(out / ".lock", wait=False) if parallel.is_first_process() else nullcontext()


def has_checkpoint(out: Path) -> bool:
    """Return True if the run in a directory has a checkpoint."""
    from ragqa.training import checkpoint

    return bool(checkpoint.list_checkpoints(out / CHECKPOINTS))
