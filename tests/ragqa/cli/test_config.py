"""Command lines of dataclasses: options, a file of options, and both."""

import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from pipelines.realm.__main__ import RealmConfig
from ragqa.errors import BadInput, MissingExtra
from ragqa.retrieval.vectors.index_kinds import IndexKind
from ragqa.settings.command_line import parse_config
from ragqa.settings.groups import POSITIONAL

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


def write_config(tmp_path: Path, row: Any) -> list[str]:
    (tmp_path / "c.json").write_text(json.dumps(row))
    return ["--config", str(tmp_path / "c.json")]


CHANGED = {"steps": 3, "thin": None, "null": False, "shared": False, "marginal": "sequence", "ks": [2]}


@pytest.mark.parametrize("typed", [[], ["--seed", "7"]], ids=["the file alone", "and an option"])
def test_a_file_sets_fields_of_nested_configs(tmp_path: Path, typed: list[str]) -> None:
    """The result is the same with and without tyro, also for fields that are False."""
    options = write_config(tmp_path, {"corpus": "wiki.index", "stage": {**CHANGED, "corpus": "own.index"}})
    config = parse_config(Recipe, None, [*options, *typed])
    assert config == Recipe(
        corpus=Path("wiki.index"),
        seed=7 if typed else 0,
        stage=Stage(
            corpus=Path("own.index"), steps=3, thin=None, null=False, shared=False, marginal="sequence", ks=(2,)
        ),
    )


def test_fields_missing_in_the_file_keep_the_nested_default(tmp_path: Path) -> None:
    for typed in ([], ["--seed", "7"]):
        config = parse_config(Recipe, None, [*write_config(tmp_path, {"corpus": "c", "stage": {"steps": 3}}), *typed])
        assert config.stage == Stage(corpus=Path("above"), steps=3, shared=True)


def test_options_win_over_the_file(tmp_path: Path) -> None:
    options = write_config(tmp_path, {"corpus": "c", "stage": {"steps": 3, "thin": None}})
    config = parse_config(Recipe, None, [*options, "--stage.steps", "4", "--stage.thin", "0.25", "--stage.no-null"])
    assert (config.stage.steps, config.stage.thin, config.stage.null) == (4, 0.25, False)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"corpus": "c", "stage": {"stepz": 3}}, r"unknown option stage\.stepz; the options are corpus, steps"),
        ({"corpus": "c", "stage": {"steps": "3"}}, r'stage\.steps = "3" is not of the type'),
        ({"corpus": "c", "stage": {"marginal": "both"}}, r'stage\.marginal = "both" is not of the type'),
        ({"corpus": "c", "stage": 3}, "stage = 3 is not of the type"),
        ({"stage": {"steps": 3}}, "corpus is not given"),
    ],
)
def test_an_error_in_the_file_is_named(tmp_path: Path, row: dict, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_config(Recipe, None, write_config(tmp_path, row))


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_wrong_option_is_reported_in_one_line(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal cannot draw the frame around tyro's message."""
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    with pytest.raises(BadInput) as error:
        parse_config(Stage, "", ["--corpus", "c", "--steps", "x"])
    message = str(error.value)
    assert "Error parsing --steps: invalid literal" in message and message.endswith(". Try --help.")
    assert not {"\n", "│", "─"} & set(message)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    before: Annotated[Path, POSITIONAL]
    after: Annotated[Path, POSITIONAL]
    out: Path
    kind: Annotated[str, IndexKind] = "flat"


@pytest.mark.parametrize(
    ("ConfigClass", "typed", "message"),
    [
        (Recipe, [], "missing: --corpus. Try --help."),
        (
            Recipe,
            ["--corpus", "c", "--stage.step=3"],
            "unknown option --stage.step; did you mean --stage.steps? Try --help.",
        ),
        (
            Recipe,
            ["--corpus", "c", "--stage.null"],
            "unknown option --stage.null; did you mean --stage.no-null? Try --help.",
        ),
        (Recipe, ["--corpsu", "c"], "unknown option --corpsu; did you mean --corpus? missing: --corpus. Try --help."),
        (Recipe, ["--corpus", "c", "--zzz"], "unknown option --zzz. Try --help."),
        (Comparison, ["a"], "missing: AFTER, --out. Try --help."),
        (Comparison, ["a", "b", "--out", "c", "d"], "Unrecognized options: d. Try --help."),
    ],
)
def test_missing_and_mistyped_options_are_named(ConfigClass: type, typed: list[str], message: str) -> None:
    with pytest.raises(BadInput) as error:
        parse_config(ConfigClass, "", typed)
    assert str(error.value) == message


def test_positional_arguments_have_no_names_and_a_file_can_give_them(tmp_path: Path) -> None:
    expected = Comparison(before=Path("a"), after=Path("b"), out=Path("c"))
    assert parse_config(Comparison, None, ["a", "b", "--out", "c"]) == expected
    options = write_config(tmp_path, {"before": "a", "after": "b"})
    assert parse_config(Comparison, None, [*options, "--out", "c"]) == expected


def test_the_help_lists_the_members_of_an_enumeration(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse_config(Comparison, None, ["--help"])
    assert end.value.code == 0 and f"--kind {{{','.join(IndexKind)}}}" in capsys.readouterr().out


def test_missing_options_of_a_file_can_be_missing_on_the_command_line_too(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^missing: --corpus\. Try --help\.$"):
        parse_config(Recipe, None, [*write_config(tmp_path, {"stage": {"steps": 3}}), "--seed", "7"])


def test_all_errors_in_the_file_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as error:
        parse_config(Recipe, None, write_config(tmp_path, {"seed": "7", "stage": {"stepz": 3, "ks": 5}}))
    message = str(error.value)
    assert all(part in message for part in ('seed = "7"', "option stage.stepz", "stage.ks = 5", "corpus is not given"))
    assert "\n" not in message


def test_a_file_alone_needs_no_tyro(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tyro", None)
    options = write_config(tmp_path, {"corpus": "c", "stage": {"steps": 3}})
    assert parse_config(Recipe, None, options).stage.steps == 3
    with pytest.raises(MissingExtra, match="--config FILE"):
        parse_config(Recipe, None, [*options, "--seed", "7"])


def test_a_recipe_reads_its_config_from_a_file(tmp_path: Path) -> None:
    row = {"corpus": "wiki.index", "encoder": "e", "questions": "q.jsonl", "out": "runs"}
    stages = {"pretrain": {"null": False, "refresh-every": None, "marginal": "sequence"}, "tune": {"beam": 100}}
    config = parse_config(RealmConfig, None, [*write_config(tmp_path, {**row, **stages}), "--cloze.batch", "64"])
    assert (config.pretrain.null, config.pretrain.refresh.refresh_every, config.pretrain.marginal) == (
        False,
        None,
        "sequence",
    )
    assert (config.tune.beam, config.tune.read, config.cloze.batch, config.cloze.steps) == (100, 5, 64, 100_000)


def test_a_config_nested_without_end_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text("[" * 100_000)
    with pytest.raises(BadInput, match=r"c\.json is not JSON"):
        parse_config(Recipe, None, ["--config", str(tmp_path / "c.json")])


def test_a_device_is_no_config() -> None:
    with pytest.raises(BadInput, match="/dev/zero is not a file"):
        parse_config(Recipe, None, ["--config", "/dev/zero"])
