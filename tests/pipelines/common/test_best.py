"""The best weights of a run are chosen in the same way if the run is killed."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pipelines.common.best import FOLDER, BestWeights
from pipelines.common.config import TrainingConfig
from pipelines.common.run import open_run
from ragqa.errors import DamagedArtefact
from ragqa.training.log import read_rows

VALUES = {0: 0.1, 3: 0.5, 6: 0.9, 9: 0.9, 12: 0.2}
"""Result of each evaluation by its step; a checkpoint is written every 4 steps."""


@dataclass(frozen=True, kw_only=True)
class CountingConfig(TrainingConfig):
    steps: int = 13


class Killed(BaseException):
    pass


def train_counting_model(
    config: CountingConfig, values: dict[int, float], *, kill: int | None = None, lines: list[str] | None = None
) -> float:
    """Run a recipe whose only weight counts its steps; return the weight that it saves."""
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    with open_run(config, model, name="counting", notify=(lines if lines is not None else []).append) as run:
        best = BestWeights(run, "em")
        while True:
            if run.step in values:
                best.report(em=values[run.step])
            if run.step == kill:
                raise Killed
            if run.is_due(4) and run.step:
                best.save()
            if run.is_done:
                break
            with torch.no_grad():
                model.weight += 1
            run.finish_step(nll=0.0)
        best.restore()
    return float(model.weight.item())


def read_evaluations(out: Path) -> list[dict[str, Any]]:
    return [row for row in read_rows(out) if "em" in row]


def test_an_equal_evaluation_is_no_improvement(tmp_path: Path) -> None:
    """Patience counts from the first of equal evaluations; the weights of the last are saved."""
    model = torch.nn.Linear(1, 1)
    config = CountingConfig(out=tmp_path / "run")
    with open_run(config, model, name="counting") as run:
        best, stale = BestWeights(run, "em"), []
        for value in (0.5, 0.5, 0.4, 0.5, 0.6):
            best.report(em=value)
            stale.append(best.steps_since)
            run.finish_step(nll=0.0)
    assert stale == [0, 1, 2, 3, 0]
    assert [row["best_step"] for row in read_evaluations(config.out)] == [0, 1, 1, 3, 4]


def test_of_equal_evaluations_the_last_weights_are_saved(tmp_path: Path) -> None:
    lines: list[str] = []
    assert train_counting_model(CountingConfig(out=tmp_path), VALUES, lines=lines) == 9
    assert [(row["step"], row["best_step"]) for row in read_evaluations(tmp_path)] == [
        (0, 0),
        (3, 3),
        (6, 6),
        (9, 9),
        (12, 9),
    ]
    assert lines[-1] == "the run keeps the weights of step 9, the best on held-out questions: em 0.9"
    assert [file.name for file in (tmp_path / FOLDER).iterdir()] == ["step-00000009.safetensors"]
    assert (
        train_counting_model(CountingConfig(out=tmp_path), VALUES) == 9
    )  # as after a kill between the last checkpoint and the end


def test_without_evaluations_the_last_weights_are_saved(tmp_path: Path) -> None:
    lines: list[str] = []
    assert train_counting_model(CountingConfig(out=tmp_path), {}, lines=lines) == 13
    assert lines == [] and not (tmp_path / FOLDER).exists()


@pytest.mark.parametrize("moment", range(14))
def test_a_killed_run_chooses_the_same_weights(tmp_path: Path, moment: int) -> None:
    """The moments include those before the first checkpoint and between an evaluation and a checkpoint."""
    assert train_counting_model(CountingConfig(out=tmp_path / "whole"), VALUES) == 9
    broken = CountingConfig(out=tmp_path / "broken")
    with pytest.raises(Killed):
        train_counting_model(broken, VALUES, kill=moment)
    assert train_counting_model(broken, VALUES) == 9
    assert read_evaluations(broken.out) == read_evaluations(tmp_path / "whole")


def test_evaluations_after_the_checkpoint_are_forgotten(tmp_path: Path) -> None:
    """The continued run may compute other values; its own values count."""
    config = CountingConfig(out=tmp_path)
    with pytest.raises(Killed):
        train_counting_model(
            config, VALUES, kill=7
        )  # the checkpoint of step 4 has the evaluation of step 3 but not of step 6
    assert sorted(file.name[-14:-12] for file in (tmp_path / FOLDER).iterdir()) == ["03", "06"]
    assert train_counting_model(config, {**VALUES, 6: 0.4, 9: 0.3}) == 3


def test_a_kill_during_writing_leaves_the_previous_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_half(self: Path, target: Path) -> Path:
        self.write_bytes(self.read_bytes()[:20])
        raise Killed

    with monkeypatch.context() as patch:
        with pytest.raises(Killed):
            train_counting_model(CountingConfig(out=tmp_path), VALUES, kill=5)
        patch.setattr(Path, "replace", write_half)
        with pytest.raises(Killed):
            train_counting_model(CountingConfig(out=tmp_path), VALUES)
    assert train_counting_model(CountingConfig(out=tmp_path), {**VALUES, 6: 0.0, 9: 0.0}) == 3
    assert [file.name for file in (tmp_path / FOLDER).iterdir()] == ["step-00000003.safetensors"]


def test_missing_weights_are_reported_in_one_line(tmp_path: Path) -> None:
    train_counting_model(CountingConfig(out=tmp_path), VALUES)
    (tmp_path / FOLDER / "step-00000009.safetensors").unlink()
    with pytest.raises(DamagedArtefact, match=r"step-00000009\.safetensors cannot be loaded") as error:
        train_counting_model(replace(CountingConfig(out=tmp_path)), {})
    assert "\n" not in str(error.value)
