"""Stages of a whole recipe; each stage runs once in its own directory."""

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
"""Name of the file that marks a finished stage; it holds the settings, the inputs and the path of the result."""
_EVALUATION = ("dev", "sample", "eval_every")
"""Settings of ``HeldOutConfig`` that may differ from the settings of a finished stage."""


def fill_unset(stage: Stage, /, **settings: Any) -> Stage:
    """Return a stage's config in which unset settings have the values of the recipe.

    A setting is unset if it is None, False, ``FROM_RECIPE`` or a ``FromRecipe``. A number or text that the user gives
    stays, even if it equals the default.

    Args:
        stage: config of the stage.
        settings: values of the recipe by the names of the stage's settings.
    """

    def is_unset(value: Any) -> bool:
        return value in (None, FROM_RECIPE) or value is False or isinstance(value, FromRecipe)

    before = collect_settings(stage)
    return replace_settings(stage, **{name: value for name, value in settings.items() if is_unset(before[name])})


def run_stage(config: Any, main: Callable[[Any], Path], notify: Notify = ignore_line) -> Path:
    """Run a stage unless it is finished; return the path of its result.

    A stage is finished if ``MARK`` in its directory has the same settings and inputs. Settings in ``FREE``, and the
    settings ``dev``, ``sample`` and ``eval_every`` of a ``HeldOutConfig``, may differ. A finished stage stays finished
    when its inputs are deleted.

    Args:
        config: config of the stage, whose ``out`` is its directory.
        main: function that runs the stage and returns the path of the result.
        notify: receives a line when the stage starts or continues.

    Raises:
        BadInput: ``main`` has raised it, and the message begins with the name of the stage; or as for
            ``digest_inputs``. Other errors of ``main`` pass unchanged.
        ArtefactError, DamagedArtefact, Mismatch: as for ``digest_inputs``, or ``MARK`` is damaged.
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
    except BadInput as error:  # the message names the stage, because its options have this prefix
        raise BadInput(f"{config.out.name}: {error}") from error
    row = {"settings": settings, INPUTS: inputs, "made": str(result.resolve().relative_to(config.out.resolve()))}
    artefacts.write_text_whole(mark, json.dumps(row, indent=1))
    return result
