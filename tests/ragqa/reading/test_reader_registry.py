"""The registry of readers opens every kind that has an entry."""

import sys
from pathlib import Path
from typing import Any

import pytest

from ragqa.errors import MissingExtra
from ragqa.pipeline import Pipeline
from ragqa.reading import registry
from ragqa.types import Answer, Hit
from tests.helpers.packages import hide_package


class EchoReader:
    """A reader of a kind of its own, which answers with the model's name."""

    kind, threshold, is_closed_book = "echo", 0.0, True

    def __init__(self, source: str, options: dict[str, Any]) -> None:
        self.source, self.options, self.fingerprint = source, options, "0123456789abcdef"

    @classmethod
    def load(cls, source: str, kind: str | None = None, **options: Any) -> "EchoReader":
        return cls(source, options)

    def read(self, questions: list[str], hits: list[list[Hit]]) -> list[Answer]:
        return [Answer(question, self.source, 0.0, 1.0) for question in questions]


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.READERS, "echo", f"{__name__}:EchoReader")


@pytest.mark.usefixtures("registered")
def test_a_new_kind_needs_one_entry(index: Path, tmp_path: Path) -> None:
    one, other = (tmp_path.resolve() / name for name in ("one", "other"))
    for model in (one, other):
        model.mkdir()
    pipeline = Pipeline.load(index, reader=f"echo:{one}", readers={"echo": f"echo:{other}"})
    assert pipeline.ask("Who?").text == str(one)
    assert pipeline.describe()["reader_kind"] == "echo"
    pipeline.save(tmp_path / "saved")
    assert Path(str(Pipeline.load(tmp_path / "saved").ask("Who?").text)).resolve() == one
    assert Path(str(Pipeline.load(tmp_path / "saved", reader="echo").ask("Who?").text)).resolve() == other


def test_the_span_reader_has_a_name_like_the_others() -> None:
    assert registry.split_setting("span:some/reader") == ("span", "some/reader")
    assert registry.split_setting("other:some/reader") == (None, "other:some/reader")


@pytest.mark.parametrize("package", ["torch", "transformers"])
@pytest.mark.parametrize("setting", ["fid:some/model", "generator"])
def test_a_generator_without_torch_names_the_extra(
    package: str, setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "generator").mkdir()
    (tmp_path / "generator" / "generator.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "ragqa.models.generation.generators", raising=False)
    hide_package(package, monkeypatch)
    with pytest.raises(MissingExtra, match="needs the extra 'torch'"):
        registry.open_reader(setting)
