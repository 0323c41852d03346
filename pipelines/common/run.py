"""Training run: a directory with settings, checkpoints and figures to continue from."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from ragqa.training.step import group_parameters, optimise


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
    """Floating-point operations of this process."""

    @classmethod
    def from_mean(cls, mean: Tensor, counted: Tensor, *, tokens: int, flops: float, **figures: float) -> "BatchLoss":
        """Weigh this process's mean loss by the number of items that count in it.

        Args:
            mean: mean loss of the items.
            counted: True, or 1, for each item of the share that counts: tokens, texts or questions.
            tokens: tokens that went through a model.
            flops: operations.
            figures: further means over the items; ``nll`` is ``mean`` unless it is among them.
        """
        weight = parallel.compute_loss_weight(counted)
        averages = parallel.average_over_processes({"nll": mean.item(), **figures}, weight)
        return cls(mean * weight, averages, tokens, flops)


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
    """Floating-point operations per second that the machine reaches."""
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
        """Tell whether something that happens every ``every`` steps, and at the end, is due."""
        return every is not None and (self.is_done or self.step % every == 0)

    def save(self, **extra: Any) -> None:
        """Write a checkpoint of the weights and ``extra``; only the first process does."""
        self.state.extra = extra
        if parallel.is_first_process():
            checkpoint.save(self.state, self.path / CHECKPOINTS)

    def saved_extras(self, name: str) -> list[Any]:
        """Return the values of ``name`` in all checkpoints; [] except in the first process."""
        if not parallel.is_first_process():
            return []
        return [extra[name] for extra in checkpoint.read_extras(self.path / CHECKPOINTS) if name in extra]

    def remaining_steps(
        self,
        save_every: int,
        *,
        save: Callable[[], None] | None = None,
        adopt_index: Callable[[], object] | None = None,
        evaluate: Callable[[], None] | None = None,
        eval_every: int | None = None,
    ) -> Iterator[int]:
        """Yield the number of each remaining step; save and evaluate where it is due.

        The loop's body finishes the step. A checkpoint comes before the evaluation at the same step, which a run that
        continues there repeats.

        Args:
            save_every: steps between two checkpoints.
            save: writes a checkpoint; by default one of model and optimizer alone.
            adopt_index: takes a newer index into use, if there is one.
            evaluate: evaluates the model in the first of several processes; None without held-out questions.
            eval_every: steps between two evaluations.
        """
        while True:
            if adopt_index:
                adopt_index()
            # The first index needs a checkpoint, too: without one no later index may be there when a run begins.
            if self.is_due(save_every) and (self.step or adopt_index):
                (save or self.save)()
            if evaluate and self.is_due(eval_every) and parallel.is_first_process():
                evaluate()
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
        """Take an optimizer step and log it; raise NonFiniteLoss before the weights change.

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
    *parts: nn.Module,
    name: str,
    progress: Progress = SILENT,
    notify: Notify = ignore_line,
) -> Iterator[Run]:
    """Begin the run in the directory ``config.out``, or continue it from its newest checkpoint.

    Args:
        config: settings, which are written into the directory.
        model: model to train, with its first weights.
        parts: modules of it with separate learning rates; by default the whole model has one.
        name: name of the work in the progress bar.
        progress: shows the steps.
        notify: receives a line for each evaluation and alarm.

    Raises:
        BadInput: the directory holds a run with other settings, or from other files, or something else; or another
            process works in it.
        DamagedArtefact: its checkpoint is of another model, or its settings cannot be read.
    """
    with precision.fix_precision(choose_precision(config)):
        groups = group_parameters(*(parts or (model,)), decay=config.weight_decay)
        optimizer = torch.optim.AdamW(groups)  # every step sets the learning rates
        if config.device.startswith("cuda"):
            fuse_attention(model)
        if config.compile:
            compile_encoders(model)
        state, checkpoints = checkpoint.TrainState(model, optimizer), config.out / CHECKPOINTS
        peak_flops = measure_peak_flops(config.device)
        run = Run(config.out, state, config.steps, config.seed, Log(), SILENT, ignore_line, peak_flops)
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
                notify(f"{config.out}: continues at step {state.step:,} of {config.steps:,}")
            log = MetricLog(config.out, state.step)
            run.log, run.notify = log, notify
            try:
                with progress.step(name, config.steps, "steps", state.step) as run.bar:
                    yield run
            finally:
                log.close()


def write_model(model: SavableModel, folder: Path, tokenizer: Path | None = None) -> None:
    """Write a trained model to ``folder``; only the first process does.

    Args:
        model: model to write.
        folder: directory, replaced as a whole.
        tokenizer: tokenizer.json to copy; None copies none.
    """
    if not parallel.is_first_process():
        return
    with artefacts.replace_directory(folder) as aside:
        model.save(aside)
        if tokenizer is not None:
            shutil.copyfile(tokenizer, aside / "tokenizer.json")
