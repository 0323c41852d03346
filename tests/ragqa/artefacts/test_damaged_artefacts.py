"""A damaged or hostile artefact is refused in one line, or answers right: no traceback, no hang, no flood of memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.damage import Outcome

ROOT = Path(__file__).parents[3]
COUNT = 300


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good") / "artefacts"
    run_helper(folder, folder, 0, 0)
    return folder


def run_helper(good: Path, work: Path, first: int, last: int) -> list[Outcome]:
    """Open cases in processes of their own; pytest's process has threads and must not be forked."""
    command = [sys.executable, "-m", "tests.helpers.damage", str(good), str(work), str(first), str(last)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [Outcome(**json.loads(line)) for line in done.stdout.splitlines()]


def check_outcomes(outcomes: list[Outcome]) -> None:
    whole = {o.case.split()[1]: o for o in outcomes if o.case.startswith("good")}
    assert all(outcome.result == "right" for outcome in whole.values()), whole
    for outcome in outcomes:
        assert outcome.result in ("right", "refused"), outcome
        kind = outcome.case.split()[1].rstrip(":")
        assert outcome.megabytes < 2 * whole[kind].megabytes, outcome


@pytest.mark.thorough
def test_a_sample_of_damaged_artefacts_is_refused_or_answers_right(good: Path, tmp_path: Path) -> None:
    outcomes = run_helper(good, tmp_path / "work", 24, 48)
    check_outcomes(outcomes)
    assert sum(outcome.result == "refused" for outcome in outcomes) > 15


@pytest.mark.slow
def test_damaged_artefacts_are_refused_or_answer_right(good: Path, tmp_path: Path) -> None:
    outcomes = run_helper(good, tmp_path / "work", 0, COUNT)
    check_outcomes(outcomes)
    assert sum(outcome.result == "refused" for outcome in outcomes) > COUNT / 2
