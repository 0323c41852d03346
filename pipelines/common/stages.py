"""The stages of a whole recipe: each in a directory of its own, done once, gone on with where it was broken off."""

import json
from collections.abc import Callable
from dataclasses import MISSING, asdict, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from pipelines.common.questions import answerable
from pipelines.common.run import FREE, INPUTS, inputs, known, read_row
from ragqa import artefacts
from ragqa.errors import BadInput

Stage = TypeVar("Stage")
ABOVE = Path("(as above)")
"""Stands, in the settings of a stage, for a place that the recipe gives it."""
MARK = "finished.json"


def filled(stage: Stage, **above: Any) -> Stage:
    """The settings of a stage, with what the recipe says where they say nothing of their own: have the default."""
    own: Any = stage
    silent = {field.name for field in fields(own) if getattr(own, field.name) == _default(field)}
    whole: Stage = replace(own, **{name: value for name, value in above.items() if name in silent})
    return whole


def _default(field: Any) -> Any:
    return ABOVE if field.default is MISSING else field.default


def check_questions(*files: Path | None) -> None:
    """Raise BadInput for files that some stage would stumble over days later."""
    for file in files:
        if file is not None:
            answerable(file)


def finished(config: Any, main: Callable[[Any], Path], notify: Callable[[str], None] = lambda line: None) -> Path:
    """What ``main(config)`` makes in ``config.out``, unless that was made there with the same settings and inputs.

    An input that is not there any more cannot have changed: a stage stays finished without what it was made from.
    """
    mark, now, held = config.out / MARK, _settings(config), inputs(config)
    if mark.is_file():
        before = read_row(mark)
        named = known(before.get(INPUTS, {}), held)
        same = all(before["settings"].get(name) == value for name, value in now.items() if name not in named)
        if same and held.items() <= before.get(INPUTS, held).items():
            made: Path = config.out / before["made"]
            return made
    notify(f"{config.out}: begun" if not config.out.exists() else f"{config.out}: gone on with")
    try:
        made = main(config)
    except BadInput as error:  # options of a stage begin with its name
        raise BadInput(f"{config.out.name}: {error}") from error
    row = {"settings": now, INPUTS: held, "made": str(made.resolve().relative_to(config.out.resolve()))}
    artefacts.write_text_whole(mark, json.dumps(row, indent=1))
    return made


def _settings(config: Any) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(json.dumps(asdict(config), default=str))
    return {name: value for name, value in row.items() if name not in FREE}
