"""Train and measure the systems (arms) of a table; an interrupted table continues.

An ``Arm`` declares a system as data: its recipes and their settings. Recipes resume from their checkpoints. The output
file stores each measured row with a digest of its settings and inputs. So a repeated command measures only missing or
changed rows, and several processes can share an output file.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, get_type_hints

from eval.bench.record import write_record
from eval.systems.world import init_generator
from eval.table import format_interval, format_markdown
from ragqa import artefacts
from ragqa.artefacts.lock import hold_lock
from ragqa.errors import BadInput
from ragqa.evaluation.report.summary import format_percent
from ragqa.pretraining.salient import Tagger
from ragqa.progress import Bars
from ragqa.settings.groups import collect_settings, list_settings, make_config, replace_settings
from ragqa.terminal import print_error
from ragqa.training.log import read_rows

DEPTH = 20
"""Number of passages to retrieve for the recall."""


@dataclass(frozen=True)
class Stage:
    """Training run of one recipe."""

    recipe: str
    """Name of the recipe, a key of ``load_recipes``."""
    out: str
    """Directory of the run under ``--work``; arms with the same directory share the run."""
    settings: Mapping[str, Any]
    """Settings of the recipe's config. A text that begins with a name in braces is a path: ``{work}/cloze/model``. A
    mapping changes fields of a nested config."""


@dataclass(frozen=True)
class Arm:
    """System of a table: its title, and the stages that train it."""

    title: str
    stages: tuple[Stage, ...] = ()
    """Stages that train the retriever, or the whole system if ``reading`` is empty."""
    reading: tuple[Stage, ...] = ()
    """Further stages that train a reader or generator."""
    note: str = ""
    """Footnote of the table."""


@dataclass(frozen=True, kw_only=True)
class TowersConfig:
    """Settings of an untrained dual encoder, with one encoder for questions and passages."""

    encoder: Path
    """Directory of the encoder."""
    out: Path
    """Directory of the run; the dual encoder is written into its folder ``model``."""
    width: int | None = None
    """Width of the vectors; default: the width of the encoder, with the identity as projection."""
    gain: float = 1.0
    """Factor on all vectors, which sets the size of inner products."""
    scale: float | None = None
    """Approximate inner product of two parallel vectors; replaces ``gain``."""
    seed: int = 0


def make_towers(config: TowersConfig) -> Path:
    """Write an untrained dual encoder; return its directory.

    Args:
        config: settings of the dual encoder.

    Raises:
        ArtefactError, Mismatch: as for ``DualEncoder.from_encoder``.
        OSError: without ``config.width``, the encoder's ``config.json`` cannot be read.
        BadInput: ``config.out`` cannot be written.
    """
    import torch

    from ragqa.models.dual_encoder import DualEncoder

    torch.manual_seed(config.seed)
    width = config.width or int(json.loads((config.encoder / "config.json").read_text())["hidden_size"])
    # After the layer norm, the length of a vector is about the square root of its width.
    gain = (config.scale / width) ** 0.5 if config.scale else config.gain
    towers = DualEncoder.from_encoder(config.encoder, width=width, pooling="mean", shared=True, gain=gain)
    if config.width is None:
        assert towers.questions.project is not None
        with torch.no_grad():
            torch.nn.init.eye_(towers.questions.project.weight)
    with artefacts.replace_directory(config.out / "model") as folder:
        towers.save(folder)
    return config.out / "model"


@dataclass(frozen=True, kw_only=True)
class GeneratorConfig:
    """Settings of an untrained generator, made of an encoder and one decoder layer."""

    encoder: Path
    """Directory of the encoder."""
    out: Path
    """Directory of the run; the generator is written into its folder ``model``."""
    seed: int = 0


def make_generator(config: GeneratorConfig) -> Path:
    """Write an untrained generator; return its directory.

    Raises:
        ArtefactError: as for ``make_from_encoder``.
    """
    return init_generator(config.encoder, config.out / "model", config.seed)


def load_recipes() -> dict[str, Callable[..., Path]]:
    """Return the function that runs each recipe, by the name of the recipe.

    The type of the argument ``config`` of a function is the config class of its recipe.
    """
    from pipelines.dpr import loop as dpr
    from pipelines.fid import loop as fid
    from pipelines.joint import loop as joint
    from pipelines.orqa import fine_tune_loop, inverse_cloze_loop
    from pipelines.rag import loop as rag
    from pipelines.rag import warm_generator_loop
    from pipelines.realm import pretrain_loop, reader_warmup_loop

    return {
        "towers": make_towers,
        "generator": make_generator,
        "inverse_cloze": inverse_cloze_loop.main,
        "reader_warmup": reader_warmup_loop.main,
        "realm": pretrain_loop.main,
        "dpr": dpr.main,
        "fine_tune": fine_tune_loop.main,
        "warm_generator": warm_generator_loop.main,
        "rag": rag.main,
        "fid": fid.main,
        "closed_book": fid.train_closed_book,
        "joint": joint.main,
    }


@dataclass(frozen=True, kw_only=True)
class TableRunner:
    """Runner of a table: it trains stages, and stores the measured rows in a file."""

    paths: Mapping[str, Path]
    """Paths by the names that stages use in braces; ``work`` is the directory of all runs."""
    out: Path
    """JSON file of the rows."""
    about: Mapping[str, str]
    """Descriptions of the ``corpus`` and of the ``questions``."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Values of settings such as seed or device, for all stages that have these settings."""
    tagger: Tagger | None = None
    """Tagger of salient spans, for recipes that mask them."""

    @property
    def work(self) -> Path:
        """Directory of all runs."""
        return self.paths["work"]

    def configure(self, stage: Stage) -> Any:
        """Return the config of a stage, with ``changes``, and with paths for names in braces.

        Raises:
            BadInput: a setting is out of range.
        """
        kind = get_type_hints(load_recipes()[stage.recipe])["config"]
        names = {setting.name: setting for setting in list_settings(kind)}
        settings = {**stage.settings, **{name: value for name, value in self.changes.items() if name in names}}
        defaults = {name: names[name].default for name in settings if name in names}
        resolved = {name: self._resolve(value, defaults.get(name)) for name, value in settings.items()}
        return make_config(kind, out=self.work / stage.out, **resolved)

    def _resolve(self, value: Any, default: Any) -> Any:
        if isinstance(value, str) and value.startswith("{"):
            return Path(value.format_map(self.paths))
        if isinstance(value, tuple):
            return tuple(self._resolve(item, None) for item in value)
        if isinstance(value, Mapping):
            own = collect_settings(default)
            return replace_settings(
                default, **{name: self._resolve(item, own.get(name)) for name, item in value.items()}
            )
        return value

    def train(self, stages: Iterable[Stage]) -> list[Path]:
        """Run the unfinished stages in order; return the directory of each stage's result.

        Raises:
            RagqaError: as for the recipes and ``run_stage``.
        """
        from pipelines.common.stages import run_stage

        directories = []
        for stage in stages:
            main, notify = load_recipes()[stage.recipe], partial(print_error, stage.out)
            options = {"progress": Bars(), "notify": notify, **({"tagger": self.tagger} if self.tagger else {})}
            accepted = {name: value for name, value in options.items() if name in signature(main).parameters}
            directories.append(run_stage(self.configure(stage), partial(main, **accepted), notify))
        return directories

    def sum_seconds(self, stages: Iterable[Stage]) -> dict[str, float]:
        """Return the seconds of all steps, without evaluations and indexing, by ``Stage.out``."""
        logs = {stage.out: self.read_log(stage) for stage in stages}
        return {name: round(sum(row.get("seconds", 0.0) for row in rows), 1) for name, rows in logs.items() if rows}

    def list_alarms(self, stages: Iterable[Stage]) -> list[str]:
        """Return the alarms in the logs of the stages, one line each, with their steps."""
        rows = (row for stage in stages for row in self.read_log(stage) if "alarm" in row)
        return [f"step {row['step']}: {row['alarm']}" for row in rows]

    def read_log(self, stage: Stage) -> list[dict[str, Any]]:
        """Return the rows of a stage's log; a stage without a log has none."""
        folder = self.work / stage.out
        return read_rows(folder / "round-1" if stage.recipe == "dpr" else folder)  # DPR trains in rounds

    def keep_row(
        self, key: Mapping[str, Any], stages: Iterable[Stage], options: Any, measure: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return a row of the output file; measure the row first if it is missing or outdated.

        Args:
            key: names of the row, such as arm, measure and seed.
            stages: all stages on which the row depends.
            options: further JSON values on which the row depends, such as the number of questions.
            measure: function that trains and measures, and returns the figures.

        Raises:
            BadInput: the output file is not a table.
            RagqaError: as for ``measure``, or an input of a stage is damaged.
        """
        settings = [self.describe(self.configure(stage)) for stage in stages]
        digest = hashlib.sha256(json.dumps([options, settings], sort_keys=True).encode()).hexdigest()[:16]
        for row in read_table(self.out):
            if row["settings"] == digest and key.items() <= row.items():
                return row
        print_error(" ".join(map(str, key.values())), "started")
        row = {**key, **measure(), "settings": digest}
        self.out.parent.mkdir(parents=True, exist_ok=True)
        # The lock is needed, because other processes write rows into the same file.
        with hold_lock(self.out.with_name(f".{self.out.name}.lock"), wait=True):
            rows = [old for old in read_table(self.out) if not key.items() <= old.items()]
            write_record(self.out, {"rows": [*rows, row]}, **self.about)
        return row

    def describe(self, config: Any) -> dict[str, Any]:
        """Return the settings of a config that change the result of its run, as JSON values.

        Inputs are described by digests of their contents, so that they can be moved. An input in the work directory is
        described by its path, because a stage of the same table made it. Errors: as for ``digest_inputs``.
        """
        from pipelines.common.run_directory import FREE, INPUTS, digest_inputs

        row: dict[str, Any] = {name: value for name, value in collect_settings(config).items() if name not in FREE}
        digests, work = digest_inputs(config), self.work.resolve()
        for name, value in row.items():
            items = value if isinstance(value, tuple) else (value,)
            located = [item.resolve() for item in items if isinstance(item, Path)]
            if any(path.is_relative_to(work) for path in located):
                row[name] = "; ".join(os.path.relpath(path, work) for path in located)
                digests.pop(name, None)
        own_settings = {name: value for name, value in row.items() if name not in digests}
        described: dict[str, Any] = json.loads(json.dumps(own_settings | {INPUTS: digests}, default=str))
        return described


def read_table(file: Path) -> list[dict[str, Any]]:
    """Return the rows of an output file; a missing file has none.

    Raises:
        BadInput: the file is not a table.
    """
    if not file.is_file():
        return []
    try:
        rows: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["rows"]
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{file} holds no rows of a table: choose another file as --out") from error
    return rows


def select_arms(arms: Mapping[str, Arm], names: Sequence[str]) -> list[str]:
    """Return the chosen ``names`` in the order of ``arms``.

    Raises:
        BadInput: there is no arm of a chosen name.
    """
    if unknown := set(names) - set(arms):
        raise BadInput(f"--arms {', '.join(sorted(unknown))}: choose from {', '.join(arms)}")
    return [name for name in arms if name in names]


def format_table(
    rows: Mapping[str, Mapping[str, Any]], arms: Mapping[str, Arm], columns: Mapping[str, Sequence[str]]
) -> str:
    """Return a Markdown table with one row for each arm, and with footnotes.

    Args:
        rows: figures of each arm.
        arms: arms by name, for titles and footnotes.
        columns: path of keys to the figure of each column, by the heading of the column.
    """
    notes = list(dict.fromkeys(arms[name].note for name in rows if arms[name].note))
    lines = []
    for name, figures in rows.items():
        mark = f" [{notes.index(arms[name].note) + 1}]" if arms[name].note else ""
        lines.append([arms[name].title + mark, *(format_figure(look_up(figures, path)) for path in columns.values())])
    footnotes = [f"\n[{number}] {note}" for number, note in enumerate(notes, 1)]
    return "\n".join([format_markdown(["", *columns], lines), *footnotes])


def look_up(figures: Any, path: Sequence[str]) -> Any:
    """Return the figure at a path of keys in nested mappings, or None if there is none."""
    for key in path:
        figures = figures.get(key) if isinstance(figures, Mapping) else None
    return figures


def format_figure(figure: Any) -> str:
    """Return a figure as a cell of a table.

    Args:
        figure: a share (a float or a mapping with its interval), a difference with its p-value, another value, or None,
            which becomes a dash.
    """
    if isinstance(figure, Mapping) and "difference" in figure:
        return f"{100 * figure['difference']['value']:+.1f} (p {figure['p']:.2g})"
    if figure is None or isinstance(figure, Mapping):
        return format_interval(figure)
    return format_percent(figure) if isinstance(figure, float) else str(figure)
