"""The directory of a run: its settings, what they name, and whether a run may begin or continue there.

What needs torch is imported where it is used, because the command lines of whole papers import this module.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from pipelines.common.config import TrainingConfig
from ragqa import artefacts
from ragqa.artefacts.lock import hold_lock
from ragqa.artefacts.machine import describe_hardware
from ragqa.errors import BadInput, DamagedArtefact
from ragqa.settings.groups import settings_of

FREE = ("out", "save_every", "eval_every", "workers", "processes", "gpus", "device", "compile")
"""Settings that may change when a run continues, because it learns the same.

Losses stay the same but for rounding, with two exceptions: another number of ``processes``, and ``compile``, drop out
other units, and with ``workers`` it depends on their speed when a new index is there. Another machine may round
differently: see ``ragqa.training.precision``. ``eval_every`` decides which weights can be the best.
"""
CHECKPOINTS = "checkpoints"
"""Folder of a run's checkpoints."""
CONFIG = "config.json"
"""File of a run's settings."""
INPUTS = "inputs"
"""Key in that file: digests of the files and directories that the settings name."""
PRECISION = "precision"
"""Key in that file: the precision that a run on a CPU computes in, and the machine where it was chosen."""
PRECISIONS = ("float32", "bfloat16")
_BEFORE_A_RUN = ("negatives.jsonl",)
"""Files that a recipe writes before its run begins."""
_RESULTS = ("model", "best", "generator", "pipeline", "system")
"""Directories that a run replaces by its results."""


def record_settings(config: Any, *, has_begun: bool) -> None:
    """Write the settings into ``config.out``, or check that a run there began with the same ones.

    Args:
        config: settings with a directory ``out`` and a ``device``.
        has_begun: something was made with the settings that are there; until then others may take their place.

    Raises:
        BadInput: the settings differ, or the directory holds something else, which the run would replace.
    """
    from ragqa.training import precision

    out: Path = config.out
    check_directory(out)
    now = json.loads(json.dumps(settings_of(config), default=str)) | {INPUTS: digest_inputs(config)}
    now[PRECISION] = [precision.choose_precision(config.device), describe_hardware()]
    file, before = out / CONFIG, None
    if file.is_file():
        before = read_record(file)
        differences = _find_differences(before, now)
        if differences and has_begun:
            raise BadInput(
                f"{out} holds a run with other settings ({', '.join(differences)}): choose another directory"
            )
    if before != now:
        artefacts.write_text_whole(file, json.dumps(now, indent=1) + "\n")


def _find_differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    changed = [k for k in now if k not in (*FREE, INPUTS, PRECISION) and before.get(k) != now[k]]
    recorded = recorded_inputs(before.get(INPUTS, {}), now[INPUTS])
    same = {name: now[INPUTS][name] == before[INPUTS][name] for name in recorded}
    differences = [f"{name} {before.get(name)}, not {now[name]}" for name in changed if not same.get(name)]
    return differences + [f"what is in {name}" for name in same if not same[name] and name not in changed]


def check_directory(out: Path) -> None:
    """Raise BadInput if a directory holds something other than a run."""
    if foreign := _find_foreign(out):
        raise BadInput(f"{out} is no run, but holds {foreign} of something else: choose another directory")


def _find_foreign(out: Path) -> str | None:
    """Return the name of a visible file or result that no run has put into the directory."""
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file: choose a directory")
    if not out.is_dir():
        return None
    if (out / artefacts.MANIFEST).is_file():
        return artefacts.MANIFEST
    if (out / CONFIG).is_file():
        return None if "out" in read_record(out / CONFIG) else CONFIG  # a model has a config.json, too
    paths = sorted(path for path in out.iterdir() if not path.name.startswith((".", *_BEFORE_A_RUN)))
    return next((path.name for path in paths if path.is_file() or path.name in _RESULTS), None)


def recorded_inputs(before: Mapping[str, str], now: Mapping[str, str]) -> set[str]:
    """Return the inputs with a digest at both times: only their contents count, not how their paths are spelled."""
    return before.keys() & now.keys()


def digest_inputs(config: Any) -> dict[str, str]:
    """Return a digest of each existing file or directory that the settings name, except ``out``."""
    digests = {}
    for name, value in settings_of(config).items():
        paths = [path for path in (value if isinstance(value, tuple) else (value,)) if isinstance(path, Path)]
        if name != "out" and paths and all(path.exists() for path in paths):
            digests[name] = " ".join(map(_digest, paths))
    return digests


def _digest(path: Path) -> str:
    """Return an artefact's fingerprint, or a digest of a file or of all files in a directory."""
    if (path / artefacts.MANIFEST).is_file():
        return artefacts.peek_manifest(path).fingerprint
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    rows = [f"{file.relative_to(path)} {artefacts.checksum(file)}" for file in files if file.is_file()]
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]


def read_record(file: Path) -> dict[str, Any]:
    """Return a JSON object that a run has written; raise DamagedArtefact if it cannot be read."""
    try:
        row: dict[str, Any] = json.loads(file.read_text())
    except ValueError as error:
        raise DamagedArtefact(f"{file} is damaged ({error}): choose another directory") from error
    return row


def choose_precision(config: TrainingConfig) -> str | None:
    """Return the precision of a run on a CPU, None on a GPU.

    A run keeps the precision that it began with as long as it stays on the same machine, because bfloat16 is chosen by
    a timing that may come out differently. All processes follow the first.
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
    """Return the lock of a directory in which several runs follow one another; the first process takes it."""
    from ragqa.training import parallel

    return hold_lock(out / ".lock", wait=False) if parallel.is_first_process() else nullcontext()


def has_checkpoint(out: Path) -> bool:
    """Return whether a run in ``out`` has a checkpoint to continue from."""
    from ragqa.training import checkpoint

    return bool(checkpoint.list_checkpoints(out / CHECKPOINTS))
