"""The command line of a recipe."""

import sys
from dataclasses import dataclass

import pytest

from pipelines.common.command import run_recipe
from tests.helpers.packages import hide_package


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
    hide_package(package, monkeypatch)
    with pytest.raises(SystemExit) as caught:
        run_recipe("pipelines.recipe", NoConfig, "Train.", "loop_of_a_test", in_processes=False)
    assert caught.value.code == 2
    expected = "pipelines.recipe: training needs the extra 'torch'; in the checkout: pip install -c constraints.txt"
    assert capsys.readouterr().err.startswith(expected)
