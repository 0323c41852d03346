"""Plots of runs show every logged figure."""

import json
from pathlib import Path

import pytest

from pipelines.common.plot import PANELS, main, plot
from ragqa.errors import BadInput


def test_every_figure_of_every_panel_is_drawn(tmp_path: Path) -> None:
    run, every = tmp_path / "run", [field for fields in PANELS.values() for field in fields]
    run.mkdir()
    rows = ({"step": step, **dict.fromkeys(every, 0.5)} for step in (1, 2))
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    plot([run], tmp_path / "run.svg")
    svg = (tmp_path / "run.svg").read_text()  # matplotlib writes each text into a comment
    labels = [field for fields in PANELS.values() if len(fields) > 1 for field in fields]
    assert [label for label in ["run", *PANELS, *labels] if f"<!-- {label} -->" not in svg] == []


def test_a_folder_without_figures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no metrics\.jsonl with figures there$"):
        plot([tmp_path], tmp_path / "run.svg")
    inner = tmp_path / "round-1"
    inner.mkdir()
    for row in (b'{"step": 0, "foo": 1}', b'{"step": 0, "nll": "x"}', b'{"nll": 1.0}', b"[]", b"\xff", b"[" * 100_000):
        (inner / "metrics.jsonl").write_bytes(row + b"\n")
        with pytest.raises(BadInput, match=r"round-1: no metrics\.jsonl with figures there$"):
            plot([inner], tmp_path / "run.svg")
    with pytest.raises(BadInput, match=r"figures there; there are runs in .*/round-1$"):
        plot([tmp_path], tmp_path / "run.svg")


def test_a_run_with_a_name_that_is_not_utf_8_is_drawn(tmp_path: Path) -> None:
    run = tmp_path / "caf\udce9"
    run.mkdir()
    (run / "metrics.jsonl").write_text('{"step": 1, "nll": 0.5}\n')
    plot([run], tmp_path / "run.svg")
    assert "<!-- caf\ufffd -->" in (tmp_path / "run.svg").read_text()


def test_a_file_name_without_an_image_suffix_is_refused(tmp_path: Path) -> None:
    for name in ("run", "run.foo"):
        with pytest.raises(BadInput, match=rf"{name}: the name of a picture must end in \.png, \.svg, \.pdf"):
            plot([tmp_path], tmp_path / name)


def test_the_command_names_each_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 1, "nll": 0.5}\n')
    options = [str(tmp_path / "run"), "--out", str(tmp_path / "run.svg"), "--names"]
    monkeypatch.setattr("sys.argv", ["plot", *options, "mine"])
    main()
    assert (
        capsys.readouterr().out == f"{tmp_path / 'run.svg'}\n" and "<!-- mine -->" in (tmp_path / "run.svg").read_text()
    )
    for wrong, message in (([*options, "a", "b"], "2 names for 1 runs"), (options[1:3], "no runs: name the dir")):
        monkeypatch.setattr("sys.argv", ["plot", *wrong])
        with pytest.raises(SystemExit):
            main()
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1


def test_loss_and_speed_are_in_a_panel() -> None:
    assert {"nll", "tokens/s", "utilisation"} <= {field for fields in PANELS.values() for field in fields}
