"""Stages of a whole recipe, each done once in its directory."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pipelines.common.config import FROM_RECIPE, FromRecipe, HeldOutConfig
from pipelines.common.run_directory import FREE, INPUTS, digest_inputs, read_record
from ragqa import artefacts
from ragqa.errors import BadInput
from ragqa.progress import Notify, ignore_line
from ragqa.settings.groups import collect_settings, replace_settings

Stage = TypeVar("Stage")
MARK = "finished.json"
"""File in the directory of a finished stage: its settings, its inputs and its result."""
_EVALUATION = ("dev", "sample", "eval_every")
"""Settings of evaluations, which do not count when a stage's settings are compared.
Other held-out questions do not undo finished work."""


def fill_unset(stage: Stage, /, **settings: Any) -> Stage:
    """Fill the settings of a stage that the user has not set with the recipe's values.

    The user's values stay, even if they equal the default (see ``FromRecipe``).

    Given values stay, even if they equal the default (see ``FromRecipe``).
    """

    def is_unset(value: Any) -> bool:
        return value in (None, FROM_RECIPE) or value is False or isinstance(value, FromRecipe)

    before = collect_settings(stage)
    return replace_settings(stage, **{name: value for name, value in settings.items() if is_unset(before[name])})


def run_stage(config: Any, main: Callable[[Any], Path], notify: Notify = ignore_line) -> Path:
    """Run ``main(config)`` unless its stage is finished; return the path that it makes.

    A stage is finished if it was made there with the same settings and inputs. It stays finished when its inputs are
    deleted.
    """
    has_evaluation = isinstance(getattr(config, "held_out", None), HeldOutConfig)
    excluded = (*FREE, *(_EVALUATION if has_evaluation else ()))
    row = json.loads(json.dumps(collect_settings(config), default=str))
    settings = {name: value for name, value in row.items() if name not in excluded}
    inputs = {name: digest for name, digest in digest_inputs(config).items() if name not in excluded}
    mark = config.out / MARK
    if mark.is_file():
        before = read_record(mark)
        recorded = before.get(INPUTS, {}).keys() & inputs.keys()
        same = all(before["settings"].get(name) == value for name, value in settings.items() if name not in recorded)
        if same and inputs.items() <= before.get(INPUTS, inputs).items():
            result: Path = config.out / before["made"]
            return result
    notify(f"{config.out}: {'continues' if config.out.exists() else 'begins'}")
    try:
        result = main(config)
    except BadInput as error:  # options of a stage begin with its name
        raise BadInput(f"{config.out.name}: {error}") from error
    row = {"settings": settings, INPUTS: inputs, "made": str(result.resolve().relative_to(config.out.resolve()))}
    artefacts.write_text_whole(mark, json.dumps(row, indent=1))
    return result
