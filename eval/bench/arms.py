"""What benches of several arms share: figures kept by arm and stage, sizes from a file, test sets scored as always."""

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from eval.suite import Suite, parser, run
from pipelines.common.run import FREE, INPUTS, inputs
from ragqa.artefacts import resume
from ragqa.errors import ArtefactError, BadInput, Mismatch
from ragqa.evaluation import Report
from ragqa.evaluation.compare import compare
from ragqa.training.log import read_rows

Sizes = TypeVar("Sizes")


class Keyed(Protocol):
    """A test set: a suite, or one as it is asked here."""

    @property
    def key(self) -> str:
        """What its files are called."""
        ...


Asked = TypeVar("Asked", bound=Keyed)


def notify(line: str) -> None:
    """Say how far it is."""
    print(line, file=sys.stderr, flush=True)


def kept(
    file: Path,
    settings: list[Any],
    measure: Callable[[], dict[str, Any]],
    name: str,
    notify: Callable[[str], None] = notify,
) -> dict[str, Any]:
    """The figures in ``file``: measured now, unless they are there and of the same settings."""
    if file.is_file():
        before: dict[str, Any] = json.loads(file.read_text())
        if before.get("settings") == settings:  # earlier ones do not say
            return before
    file.parent.mkdir(parents=True, exist_ok=True)
    notify(name)
    found = {**measure(), "settings": settings}
    resume.write_whole(file, json.dumps(found, indent=1) + "\n")
    notify(f"{name.partition(':')[0]}: {json.dumps({key: found[key] for key in found if key != 'settings'})}")
    return found


def digest(settings: list[Any]) -> str:
    """What stands for settings where they are too long to be written down."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def suites_of(
    suites: Sequence[Asked], folder: Path, settings: list[Any], name: str, measure: Callable[[Asked], dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """The figures of the arm ``name`` in each test set, kept in its ``folder``: each is asked once."""
    found = {}
    for suite in suites:
        figures = kept(folder / f"{suite.key}.json", settings, partial(measure, suite), f"{name}: {suite.key}")
        found[suite.key] = {key: value for key, value in figures.items() if key != "settings"}
    return found


def plain(configs: Sequence[Any], work: Path) -> list[dict[str, Any]]:
    """Settings of stages, those left out that a run may go on with changed, and what is in the files they begin from.

    These are known by their digests, however their paths are spelled; what lies in ``work`` by its place there: the
    bench has made it, by these very settings.
    """
    return [_settings(config, work.resolve()) for config in configs]


def _settings(config: Any, work: Path) -> dict[str, Any]:
    row: dict[str, Any] = {name: value for name, value in asdict(config).items() if name not in FREE}
    given = inputs(config)
    for name, value in row.items():
        values = value if isinstance(value, tuple) else (value,)
        places = [each.resolve() for each in values if isinstance(each, Path)]
        if any(place.is_relative_to(work) for place in places):
            row[name] = "; ".join(os.path.relpath(place, work) for place in places)
            given.pop(name, None)
    row = {name: value for name, value in row.items() if name not in given}
    found: dict[str, Any] = json.loads(json.dumps(row | {INPUTS: given}, default=str))
    return found


def seconds(run: Path) -> float:
    """Of the steps of a run, evaluations and indexes aside."""
    return sum(row.get("seconds", 0.0) for row in read_rows(run))


def scored(
    suite: Suite, pipeline: Path, out: Path, *, data: Path, corpus: str, depth: int, limit: int | None, **more: Any
) -> Report:
    """A test set, as ``python -m eval.SUITE`` scores it, with ``more`` of its options; True is a flag's."""
    options = {
        "pipeline": pipeline,
        "data": data / suite.key,
        "split": suite.default_split,
        "out": out,
        "corpus": corpus,
        "depth": depth,
        "limit": limit,
        **more,
    }
    given = [
        str(part)
        for name, value in options.items()
        if value is not None
        for part in (f"-{name}" if len(name) == 1 else f"--{name}", *(() if value is True else (value,)))
    ]
    return run(suite, parser(suite, None).parse_args(given))


def less_full(folder: Callable[[str], Path], name: str, report: str) -> dict[str, Any] | None:
    """An arm less the one called full on the same questions: differences with intervals, and p.

    ``folder`` is where an arm's reports lie; None where one is missing.
    """
    if name == "full":
        return None
    try:
        ours, full = (Report.load(folder(each) / f"{report}.report") for each in (name, "full"))
        figures = compare(ours, full).figures
    except (ArtefactError, Mismatch):
        return None
    return {"em": figures["em"], "answer_recall": {k: figures["answer_recall"].get(k) for k in ("5", "20")}}


def stages_of(args: argparse.Namespace, stages: Sequence[str]) -> list[str]:
    """Those that ``--stages`` names; raises BadInput where one is none."""
    found: list[str] = args.stages.split(",")
    if unknown := set(found) - set(stages):
        raise BadInput(f"stages {', '.join(sorted(unknown))}: choose of {', '.join(stages)}")
    return found


def sizes_of(usual: Sizes, smoke: Sizes, args: argparse.Namespace) -> Sizes:
    """As the command line has them; raises BadInput where ``--sizes`` is no such file."""
    base: Any = smoke if args.smoke else usual
    try:
        given = json.loads(args.sizes.read_text()) if args.sizes else {}
        made: Sizes = replace(base, **given)
    except (OSError, ValueError, TypeError) as error:
        where = f"{type(usual).__module__}.{type(usual).__qualname__}"
        raise BadInput(f"{args.sizes}: a JSON object with fields of {where} is needed: {error}") from error
    return made
