"""A training run: a directory with its settings, checkpoints and figures, from which it continues after a kill."""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from index.versions import SavableModel
from pipelines.common.config import TrainingConfig
from pipelines.common.run_directory import CHECKPOINTS, choose_precision, has_checkpoint, record_settings
from ragqa import artefacts
from ragqa.artefacts.lock import hold_lock
from ragqa.models.pretrained import compile_encoders, fuse_attention
from ragqa.progress import SILENT, Notify, Progress, Step, ignore_line
from ragqa.training import checkpoint, parallel, precision
from ragqa.training.log import Log, MetricLog
from ragqa.training.meter import measure_peak_flops
from ragqa.training.step import optimise


@dataclass(frozen=True)
class BatchLoss:
    """Loss of a batch, ready for the optimizer, and its figures for the log."""

    loss: Tensor
    """This process's part of the mean over the whole batch."""
    figures: dict[str, float]
    """``nll`` and other figures of the whole batch."""
    tokens: int
    """Tokens that went through a model in this process, padding included."""
    flops: float
    """Operations of this process."""


@dataclass
class Run:
    """Training run in progress."""

    path: Path
    state: checkpoint.TrainState
    steps: int
    seed: int
    log: Log
    bar: Step
    notify: Notify
    peak_flops: float
    """Operations a second that the machine reaches."""
    _began: float = field(default_factory=perf_counter)

    @property
    def step(self) -> int:
        """Number of steps taken."""
        return self.state.step

    @property
    def is_done(self) -> bool:
        """True if all steps are taken."""
        return self.state.step >= self.steps

    def is_due(self, every: int | None) -> bool:
        """Tell whether it is time for something that happens every so many steps, and at the end."""
        return every is not None and (self.is_done or self.step % every == 0)

    def save(self, **extra: Any) -> None:
        """Write a checkpoint of the weights and of ``extra``; only the first of several processes does."""
        self.state.extra = extra
        if parallel.is_first_process():
            checkpoint.save(self.state, self.path / CHECKPOINTS)

    def saved_extras(self, name: str) -> list[Any]:
        """Return the values with a name in ``extra`` of the existing checkpoints; none but in the first process."""
        if not parallel.is_first_process():
            return []
        return [extra[name] for extra in checkpoint.read_extras(self.path / CHECKPOINTS) if name in extra]

    def remaining_steps(self, save_every: int) -> Iterator[int]:
        """Begin each remaining step and yield its number, with a checkpoint every ``save_every`` steps.

        For recipes that neither evaluate nor save anything else. The body of the loop calls ``take_step``.
        """
        while True:
            if self.is_due(save_every) and self.step:
                self.save()
            if self.is_done:
                return
            self.begin_step()
            yield self.step

    def begin_step(self) -> None:
        """Start the clock of a step and seed its random numbers.

        They depend on the seed, the step and the process alone, so that a resumed run draws the same.
        """
        self._began = perf_counter()
        parallel.seed_process(self.seed, self.step)

    def take_step(self, batch: BatchLoss, *, rate: float | Sequence[float], clip: float, **figures: float) -> None:
        """Take an optimizer step on the loss of a batch, and log it; raise NonFiniteLoss before the weights change.

        Args:
            batch: loss and figures of the batch.
            rate: learning rate, or one for each of the optimizer's groups.
            clip: largest norm of the gradient.
            figures: further figures to log.
        """
        norm = optimise(batch.loss, self.state.optimizer, rate=rate, clip=clip, step=self.step)
        if isinstance(rate, float):
            figures["lr"] = rate
        tokens = parallel.sum_over_processes(batch.tokens)
        self.finish_step(**batch.figures, **figures, grad_norm=norm, tokens=tokens, flops=batch.flops)

    def finish_step(self, **row: Any) -> None:
        """Log the figures of a step, and its speed since ``begin_step``.

        ``tokens`` give tokens a second. ``flops`` give the model-FLOPs utilisation: their share of the operations that
        the machine could have done at its peak.
        """
        seconds = perf_counter() - self._began
        if "tokens" in row:
            row["tokens/s"] = round(row["tokens"] / seconds)
        if "flops" in row:
            row["utilisation"] = round(row.pop("flops") / self.peak_flops / seconds, 4)
        self.log.write(self.step, **row, seconds=round(seconds, 4))
        self.state.step += 1
        status = ", ".join(f"{name} {row[name]:.3f}" for name in row if name.endswith("nll"))
        self.bar.advance_to(self.state.step, status)

    def alarm(self, step: int, lines: Iterable[str]) -> None:
        """Log and report alarms about retrieval."""
        for line in lines:
            self.log.write(step, alarm=line)
            self.notify(f"step {step}: ALARM: {line}")

    def report(self, **row: Any) -> None:
        """Log and report the figures of an evaluation."""
        self.log.write(self.step, **row)
        figures = ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
        self.notify(f"step {self.step}: {figures}")


@contextmanager
def open_run(
    config: TrainingConfig,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    steps: int,
    name: str,
    progress: Progress = SILENT,
    notify: Notify = ignore_line,
) -> Iterator[Run]:
    """Begin the run in the directory ``config.out``, or continue it from its newest checkpoint.

    Args:
        config: settings, which are written into the directory.
        model: model to train, with its first weights.
        optimizer: optimizer of its parameters.
        steps: steps of the whole run.
        name: name of the work in the progress bar.
        progress: shows the steps.
        notify: receives a line for each evaluation and alarm.

    Raises:
        BadInput: the directory holds a run with other settings, or from other files, or something else; or another
            process works in it.
        DamagedArtefact: its checkpoint is of another model, or its settings cannot be read.
    """
    with precision.fix_precision(choose_precision(config)):
        if config.device.startswith("cuda"):
            fuse_attention(model)
        if config.compile:
            compile_encoders(model)
        state, checkpoints = checkpoint.TrainState(model, optimizer), config.out / CHECKPOINTS
        run = Run(config.out, state, steps, config.seed, Log(), SILENT, ignore_line, measure_peak_flops(config.device))
        if not parallel.is_first_process():  # the first process keeps the directory
            parallel.wait_for_all()
            checkpoint.restore(state, checkpoints)
            yield run
            return
        config.out.mkdir(parents=True, exist_ok=True)
        with hold_lock(config.out / ".lock", wait=False):
            record_settings(config, has_begun=has_checkpoint(config.out))
            parallel.wait_for_all()
            checkpoint.restore(state, checkpoints)
            if state.step:
                notify(f"{config.out}: continues at step {state.step:,} of {steps:,}")
            log = MetricLog(config.out, state.step)
            run.log, run.notify = log, notify
            try:
                with progress.step(name, steps, "steps", state.step) as run.bar:
                    yield run
            finally:
                log.close()


def write_model(model: SavableModel, folder: Path, tokenizer: Path | None = None) -> None:
    """Write the result of a run, whole or not at all.

    Args:
        model: trained model.
        folder: directory to write.
        tokenizer: tokenizer.json to copy, for a model that does not save its own.
    """
    with artefacts.replace_directory(folder) as aside:
        model.save(aside)
        if tokenizer is not None:
            shutil.copyfile(tokenizer, aside / "tokenizer.json")
