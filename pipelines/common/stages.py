"""Stages of a whole recipe: each has a directory of its own, is done once, and continues where it was interrupted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pipelines.common.config import FROM_RECIPE, HeldOutConfig, Unset
from pipelines.common.run_directory import FREE, INPUTS, digest_inputs, read_record, recorded_inputs
from ragqa import artefacts
from ragqa.errors import BadInput
from ragqa.progress import Notify, ignore_line
from ragqa.settings.groups import replace_settings, settings_of

Stage = TypeVar("Stage")
MARK = "finished.json"
"""File in the directory of a finished stage: its settings, its inputs and what it made."""
_EVALUATION = ("dev", "sample", "eval_every")
"""Settings of a recipe's evaluations. They are not part of a stage's identity: other held-out questions do not undo
finished work."""


def fill_unset(stage: Stage, /, **settings: Any) -> Stage:
    """Return the settings of a stage with the recipe's values wherever the stage has none of its own.

    A value that somebody gave stays, also where it equals the default.
    """
    own = settings_of(stage)
    return replace_settings(stage, **{name: value for name, value in settings.items() if _is_unset(own[name])})


def _is_unset(value: Any) -> bool:
    return value is None or value is False or value == FROM_RECIPE or isinstance(value, Unset)


def run_stage(config: Any, main: Callable[[Any], Path], notify: Notify = ignore_line) -> Path:
    """Return what ``main(config)`` makes in ``config.out``, without repeating what is finished.

    A stage is finished if it was made there with the same settings and inputs. An input that is gone cannot have
    changed: a stage stays finished without what it was made from.
    """
    mark, settings, inputs = config.out / MARK, _identity(config), _inputs(config)
    if mark.is_file():
        before = read_record(mark)
        recorded = recorded_inputs(before.get(INPUTS, {}), inputs)
        same = all(before["settings"].get(name) == value for name, value in settings.items() if name not in recorded)
        if same and inputs.items() <= before.get(INPUTS, inputs).items():
            made: Path = config.out / before["made"]
            return made
    notify(f"{config.out}: {'continues' if config.out.exists() else 'begins'}")
    try:
        made = main(config)
    except BadInput as error:  # options of a stage begin with its name
        raise BadInput(f"{config.out.name}: {error}") from error
    row = {"settings": settings, INPUTS: inputs, "made": str(made.resolve().relative_to(config.out.resolve()))}
    artefacts.write_text_whole(mark, json.dumps(row, indent=1))
    return made


def _identity(config: Any) -> dict[str, Any]:
    """Return the settings that decide what a stage makes, as JSON has them."""
    row: dict[str, Any] = json.loads(json.dumps(settings_of(config), default=str))
    return {name: value for name, value in row.items() if name not in (*FREE, *_evaluation(config))}


def _inputs(config: Any) -> dict[str, str]:
    return {name: digest for name, digest in digest_inputs(config).items() if name not in _evaluation(config)}


def _evaluation(config: Any) -> tuple[str, ...]:
    return _EVALUATION if isinstance(getattr(config, "held_out", None), HeldOutConfig) else ()
