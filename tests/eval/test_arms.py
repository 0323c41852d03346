"""What benches share: figures are those of the settings and files they were measured with, and have a place to go."""

import importlib
from dataclasses import replace
from pathlib import Path

import pytest

from eval.bench.arms import plain
from pipelines.masked_lm import MaskedLMConfig


def test_settings_are_known_by_what_is_in_their_files(tmp_path: Path) -> None:
    """However these are spelled; what the bench makes itself, by its place in its own folder."""
    work, given = tmp_path / "work", tmp_path / "given"
    given.mkdir()
    (given / "config.json").write_text("{}")
    config = MaskedLMConfig(corpus=work / "corpus.index", encoder=given, out=work / "run", steps=3)
    first = plain([config], work)
    assert first[0]["corpus"] == "corpus.index" and first[0]["steps"] == 3
    (work / "corpus.index").mkdir(parents=True)  # made meanwhile
    assert plain([replace(config, save_every=1, out=work / "other")], work) == first
    given.rename(tmp_path / "moved")
    assert plain([replace(config, encoder=work / ".." / "moved")], work) == first
    (tmp_path / "moved" / "config.json").write_text("[]")
    assert plain([replace(config, encoder=tmp_path / "moved")], work) != first
    assert plain([replace(config, steps=4)], work)[0]["steps"] == 4


@pytest.mark.parametrize("name", ["confidence", "reading", "sizes", "reader"])
def test_where_figures_cannot_go_is_told_before_anything_is_asked(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = importlib.import_module(f"eval.bench.{name}")
    options = {"confidence": "data paragraphs index", "reading": "index questions work"}
    options |= {"sizes": "model encoder squad index work", "reader": "work encoder index data"}
    none = [part for each in options[name].split() for part in (f"--{each}", str(tmp_path / "none"))]
    with pytest.raises(SystemExit):
        bench.main([*none, "--out", str(tmp_path)])
    told = capsys.readouterr().err
    assert f"--out {tmp_path} is a directory: name a file" in told and told.count("\n") == 1
    if name in ("confidence", "reading"):
        with pytest.raises(SystemExit):
            bench.main([*none, "--out", str(tmp_path / "o.json"), "-k", "0"])
        assert capsys.readouterr().err.endswith("-k 0: 1 or more\n")
    assert list(tmp_path.iterdir()) == []
