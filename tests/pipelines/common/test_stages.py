"""Stages of a recipe: their settings, and the changes that repeat them."""

import shutil
from pathlib import Path

import pytest

from pipelines.common.assemble import AssembleConfig
from pipelines.common.config import FROM_RECIPE
from pipelines.common.stages import fill_unset, run_stage
from pipelines.orqa.config import TUNE
from ragqa.errors import DamagedArtefact
from ragqa.settings.groups import replace_settings


def test_settings_of_a_stage_win_over_those_of_the_recipe() -> None:
    stage = replace_settings(TUNE, device="cuda", encoder=Path("own"))
    whole = fill_unset(stage, corpus=Path("c"), encoder=Path("e"), device="cpu", seed=7, out=Path("o"))
    assert (whole.corpus, whole.encoder, whole.device, whole.seed) == (Path("c"), Path("own"), "cuda", 7)
    assert whole.retriever == FROM_RECIPE


def test_a_stage_is_done_once_for_its_settings(tmp_path: Path) -> None:
    reads: list[int | None] = []
    config = AssembleConfig(corpus=Path("c"), retriever=Path("r"), out=tmp_path / "stage")

    def work(config: AssembleConfig) -> Path:
        (config.out / "made").mkdir(parents=True, exist_ok=True)
        reads.append(config.read)
        if len(reads) == 1:
            raise KeyboardInterrupt
        return config.out / "made"

    with pytest.raises(KeyboardInterrupt):
        run_stage(config, work)
    assert run_stage(config, work) == run_stage(config, work) == tmp_path / "stage" / "made"
    assert reads == [None, None]
    run_stage(replace_settings(config, workers=2), work)  # the number of workers does not change the result
    run_stage(replace_settings(config, read=5), work)
    assert reads == [None, None, 5]


def test_a_stage_is_repeated_when_its_inputs_change(tmp_path: Path) -> None:
    reads: list[str] = []
    weights = tmp_path / "weights"
    config = AssembleConfig(corpus=Path("c"), retriever=weights, out=tmp_path / "stage")

    def work(config: AssembleConfig) -> Path:
        reads.append((weights / "model").read_text())
        config.out.mkdir(exist_ok=True)
        return config.out

    weights.mkdir()
    for text in ("one", "one", "two"):
        (weights / "model").write_text(text)
        run_stage(config, work)
    assert reads == ["one", "two"]
    run_stage(replace_settings(config, retriever=weights.parent / "." / ".." / tmp_path.name / "weights"), work)
    assert reads == ["one", "two"]  # the same directory by another path
    shutil.rmtree(weights)
    run_stage(config, work)  # an input that was deleted later does not matter
    assert reads == ["one", "two"]
    (config.out / "finished.json").write_text("")
    with pytest.raises(DamagedArtefact, match="is damaged"):
        run_stage(config, work)
