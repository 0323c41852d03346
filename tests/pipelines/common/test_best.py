"""The best weights of a run: which they are, and that a kill changes nothing of it."""

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
"""Of an evaluation every 3 steps; a checkpoint is written every 4."""


@dataclass(frozen=True, kw_only=True)
class CountingConfig(TrainingConfig):
    steps: int = 13


class Killed(BaseException):
    pass


def recipe(
    config: CountingConfig, values: dict[int, float], *, kill: int | None = None, told: list[str] | None = None
) -> float:
    """What is written at the end by a run whose only weight is the number of its steps."""
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    with open_run(config, model, name="counting", notify=(told if told is not None else []).append) as run:
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


def evaluations(out: Path) -> list[dict[str, Any]]:
    return [row for row in read_rows(out) if "em" in row]


def test_an_equal_evaluation_is_no_improvement(tmp_path: Path) -> None:
    """The first of them counts for patience, the last is written."""
    model = torch.nn.Linear(1, 1)
    config = CountingConfig(out=tmp_path / "run")
    with open_run(config, model, name="counting") as run:
        best, stale = BestWeights(run, "em"), []
        for value in (0.5, 0.5, 0.4, 0.5, 0.6):
            best.report(em=value)
            stale.append(best.steps_since)
            run.finish_step(nll=0.0)
    assert stale == [0, 1, 2, 3, 0]
    assert [row["best_step"] for row in evaluations(config.out)] == [0, 1, 1, 3, 4]


def test_the_best_weights_are_written_the_last_of_equal_ones(tmp_path: Path) -> None:
    told: list[str] = []
    assert recipe(CountingConfig(out=tmp_path), VALUES, told=told) == 9
    assert [(row["step"], row["best_step"]) for row in evaluations(tmp_path)] == [
        (0, 0),
        (3, 3),
        (6, 6),
        (9, 9),
        (12, 9),
    ]
    assert told[-1] == "the run keeps the weights of step 9, the best on held-out questions: em 0.9"
    assert [file.name for file in (tmp_path / FOLDER).iterdir()] == ["step-00000009.safetensors"]
    assert recipe(CountingConfig(out=tmp_path), VALUES) == 9  # as after a kill between the last checkpoint and the end


def test_without_evaluations_the_last_weights_are_written(tmp_path: Path) -> None:
    told: list[str] = []
    assert recipe(CountingConfig(out=tmp_path), {}, told=told) == 13
    assert told == [] and not (tmp_path / FOLDER).exists()


@pytest.mark.parametrize("moment", range(14))
def test_a_killed_run_chooses_the_same_weights(tmp_path: Path, moment: int) -> None:
    """Before any checkpoint, between an evaluation and its checkpoint, after the last."""
    assert recipe(CountingConfig(out=tmp_path / "whole"), VALUES) == 9
    broken = CountingConfig(out=tmp_path / "broken")
    with pytest.raises(Killed):
        recipe(broken, VALUES, kill=moment)
    assert recipe(broken, VALUES) == 9
    assert evaluations(broken.out) == evaluations(tmp_path / "whole")


def test_evaluations_after_the_checkpoint_are_forgotten(tmp_path: Path) -> None:
    """As where steps or figures come out a little differently: the choice is of the run as it went on."""
    config = CountingConfig(out=tmp_path)
    with pytest.raises(Killed):
        recipe(config, VALUES, kill=7)  # the checkpoint of step 4 knows the evaluation of step 3, not that of step 6
    assert sorted(file.name[-14:-12] for file in (tmp_path / FOLDER).iterdir()) == ["03", "06"]
    assert recipe(config, {**VALUES, 6: 0.4, 9: 0.3}) == 3


def test_a_kill_during_writing_leaves_the_weights_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(self: Path, target: Path) -> Path:
        self.write_bytes(self.read_bytes()[:20])
        raise Killed

    with monkeypatch.context() as patch:
        with pytest.raises(Killed):
            recipe(CountingConfig(out=tmp_path), VALUES, kill=5)
        patch.setattr(Path, "replace", half)
        with pytest.raises(Killed):
            recipe(CountingConfig(out=tmp_path), VALUES)
    assert recipe(CountingConfig(out=tmp_path), {**VALUES, 6: 0.0, 9: 0.0}) == 3
    assert [file.name for file in (tmp_path / FOLDER).iterdir()] == ["step-00000003.safetensors"]


def test_missing_weights_are_reported_in_one_line(tmp_path: Path) -> None:
    recipe(CountingConfig(out=tmp_path), VALUES)
    (tmp_path / FOLDER / "step-00000009.safetensors").unlink()
    with pytest.raises(DamagedArtefact, match=r"step-00000009\.safetensors cannot be loaded") as error:
        recipe(replace(CountingConfig(out=tmp_path)), {})
    assert "\n" not in str(error.value)
