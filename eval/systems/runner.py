"""Train and measure the arms of a table; an interrupted table continues where it stopped.

An ``Arm`` is data: the recipes it is trained by, with their settings. Training goes on from the checkpoints of the
recipes, and every measured row is kept in the output file with a digest of the settings and inputs it depends on. So
the same command can be repeated, several processes can share an output file, and changed settings are measured anew.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, get_type_hints

from eval.bench.record import write_record
from eval.table import format_interval, format_markdown
from pipelines.common.closed_world import init_generator
from ragqa import artefacts
from ragqa.artefacts.lock import hold_lock
from ragqa.errors import BadInput
from ragqa.evaluation.report.summary import format_percent
from ragqa.pretraining.salient import Tagger
from ragqa.progress import Bars
from ragqa.settings.groups import collect_settings, list_settings, make_config, replace_settings
from ragqa.training.log import read_rows

DEPTH = 20
"""Hits that are searched for answers."""


@dataclass(frozen=True)
class Stage:
    """One training run."""

    recipe: str
    """Name of the recipe: a key of ``load_recipes``."""
    out: str
    """Directory under ``--work``; arms that name the same one share the run."""
    settings: Mapping[str, Any]
    """Fields of the recipe's config. A text that begins with a name in braces is a path: ``{work}/cloze/model``. A
    mapping changes some fields of a nested config."""


@dataclass(frozen=True)
class Arm:
    """A row of a table: its name for readers, and how it is trained."""

    title: str
    stages: tuple[Stage, ...] = ()
    """Training before retrieval is measured."""
    reading: tuple[Stage, ...] = ()
    """Training after that, before answers are measured; an arm without it is not asked for answers."""
    note: str = ""
    """Note below the table."""


@dataclass(frozen=True, kw_only=True)
class TowersConfig:
    """Untrained retriever towers made of an encoder, one tower for both sides."""

    encoder: Path
    """Directory of the encoder's weights."""
    out: Path
    width: int | None = None
    """Length of the vectors; default: the encoder's, whose own vectors the towers keep."""
    gain: float = 1.0
    """Factor of all vectors, so that inner products have a useful size."""
    scale: float | None = None
    """Inner product of two vectors that point the same way, in place of ``gain``."""
    seed: int = 0


def make_towers(config: TowersConfig) -> Path:
    """Write the towers of ``config`` and return their directory."""
    import torch

    from ragqa.models.dual_encoder import DualEncoder

    torch.manual_seed(config.seed)
    width = config.width or int(json.loads((config.encoder / "config.json").read_text())["hidden_size"])
    # after its layer norm a vector has a length of about the root of its width
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
    """An untrained generator made of an encoder and one decoder layer."""

    encoder: Path
    """Directory of the encoder's weights."""
    out: Path
    seed: int = 0


def make_generator(config: GeneratorConfig) -> Path:
    """Write the generator of ``config`` and return its directory."""
    return init_generator(config.encoder, config.out / "model", config.seed)


def load_recipes() -> dict[str, Callable[..., Path]]:
    """Return the function of each recipe; the annotation of its ``config`` is the config class."""
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
    """Places, changes and output file of a table."""

    paths: Mapping[str, Path]
    """Paths by the names that stages use in braces; ``work`` is the directory of all runs."""
    out: Path
    """JSON file of the rows."""
    about: Mapping[str, str]
    """``corpus`` and ``questions`` on which the rows were measured, in words."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Values for fields of every stage that has them, such as seed, device, or the sizes of a smoke run."""
    tagger: Tagger | None = None
    """Finder of salient spans, for the recipes that mask them."""

    @property
    def work(self) -> Path:
        """Directory of all runs."""
        return self.paths["work"]

    def configure(self, stage: Stage) -> Any:
        """Return the recipe's config for a stage."""
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
        """Run the stages that are not finished; return the directory that each has made."""
        from pipelines.common.stages import run_stage

        directories = []
        for stage in stages:
            main, notify = load_recipes()[stage.recipe], partial(notify_about, stage.out)
            options = {"progress": Bars(), "notify": notify, **({"tagger": self.tagger} if self.tagger else {})}
            accepted = {name: value for name, value in options.items() if name in signature(main).parameters}
            directories.append(run_stage(self.configure(stage), partial(main, **accepted), notify))
        return directories

    def sum_seconds(self, stages: Iterable[Stage]) -> dict[str, float]:
        """Return the seconds that the steps of each stage took, without evaluations and indexing."""
        logs = {stage.out: self.read_log(stage) for stage in stages}
        return {name: round(sum(row.get("seconds", 0.0) for row in rows), 1) for name, rows in logs.items() if rows}

    def list_alarms(self, stages: Iterable[Stage]) -> list[str]:
        """Return the alarms that the stages have logged."""
        rows = (row for stage in stages for row in self.read_log(stage) if "alarm" in row)
        return [f"step {row['step']}: {row['alarm']}" for row in rows]

    def read_log(self, stage: Stage) -> list[dict[str, Any]]:
        """Return the log of a stage's training, or nothing where it has none."""
        folder = self.work / stage.out
        return read_rows(folder / "round-1" if stage.recipe == "dpr" else folder)  # DPR trains in rounds

    def keep_row(
        self, key: Mapping[str, Any], stages: Iterable[Stage], options: Any, measure: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the row of ``key`` from the output file, or measure it if its settings are others.

        Args:
            key: names of the row, such as arm, measure and seed.
            stages: all training the row depends on.
            options: further values that the row depends on, as JSON.
            measure: trains and measures; it returns the figures.
        """
        settings = [self.describe(self.configure(stage)) for stage in stages]
        digest = digest_settings([options, settings])
        for row in read_table(self.out):
            if row["settings"] == digest and key.items() <= row.items():
                return row
        notify_about(" ".join(map(str, key.values())), "started")
        row = {**key, **measure(), "settings": digest}
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with hold_lock(self.out.with_name(f".{self.out.name}.lock"), wait=True):  # other processes write rows, too
            rows = [old for old in read_table(self.out) if not key.items() <= old.items()]
            write_record(self.out, {"rows": [*rows, row]}, **self.about)
        return row

    def describe(self, config: Any) -> dict[str, Any]:
        """Return the settings that decide what a config's run learns.

        Inputs count by the digest of their contents, wherever they lie; what lies in the work directory counts by its
        place, since these very settings have made it.
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


def notify_about(name: str, line: str) -> None:
    """Print a line about an arm or a stage on standard error."""
    print(f"{name}: {line}", file=sys.stderr, flush=True)


def digest_settings(settings: Any) -> str:
    """Return a short digest of settings given as JSON."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def read_table(file: Path) -> list[dict[str, Any]]:
    """Return the rows of an output file, or nothing where there is none."""
    if not file.is_file():
        return []
    try:
        rows: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["rows"]
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{file} holds no rows of a table: choose another file as --out") from error
    return rows


def select_arms(arms: Mapping[str, Arm], names: Sequence[str]) -> list[str]:
    """Return the chosen names in the order of the table.

    Raises:
        BadInput: one of them is no arm.
    """
    if unknown := set(names) - set(arms):
        raise BadInput(f"--arms {', '.join(sorted(unknown))}: choose from {', '.join(arms)}")
    return [name for name in arms if name in names]


def format_table(
    rows: Mapping[str, Mapping[str, Any]], arms: Mapping[str, Arm], columns: Mapping[str, Sequence[str]]
) -> str:
    """Return a Markdown table with a line for each arm and the notes below it.

    Args:
        rows: figures of each arm.
        arms: the arms, for titles and notes.
        columns: for each heading, the keys that lead to its figure.
    """
    notes = list(dict.fromkeys(arms[name].note for name in rows if arms[name].note))
    lines = []
    for name, figures in rows.items():
        mark = f" [{notes.index(arms[name].note) + 1}]" if arms[name].note else ""
        lines.append([arms[name].title + mark, *(format_figure(look_up(figures, path)) for path in columns.values())])
    footnotes = [f"\n[{number}] {note}" for number, note in enumerate(notes, 1)]
    return "\n".join([format_markdown(["", *columns], lines), *footnotes])


def look_up(figures: Any, path: Sequence[str]) -> Any:
    """Return the figure that a path of keys leads to, or None."""
    for key in path:
        figures = figures.get(key) if isinstance(figures, Mapping) else None
    return figures


def format_figure(figure: Any) -> str:
    """Format a share with its interval, a paired difference with its p, or a number."""
    if isinstance(figure, Mapping) and "difference" in figure:
        return f"{100 * figure['difference']['value']:+.1f} (p {figure['p']:.2g})"
    if figure is None or isinstance(figure, Mapping):
        return format_interval(figure)
    return format_percent(figure) if isinstance(figure, float) else str(figure)
