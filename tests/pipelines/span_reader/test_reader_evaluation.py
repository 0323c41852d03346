"""Evaluations that compare readers, on held-out questions that no other step uses."""

import json
from pathlib import Path

import pytest

from pipelines.calibrate.conditions import build_paragraph_index
from pipelines.span_reader.reader_evaluation import main
from ragqa.artefacts.paths import get_weights_dir
from ragqa.question_files import read_squad
from tests.helpers import towns


def test_each_reader_gets_a_line_of_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four of 24 held-out questions are skipped; the text answers one of four questions wrongly."""
    squad, dev = towns.write(tmp_path)
    index = build_paragraph_index(list(read_squad(squad)), tmp_path / "towns.index", "bm25")
    options = [
        get_weights_dir() / "reader",
        "--squad",
        squad,
        "--questions",
        dev,
        "--index",
        index,
        "--skip",
        4,
        "--k",
        3,
    ]
    main([str(each) for each in [*options, "--count", 16]])
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert found["questions"] == {"gold": 16, "dev": 16}
    assert (found["gold_em"], found["dev_em"]) == pytest.approx((0.75, 0.75), abs=0.07)  # the sample has 4 or 5 of them
    assert found["gold_f1"] == found["gold_em"]
    for bad_options, message in (
        (["--squad", squad, "--skip", 24], "24 of 24 held-out questions are skipped, and no question is left"),
        (["--questions", dev], "--questions FILE with --index DIR"),
        (["--questions", dev, "--index", index, "--exclude", dev, "--skip", 0], "no question is left"),
    ):
        with pytest.raises(SystemExit):
            main([str(each) for each in [get_weights_dir() / "reader", *bad_options]])
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
