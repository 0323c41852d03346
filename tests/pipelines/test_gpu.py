"""Recipes on a GPU have the losses of a CPU: chunks, dropout, fused attention, embedding, a resumed run.

The case ``cpu`` compares the CPU with itself, so that the comparison is tested without a GPU.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import interrupt

from pipelines.orqa import fine_tune_loop, inverse_cloze_loop
from pipelines.orqa.config import FineTuneConfig
from pipelines.realm import pretrain_loop
from ragqa.settings.groups import make_config, replace_settings
from ragqa.training.log import read_rows
from tests.helpers import closed_world


def read_losses(out: Path) -> list[float]:
    return [row["nll"] for row in read_rows(out) if "nll" in row]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_recipes_have_the_losses_of_a_cpu(device: str, tmp_path: Path) -> None:
    world = closed_world.make_world(30, 5, 0)
    folders = closed_world.write_world(world, tmp_path / "world", width=32)
    start = closed_world.init_encoder(folders, tmp_path / "start", 0)
    cloze = replace(
        closed_world.inverse_cloze_config(folders, start, tmp_path / "cloze", seed=0, steps=4),
        batch=16,
        chunk=5,
        warmup=1,
    )
    retriever = inverse_cloze_loop.main(cloze)
    few = {"batch": 4, "k": 4, "frozen": 1, "refresh_every": 2, "save_every": 3, "warmup": 1, "masking": "words"}
    realm = closed_world.realm_config(folders, start, retriever, tmp_path / "realm", seed=0, steps=6)
    realm = replace_settings(realm, **few, dev=None, dropout=0.0)
    pretrain_loop.main(realm)
    tune = make_config(FineTuneConfig,
        corpus=folders.corpus, retriever=realm.out / "model", encoder=realm.out / "reader",
        questions=folders.train_questions, out=tmp_path / "tune",
        steps=4, batch=2, beam=20, read=2, hidden=8, max_input=64, warmup=1, dropout=0.0,
    )  # fmt: skip
    fine_tune_loop.main(tune)
    inverse_cloze_loop.main(replace_settings(cloze, out=tmp_path / "cloze-2", device=device))
    interrupted = replace_settings(realm, out=tmp_path / "realm-2", device=device)
    interrupt(pretrain_loop.main, interrupted, 5)
    pretrain_loop.main(interrupted)
    fine_tune_loop.main(replace_settings(tune, out=tmp_path / "tune-2", device=device))
    for name, steps in (("cloze", 4), ("realm", 6), ("tune", 4)):
        cpu_losses, device_losses = read_losses(tmp_path / name), read_losses(tmp_path / f"{name}-2")
        assert len(cpu_losses) == len(device_losses) == steps
        assert device_losses == pytest.approx(cpu_losses, rel=3e-2)
    dropped = replace_settings(
        cloze, out=tmp_path / "cloze-3", dropout=0.1, device=device
    )  # each chunk is computed twice, alike
    inverse_cloze_loop.main(dropped)
    assert all(0 < loss < 10 for loss in read_losses(dropped.out))
