"""Progress of long work: rate, remaining time, and words in the singular."""

import re
from pathlib import Path

import pytest

from ragqa import progress
from ragqa.artefacts.paths import get_weights_dir
from ragqa.progress import Bars
from ragqa.runtime.encoder import load_encoder


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    return now


def test_the_first_line_comes_after_two_seconds_and_has_rate_and_time(clock: list[float], capsys) -> None:
    with Bars().step("embedding", 100, "passages") as step:
        for seconds in range(1, 40):
            clock[0] = 100.0 + seconds
            step.advance_to(2 * seconds)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "embedding: 4/100 passages, 2.0 passages/s, 0:00:48 left"
    assert lines[1] == "embedding: 64/100 passages, 2.0 passages/s, 0:00:18 left"
    assert lines[2:] == ["embedding: 78 passages in 39.0 s"]


def test_one_unit_is_in_the_singular_and_small_files_have_decimals(clock: list[float], capsys) -> None:
    with Bars().step("bm25", 1, "passages") as step:
        step.advance_to(1)
    with Bars().step("reading", 1_200_000, "B") as step:
        clock[0] += 3
        step.advance_to(600_000)
    assert capsys.readouterr().err.splitlines() == [
        "bm25: 1 passage in 0.0 s",
        "reading: 0.6/1.2 MB, 5.0 s/MB, 0:00:03 left",
        "reading: 0.6 MB in 3.0 s",
    ]


def test_a_terminal_shows_the_rate_with_the_first_passage(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    from rich.console import Console

    console = Console(stderr=True, force_terminal=True, width=120)
    monkeypatch.setattr(progress, "make_error_console", lambda: console)
    with Bars().step("embedding", 1000, "passages") as step:
        step.advance_to(1)
    assert re.search(r"1/1,000 passages, [\d.,]+ passages/s, \d+:\d\d:\d\d left", capsys.readouterr().err)


def test_an_encoder_reports_every_text() -> None:
    reports: list[int] = []
    vectors = load_encoder(Path(get_weights_dir() / "encoder")).encode(["a", "b", "c"], reports.append)
    assert len(vectors) == 3 and reports == [1, 2, 3]
