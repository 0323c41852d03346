"""What every training run has: a directory with its settings, checkpoints and figures, from which it goes on."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from index.versions import SavableModel
from ragqa import artefacts
from ragqa.artefacts.lock import hold_lock
from ragqa.artefacts.machine import describe_hardware
from ragqa.errors import BadInput, DamagedArtefact
from ragqa.models.pretrained import compile_encoders, fuse_attention
from ragqa.progress import SILENT, Progress, Step
from ragqa.training import checkpoint, parallel, precision
from ragqa.training.log import NO_LOG, Log, MetricLog
from ragqa.training.meter import measure_peak_flops

FREE = ("out", "save_every", "eval_every", "workers", "processes", "gpus", "device", "compile")
"""Settings that a run may go on with changed: they change nothing of what it learns from.

Losses stay the same but for rounding, with two exceptions: another number of ``processes``, and ``compile``, drop out
other units, and with ``workers`` it depends on their speed when a new index is there. Another machine may round more or
less: see ``ragqa.training.precision``. Where the best weights are written, ``eval_every`` says which can be.
"""


@dataclass
class Run:
    """A run under way."""

    path: Path
    state: checkpoint.TrainState
    steps: int
    seed: int
    log: Log
    bar: Step
    notify: Callable[[str], None]
    peak: float
    """Operations a second that the machine reaches."""
    _began: float = field(default_factory=perf_counter)

    @property
    def step(self) -> int:
        """Steps that were taken."""
        return self.state.step

    @property
    def done(self) -> bool:
        """Whether none is left."""
        return self.state.step >= self.steps

    def due(self, every: int | None) -> bool:
        """Whether something is to be done that is done every so many steps, and at the end."""
        return every is not None and (self.done or self.step % every == 0)

    def save(self, **extra: Any) -> None:
        """Write a checkpoint, with ``extra`` beside the weights; the first of several processes does."""
        self.state.extra = extra
        if parallel.is_first_process():
            checkpoint.save(self.state, self.path / CHECKPOINTS)

    def kept(self, name: str) -> list[Any]:
        """What the checkpoints that are there keep under a name, told to the first process, which has them in hand."""
        if not parallel.is_first_process():
            return []
        return [extra[name] for extra in checkpoint.read_extras(self.path / CHECKPOINTS) if name in extra]

    def left(self, save_every: int) -> Iterator[int]:
        """The steps that are left, each with its random numbers begun, and a checkpoint between them where one is due.

        For recipes that keep nothing else; a body takes its step by ``stepped``.
        """
        while True:
            if self.due(save_every) and self.step:
                self.save()
            if self.done:
                return
            self.begin()
            yield self.step

    def begin(self) -> None:
        """Begin a step, its clock and its random numbers.

        These depend on the seed, the step and the process alone, not on the past.
        """
        self._began = perf_counter()
        parallel.seed_process(self.seed, self.step)

    def stepped(self, **row: Any) -> None:
        """A step was taken: log its figures, and how fast it was since ``begin``.

        Of ``tokens`` those a second, of ``flops`` the model-FLOPs ``utilisation``: their share of what the machine
        would have done at its peak.
        """
        seconds = perf_counter() - self._began
        if "tokens" in row:
            row["tokens/s"] = round(row["tokens"] / seconds)
        if "flops" in row:
            row["utilisation"] = round(row.pop("flops") / self.peak / seconds, 4)
        self.log.write(self.step, **row, seconds=round(seconds, 4))
        self.state.step += 1
        self.bar.advance_to(self.state.step)

    def alarm(self, step: int, lines: Iterable[str]) -> None:
        """Log and say what is wrong with retrieval."""
        for line in lines:
            self.log.write(step, alarm=line)
            self.notify(f"step {step}: ALARM: {line}")

    def told(self, **row: Any) -> None:
        """Log figures of an evaluation, and say them."""
        self.log.write(self.step, **row)
        figures = ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
        self.notify(f"step {self.step}: {figures}")


@dataclass(frozen=True)
class Taught:
    """What a batch teaches."""

    loss: Tensor
    """This process's part of the mean over the whole batch."""
    figures: dict[str, float]
    """``nll`` and what else there is to log, of the whole batch."""
    tokens: int
    """That went through a model in this process, padding included."""
    flops: float
    """Of this process."""


CHECKPOINTS = "checkpoints"


@contextmanager
def running(
    config: Any,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    name: str,
    progress: Progress = SILENT,
    notify: Callable[[str], None] = lambda line: None,
) -> Iterator[Run]:
    """The run in the directory ``config.out``: begun, or gone on with from its newest checkpoint.

    Args:
        config: a frozen dataclass with ``out``, ``steps``, ``seed`` and ``device``, maybe ``compile``; it is written
            beside.
        model: what is trained, as it begins.
        optimizer: of its parameters.
        name: of the work, for the bar.
        progress: told of the steps.
        notify: told of evaluations, a line each.

    Raises:
        BadInput: the directory holds a run with other settings, or from other files, or something else; or another
            process is at it.
        DamagedArtefact: its checkpoint is of another model, or its settings cannot be read.
    """
    begun_in = precision.fix_precision(_precision(config))
    with begun_in, _running(config, model, optimizer, name=name, progress=progress, notify=notify) as run:
        yield run


@contextmanager
def _running(
    config: Any,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    name: str,
    progress: Progress,
    notify: Callable[[str], None],
) -> Iterator[Run]:
    out: Path = config.out
    if config.device.startswith("cuda"):
        fuse_attention(model)
    if getattr(config, "compile", False):
        compile_encoders(model)
    state, peak = checkpoint.TrainState(model, optimizer), measure_peak_flops(config.device)
    if not parallel.is_first_process():  # the first process keeps the directory
        parallel.wait_for_all()
        checkpoint.restore(state, out / CHECKPOINTS)
        yield Run(out, state, config.steps, config.seed, NO_LOG, SILENT, lambda line: None, peak)
        return
    out.mkdir(parents=True, exist_ok=True)
    with hold_lock(out / ".lock", wait=False):
        settle(config, begun=begun(out))
        parallel.wait_for_all()
        checkpoint.restore(state, out / CHECKPOINTS)
        if state.step:
            notify(f"{out}: goes on at step {state.step:,} of {config.steps:,}")
        log = MetricLog(out, state.step)
        try:
            with progress.step(name, config.steps, "steps", state.step) as bar:
                yield Run(out, state, config.steps, config.seed, log, bar, notify, peak)
        finally:
            log.close()


def _precision(config: Any) -> str | None:
    """What a run on a CPU computes in: on the machine where it began as it began, elsewhere as that one is timed.

    All processes of a run as the first.
    """
    if config.device.startswith("cuda"):
        return None
    row = read_row(config.out / CONFIG) if (config.out / CONFIG).is_file() else {}
    name, machine = row.get(PRECISION) or (None, None)
    if machine != describe_hardware() or name not in NAMES:
        name = precision.choose_precision(config.device)
    return NAMES[parallel.broadcast_from_first(NAMES.index(name)) or 0]


def settle(config: Any, *, begun: bool) -> None:
    """Write the settings into ``config.out``, or see that they are those that a run there began with.

    One that has not ``begun``, for want of a checkpoint, begins anew. Raises BadInput where the settings are others or
    the directory is something else's: what a run writes would take the place of what is there.
    """
    out: Path = config.out
    vacant(out)
    now = json.loads(json.dumps(asdict(config), default=str)) | {INPUTS: inputs(config)}
    now[PRECISION] = [precision.choose_precision(config.device), describe_hardware()]
    file, before = out / CONFIG, None
    if file.is_file():
        before = read_row(file)
        spelled = [k for k in now if k not in (*FREE, INPUTS, PRECISION) and before.get(k) != now[k]]
        held = {k: now[INPUTS][k] == before[INPUTS][k] for k in known(before.get(INPUTS, {}), now[INPUTS])}
        told = [f"{k} {before.get(k)}, not {now[k]}" for k in spelled if not held.get(k)]
        told += [f"what is in {k}" for k, same in held.items() if not same and k not in spelled]
        if told and begun:
            raise BadInput(f"{out} holds a run with other settings ({', '.join(told)}): choose another directory")
    if before != now:
        artefacts.write_text_whole(file, json.dumps(now, indent=1) + "\n")


def vacant(out: Path) -> None:
    """Raise BadInput where a directory holds something else than a run; for recipes that write before theirs begins."""
    if foreign := _foreign(out):
        raise BadInput(f"{out} is no run, but holds {foreign} of something else: choose another directory")


def write_model(model: SavableModel, folder: Path, tokenizer: Path | None = None) -> None:
    """Write what a run has made, whole or not at all, with the file of its ``tokenizer`` where it writes none."""
    with artefacts.replace_directory(folder) as aside:
        model.save(aside)
        if tokenizer is not None:
            shutil.copyfile(tokenizer, aside / "tokenizer.json")


def _foreign(out: Path) -> str | None:
    """What of a directory without a run is not a run's, nor hidden."""
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file: choose a directory")
    if not out.is_dir():
        return None
    if (out / artefacts.MANIFEST).is_file():
        return artefacts.MANIFEST
    if (out / CONFIG).is_file():
        return None if "out" in read_row(out / CONFIG) else CONFIG  # a model's
    there = sorted(each for each in out.iterdir() if not each.name.startswith((".", *BEFORE)))
    return next((each.name for each in there if each.is_file() or each.name in RESULTS), None)


CONFIG = "config.json"
"""Of a run: its settings."""
BEFORE = ("negatives.jsonl",)
"""Files that a recipe makes before its run begins."""
RESULTS = ("model", "best", "generator", "pipeline", "system")
"""Directories that a run puts in the place of what is called so."""
PRECISION = "precision"
"""Under this they say what the run computes in, and on which machine."""
NAMES = ("float32", "bfloat16")
INPUTS = "inputs"
"""Under this the settings of a run say what was in the files and directories that they name."""


def known(before: dict[str, str], now: dict[str, str]) -> set[str]:
    """Settings of which both times tell what was in the files they name: however these are spelled."""
    return before.keys() & now.keys()


def inputs(config: Any) -> dict[str, str]:
    """What is in each place that the settings name, but for ``out``: a digest by the setting, where it is there."""
    found = {}
    for name, value in vars(config).items():
        places = [place for place in (value if isinstance(value, tuple) else (value,)) if isinstance(place, Path)]
        if name != "out" and places and all(place.exists() for place in places):
            found[name] = " ".join(map(_digest, places))
    return found


def _digest(place: Path) -> str:
    """An artefact has its fingerprint; of other directories all files count."""
    if (place / artefacts.MANIFEST).is_file():
        return artefacts.peek_manifest(place).fingerprint
    files = sorted(place.rglob("*")) if place.is_dir() else [place]
    rows = [f"{file.relative_to(place)} {artefacts.checksum(file)}" for file in files if file.is_file()]
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]


def read_row(file: Path) -> dict[str, Any]:
    """What a run has written of itself; raises DamagedArtefact where that cannot be read."""
    try:
        row: dict[str, Any] = json.loads(file.read_text())
    except ValueError as error:
        raise DamagedArtefact(f"{file} is damaged ({error}): choose another directory") from error
    return row


def held(out: Path) -> AbstractContextManager[None]:
    """The lock of a directory in which several runs follow one another; the first of several processes holds it."""
    return nullcontext() if not parallel.is_first_process() else hold_lock(out / ".lock", wait=False)


def begun(out: Path) -> bool:
    """Whether a run in ``out`` has a checkpoint to go on from."""
    return bool(checkpoint.list_checkpoints(out / CHECKPOINTS))
