"""The command line of a recipe."""

import sys
from dataclasses import dataclass

import pytest

from pipelines.common.command import run_recipe


@dataclass(frozen=True)
class NoConfig:
    """Settings of a recipe without options."""


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_a_recipe_without_the_training_packages_names_the_extra(
    package: str, tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loop_of_a_test.py").write_text(f"import {package}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "argv", ["recipe"])
    monkeypatch.setattr(sys, "meta_path", [HiddenPackage(package), *sys.meta_path])
    monkeypatch.delitem(sys.modules, package, raising=False)
    with pytest.raises(SystemExit) as caught:
        run_recipe("pipelines.recipe", NoConfig, "Train.", "loop_of_a_test", in_processes=False)
    assert caught.value.code == 2
    expected = "pipelines.recipe: training needs the extra 'torch'; in the checkout: pip install -c constraints.txt"
    assert capsys.readouterr().err.startswith(expected)


class HiddenPackage:
    """Finder that makes a package look as if it were not installed."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise for the hidden package; leave other packages to the next finder."""
        if name == self.name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
