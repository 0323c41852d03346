"""Options from dataclasses: typed, in a file, or both, whatever is nested in what."""

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from pipelines.realm.__main__ import RealmConfig
from ragqa.cli.config import parse
from ragqa.errors import BadInput

pytest.importorskip("tyro", reason="the extra torch is not installed")


@dataclass(frozen=True, kw_only=True)
class Stage:
    corpus: Path
    steps: int = 10
    thin: float | None = 0.5
    null: bool = True
    shared: bool = False
    marginal: Literal["token", "sequence"] = "token"
    ks: tuple[int, ...] = (1, 5)


STAGE = Stage(corpus=Path("above"), shared=True)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    corpus: Path
    seed: int = 0
    stage: Stage = STAGE


def file(tmp_path: Path, row: Any) -> list[str]:
    (tmp_path / "c.json").write_text(json.dumps(row))
    return ["--config", str(tmp_path / "c.json")]


CHANGED = {"steps": 3, "thin": None, "null": False, "shared": False, "marginal": "sequence", "ks": [2]}


@pytest.mark.parametrize("typed", [[], ["--seed", "7"]], ids=["the file alone", "and an option"])
def test_a_file_says_what_stages_are_told(tmp_path: Path, typed: list[str]) -> None:
    """The same, whether tyro reads the rest or not; what is off must not be forgotten on the way."""
    given = file(tmp_path, {"corpus": "wiki.index", "stage": {**CHANGED, "corpus": "own.index"}})
    config = parse(Recipe, None, [*given, *typed])
    assert config == Recipe(
        corpus=Path("wiki.index"),
        seed=7 if typed else 0,
        stage=Stage(
            corpus=Path("own.index"), steps=3, thin=None, null=False, shared=False, marginal="sequence", ks=(2,)
        ),
    )


def test_what_is_not_said_of_a_stage_stays(tmp_path: Path) -> None:
    for typed in ([], ["--seed", "7"]):
        config = parse(Recipe, None, [*file(tmp_path, {"corpus": "c", "stage": {"steps": 3}}), *typed])
        assert config.stage == Stage(corpus=Path("above"), steps=3, shared=True)


def test_what_is_typed_overrules_the_file(tmp_path: Path) -> None:
    given = file(tmp_path, {"corpus": "c", "stage": {"steps": 3, "thin": None}})
    config = parse(Recipe, None, [*given, "--stage.steps", "4", "--stage.thin", "0.25", "--stage.no-null"])
    assert (config.stage.steps, config.stage.thin, config.stage.null) == (4, 0.25, False)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"corpus": "c", "stage": {"stepz": 3}}, r"there is no option stage\.stepz; there are corpus, steps"),
        ({"corpus": "c", "stage": {"steps": "3"}}, r'stage\.steps = "3": not of the type'),
        ({"corpus": "c", "stage": {"marginal": "both"}}, r'stage\.marginal = "both": not of the type'),
        ({"corpus": "c", "stage": 3}, "stage = 3: not of the type"),
        ({"stage": {"steps": 3}}, "corpus: not given"),
    ],
)
def test_what_a_file_says_wrongly_is_named(tmp_path: Path, row: dict, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse(Recipe, None, file(tmp_path, row))


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_what_is_typed_wrongly_is_told_in_one_line(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the terminal has no lines to draw a frame with, too."""
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    with pytest.raises(BadInput) as error:
        parse(Stage, "", ["--corpus", "c", "--stepz", "3"])
    told = str(error.value)
    assert "Unrecognized options: --stepz" in told and told.endswith("; --help lists the options")
    assert not {"\n", "│", "─"} & set(told)


def test_a_recipe_is_told_by_a_file(tmp_path: Path) -> None:
    row = {"corpus": "wiki.index", "encoder": "e", "questions": "q.jsonl", "out": "runs"}
    stages = {"pretrain": {"null": False, "refresh-every": None, "marginal": "sequence"}, "tune": {"beam": 100}}
    config = parse(RealmConfig, None, [*file(tmp_path, {**row, **stages}), "--cloze.batch", "64"])
    assert (config.pretrain.null, config.pretrain.refresh_every, config.pretrain.marginal) == (False, None, "sequence")
    assert (config.tune.beam, config.tune.read, config.cloze.batch, config.cloze.steps) == (100, 5, 64, 100_000)
