"""The metric log of a resumed run continues from its checkpoint."""

from pathlib import Path

from ragqa.training.log import MetricLog, read_rows


def test_rows_after_the_checkpoint_are_dropped(tmp_path: Path) -> None:
    log = MetricLog(tmp_path, 0)
    for step in range(5):
        log.write(step, loss=step / 2)
    log.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "lo')  # left by a kill during writing
    assert [row["step"] for row in read_rows(tmp_path)] == [0, 1, 2, 3, 4]
    log = MetricLog(tmp_path, 3)
    log.write(3, loss=9.0)
    log.close()
    assert [(row["step"], row["loss"]) for row in read_rows(tmp_path)] == [(0, 0), (1, 0.5), (2, 1.0), (3, 9.0)]
    assert read_rows(tmp_path / "none") == []
