"""The bench of what a step of REALM costs: that it times the recipes' own steps, and all of their parts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from eval import closed_world
from eval.bench import realm_step
from pipelines.orqa import inverse_cloze
from ragqa.training.log import read_rows


def test_the_steps_of_the_recipes_are_timed_part_by_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = closed_world.make(30, 5, 0)
    folders = closed_world.write(world, tmp_path / "world", width=32)
    start = closed_world.begin(folders, tmp_path / "start", 0)
    cloze = closed_world.warm_up(folders, start, tmp_path / "cloze", seed=0, steps=1)
    retriever = inverse_cloze.main(replace(cloze, batch=16))
    options = {"--corpus": folders.corpus, "--encoder": start, "--retriever": retriever, "--work": tmp_path / "work"}
    options |= {"--out": tmp_path / "out.json", "--batch": 4, "--steps": 4, "--masking": "words"}
    arguments = [str(part) for pair in options.items() for part in pair]
    realm_step.main(arguments)
    found = json.loads((tmp_path / "out.json").read_text())
    assert (found["masked_lm"]["steps"], found["realm"]["steps"]) == (8, 4)
    rows = [row for row in read_rows(tmp_path / "work" / "1-realm") if "seconds" in row]
    assert len(rows) == 9 and found["realm"]["tokens_a_step"] > 4 * found["masked_lm"]["tokens_a_step"]
    for kind, parts in realm_step.PARTS.items():
        spent = found[kind]["seconds_a_step"]
        assert list(spent) == [*(part for _, _, part in parts), realm_step.REST[kind]]
        assert sum(spent.values()) == pytest.approx(1 / found[kind]["steps_per_s"], rel=0.02)
    assert found["price"] > 1 and found["price_with_refresh"] >= found["price"] and found["refresh_s"] > 0
    with pytest.raises(SystemExit, match="2"):
        realm_step.main([*arguments, "--corpus", str(tmp_path / "nowhere")])
    assert "nowhere" in capsys.readouterr().err
