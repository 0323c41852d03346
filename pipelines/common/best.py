"""Weights of the best evaluation of a run, restored at its end."""

from pathlib import Path
from typing import Any

from safetensors.torch import load_model, save_model

from pipelines.common.run import Run
from ragqa.artefacts import report_write_errors
from ragqa.artefacts.sync import sync_file
from ragqa.errors import DamagedArtefact, summarize_error
from ragqa.training import parallel

FOLDER = "best"
"""Name of the folder with the weights in the directory of a run."""
_KEY = "best"


class BestWeights:
    """Weights of the best evaluation of a run so far.

    With several processes, the first process evaluates. Each checkpoint names the best evaluation before it, and the
    weights of this evaluation are deleted no earlier than the checkpoint. So a resumed run chooses the same weights as
    an uninterrupted run.
    """

    def __init__(self, run: Run, metric: str) -> None:
        """Start without an evaluation, or continue with the best one that the checkpoint names.

        Args:
            run: run in progress.
            metric: name of the figure to maximise.
        """
        self._run, self._metric = run, metric
        self._folder = run.path / FOLDER
        self._best: dict[str, Any] | None = run.state.extra.get(_KEY)

    @property
    def steps_since(self) -> int | None:
        """Number of steps since the last improvement; None before the first evaluation."""
        return self._run.step - self._best.get("better", self._best["step"]) if self._best else None

    def report(self, **figures: float) -> None:
        """Report an evaluation; save the weights unless an earlier evaluation is better.

        Args:
            figures: figures of the evaluation by name; the metric must be among them.

        Raises:
            BadInput: the weights cannot be written, for example because the disk is full.
        """
        step, value, best = self._run.step, figures[self._metric], self._best
        if best is None or value >= best["value"]:
            is_equal = best is not None and value == best["value"]
            self._write(step)
            since = best.get("better", best["step"]) if best and is_equal else step
            self._best = {"step": step, "value": value, "better": since}
            self._delete_unused()
        assert self._best is not None
        self._run.report(**figures, best_step=self._best["step"])

    def save(self, **extra: Any) -> None:
        """Write a checkpoint that names the best evaluation.

        Arguments and errors are as for ``Run.save``.
        """
        self._run.save(**extra, **{_KEY: self._best})
        self._delete_unused()

    def restore(self) -> None:
        """Load the best weights in the first process; without an evaluation, keep the last weights.

        Raises:
            DamagedArtefact: the file of the weights cannot be loaded.
        """
        if self._best is None or not parallel.is_first_process():
            return
        file = self._file(self._best["step"])
        try:
            load_model(self._run.state.model, file)
        except Exception as error:  # safetensors has its own exception classes
            reason = summarize_error(error)
            raise DamagedArtefact(
                f"{file} cannot be loaded ({reason}): start the run again in an empty directory"
            ) from error
        value = f"{self._metric} {self._best['value']:.4g}"
        self._run.notify(
            f"the run keeps the weights of step {self._best['step']}, the best on held-out questions: {value}"
        )

    def _write(self, step: int) -> None:
        aside, file = self._folder / ".writing", self._file(step)
        with report_write_errors(file):
            self._folder.mkdir(exist_ok=True)
            save_model(self._run.state.model, str(aside))
            sync_file(aside)
            aside.replace(file)

    def _delete_unused(self) -> None:
        if not parallel.is_first_process():
            return
        evaluations = [*self._run.saved_extras(_KEY), self._best]
        used = {self._file(best["step"]) for best in evaluations if best}
        for file in set(self._folder.glob("step-*.safetensors")) - used:
            file.unlink()

    def _file(self, step: int) -> Path:
        return self._folder / f"step-{step:08d}.safetensors"
