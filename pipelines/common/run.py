"""Training run in a directory, which holds its settings, checkpoints and figures."""

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
    """Loss of a batch, and the figures of the batch for the log."""

    loss: Tensor
    """Scalar: this process's part of the mean loss over the whole batch."""
    figures: dict[str, float]
    """Means over the whole batch by their names in the log, for example ``nll``, a loss in nats."""
    tokens: int
    """Number of tokens that went through a model in this process, including padding."""
    flops: float
    """Number of floating-point operations of a training step in this process."""

    @classmethod
    def from_mean(cls, mean: Tensor, counted: Tensor, *, tokens: int, flops: float, **figures: float) -> "BatchLoss":
        """Make the loss of a batch from the mean loss of this process.

        The means of several processes are weighted by their numbers of items that count.

        Args:
            mean: mean loss of the items of this process.
            counted: True or 1 for each item (token, text or question) that counts in the mean.
            tokens: number of tokens that went through a model in this process, including padding.
            flops: number of floating-point operations of a training step in this process.
            figures: further means over the items of this process. Without ``nll``, ``mean`` is logged as ``nll``.
        """
        weight = parallel.compute_loss_weight(counted)
        averages = parallel.average_over_processes({"nll": mean.item(), **figures}, weight)
        return cls(mean * weight, averages, tokens, flops)


@dataclass
class Run:
    """Training run in progress."""

    path: Path
    """Directory of the run."""
    state: checkpoint.TrainState
    """Model, optimizer, number of finished steps, and further values of the newest checkpoint."""
    steps: int
    """Number of all steps."""
    seed: int
    """Seed of all random numbers."""
    log: Log
    """Log of the figures; it writes nothing in processes other than the first."""
    bar: Step
    """Progress bar of the steps."""
    notify: Notify
    """Function that receives lines for the user; only the first process sends lines."""
    peak_flops: float
    """Floating-point operations per second that the device reaches in a matrix product."""
    _began: float = field(default_factory=perf_counter)

    @property
    def step(self) -> int:
        """Number of finished steps."""
        return self.state.step

    @property
    def is_done(self) -> bool:
        """True if all steps are finished."""
        return self.state.step >= self.steps

    def is_due(self, every: int | None) -> bool:
        """Return True at step 0, multiples of ``every`` and the end of the run; False for None."""
        return every is not None and (self.is_done or self.step % every == 0)

    def save(self, **extra: Any) -> None:
        """Write a checkpoint; only the first process writes.

        A checkpoint of the same step, from which the run continues, is not written again.

        Args:
            extra: values to save beside model, optimizer and step; a resumed run has them in ``state.extra``.

        Raises:
            BadInput: the checkpoint cannot be written, for example because the disk is full.
        """
        self.state.extra = extra
        if parallel.is_first_process():
            checkpoint.save(self.state, self.path / CHECKPOINTS)

    def saved_extras(self, name: str) -> list[Any]:
        """Return the values that ``save`` wrote under ``name`` into checkpoints, oldest first.

        Only the first process reads checkpoints; the others return an empty list.
        """
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
        """Yield the number of each remaining step; between steps, save and evaluate when due.

        The first step of a run has the number 0. The body of the loop takes the step. The model is also evaluated
        before the first step and after the last, and saved after the last. A checkpoint is written before the
        evaluation at the same step, so a run that continues from the checkpoint repeats the evaluation.

        Args:
            save_every: steps between two checkpoints.
            save: function that writes a checkpoint; default: ``Run.save``.
            adopt_index: function that takes a newer index into use, called before each step and at the end.
            evaluate: function that evaluates the model, called in the first process only; None never evaluates.
            eval_every: steps between two evaluations; None never evaluates.

        Raises:
            BadInput: as for ``save``. Other errors of the functions pass unchanged.
        """
        while True:
            if adopt_index:
                adopt_index()
            # A run with an index also writes a checkpoint at step 0, because only a checkpoint names the index in use.
            if self.is_due(save_every) and (self.step or adopt_index):
                (save or self.save)()
            if evaluate and self.is_due(eval_every) and parallel.is_first_process():
                evaluate()
            if self.is_done:
                return
            self.begin_step()
            yield self.step

    def begin_step(self) -> None:
        """Start the clock of a step, and seed its random numbers.

        The random numbers depend only on the seed, the step and the process, so that a resumed run repeats them.
        """
        self._began = perf_counter()
        parallel.seed_process(self.seed, self.step)

    def take_step(self, batch: BatchLoss, *, rate: float | Sequence[float], clip: float, **figures: float) -> None:
        """Take one optimizer step on a batch and log it.

        Args:
            batch: loss and figures of the batch.
            rate: learning rate, which is logged as ``lr``; or a rate for each of the optimizer's groups.
            clip: largest norm of the gradient; a larger gradient is scaled down.
            figures: further figures to log.

        Raises:
            NonFiniteLoss: the loss or the gradient is not finite; the weights have not changed.
        """
        norm = optimise(batch.loss, self.state.optimizer, rate=rate, clip=clip, step=self.step)
        if isinstance(rate, float):
            figures["lr"] = rate
        tokens = parallel.sum_over_processes(batch.tokens)
        self.finish_step(**batch.figures, **figures, grad_norm=norm, tokens=tokens, flops=batch.flops)

    def finish_step(self, **row: Any) -> None:
        """Log the figures and the speed of a step, and count the step as finished.

        Args:
            row: figures of the step. With ``tokens``, ``tokens/s`` is also logged. ``flops``, the floating-point
                operations of this process, is logged as ``utilisation``: operations per second / ``peak_flops``.
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
        """Log alarms, which warn that training goes wrong, and send each to ``notify``.

        Args:
            step: step of the alarms.
            lines: text of each alarm.
        """
        for line in lines:
            self.log.write(step, alarm=line)
            self.notify(f"step {step}: ALARM: {line}")

    def report(self, **row: Any) -> None:
        """Log the figures of an evaluation, given by name, and send them to ``notify`` in one line."""
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
    """Yield the run in ``config.out``, which is new or continues from its newest checkpoint.

    The first process locks the directory until the block ends.

    Args:
        config: settings, which are written into the directory.
        model: model to train, with its initial weights.
        parts: parts of the model with separate learning rates; default: the whole model with one rate.
        name: name of the work in the progress bar.
        progress: shows the steps.
        notify: receives a line if the run continues, and the lines that the run sends.

    Raises:
        BadInput: the directory holds other files or a run with other settings or inputs, or another process uses it.
        DamagedArtefact: the checkpoint does not fit the model, or the recorded settings cannot be read.
        ArtefactError: the manifest of an input cannot be read.
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
        if not parallel.is_first_process():  # only the first process writes into the directory
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
    """Write a trained model into a directory; only the first process writes.

    Args:
        model: model to write.
        folder: directory to write; an older model in it is replaced.
        tokenizer: tokenizer.json to copy into the directory, if given.

    Raises:
        BadInput: ``folder`` holds other files, or cannot be written.
    """
    if not parallel.is_first_process():
        return
    with artefacts.replace_directory(folder) as aside:
        model.save(aside)
        if tokenizer is not None:
            shutil.copyfile(tokenizer, aside / "tokenizer.json")
