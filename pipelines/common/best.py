"""The weights of a run's best evaluation, kept aside: they are what is written at its end."""

from pathlib import Path
from typing import Any

from safetensors.torch import load_model, save_model

from pipelines.common.run import Run
from ragqa.artefacts import report_write_errors
from ragqa.errors import DamagedArtefact
from ragqa.training import parallel

FOLDER = "best"
_MARK = "best"
"""Under this a checkpoint says which evaluation was the best by then."""


class Best:
    """The best evaluation so far, for the first of several processes, which evaluates.

    Every checkpoint names the one that was the best by then, and its weights stay as long as the checkpoint does: a
    run that goes on from there chooses as an unbroken one, whatever it had seen before it was killed.
    """

    def __init__(self, run: Run, metric: str) -> None:
        """Of a run as it begins or goes on; the higher ``metric``, the better."""
        self._run, self._metric = run, metric
        self._folder = run.path / FOLDER
        self._mark: dict[str, Any] | None = run.state.extra.get(_MARK)

    @property
    def stale(self) -> int | None:
        """Steps that were taken since an evaluation was better than all before it; None before any."""
        return self._run.step - self._mark.get("better", self._mark["step"]) if self._mark else None

    def told(self, **figures: float) -> None:
        """Log and say an evaluation and which was the best so far; of equal ones, that is the last."""
        step, value = self._run.step, figures[self._metric]
        if self._mark is None or value >= self._mark["value"]:
            level = self._mark if self._mark and value == self._mark["value"] else None
            self._write(step)
            self._mark = {"step": step, "value": value, "better": level.get("better", level["step"]) if level else step}
            self._tidy()
        self._run.told(**figures, best_step=self._mark["step"])

    def save(self, **extra: Any) -> None:
        """Write a checkpoint, with ``extra`` beside."""
        self._run.save(**extra, **{_MARK: self._mark})
        self._tidy()

    def restore(self) -> None:
        """Give the model the best weights; without an evaluation it keeps its last ones.

        Raises:
            DamagedArtefact: they are not there, or not whole.
        """
        if self._mark is None or not parallel.is_first_process():
            return
        file = self._file(self._mark["step"])
        try:
            load_model(self._run.state.model, file)
        except Exception as error:  # safetensors raises its own kinds
            reason = str(error).strip().split("\n")[0]
            raise DamagedArtefact(f"{file} cannot be taken ({reason}): begin in an empty directory") from error
        value = f"{self._metric} {self._mark['value']:.4g}"
        self._run.notify(
            f"the weights of step {self._mark['step']} are written, the best on held-out questions: {value}"
        )

    def _write(self, step: int) -> None:
        aside, file = self._folder / ".writing", self._file(step)
        with report_write_errors(file):
            self._folder.mkdir(exist_ok=True)
            save_model(self._run.state.model, str(aside))
            aside.replace(file)

    def _tidy(self) -> None:
        """Delete what neither a checkpoint nor the run refers to."""
        if not parallel.is_first_process():
            return
        marks = [*self._run.kept(_MARK), self._mark]
        kept = {self._file(mark["step"]) for mark in marks if mark}
        for file in set(self._folder.glob("*")) - kept:
            file.unlink()

    def _file(self, step: int) -> Path:
        return self._folder / f"step-{step:08d}.safetensors"
