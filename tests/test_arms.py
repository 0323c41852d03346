"""What benches of several arms share: figures are those of the settings and files they were measured with."""

from dataclasses import replace
from pathlib import Path

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
