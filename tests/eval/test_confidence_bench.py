"""The bench of confidence on test questions, at the size of a smoke test."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import towns

from eval.bench import confidence as bench
from eval.suite import Split
from pipelines.calibrate.conditions import ANSWERABLE, MISSED, VAIN
from pipelines.calibrate.fit import index_of
from ragqa.questions import read_squad
from ragqa.reading.span import ExtractiveReader


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The towns as both test sets."""
    squad, dev = towns.write(tmp_path)
    index_of(list(read_squad(squad)), tmp_path / "towns.index", "bm25")
    for key, file in (("squad", squad), ("nq", dev)):
        (tmp_path / key).mkdir()
        name = file.rename(tmp_path / key / file.name).name
        count = towns.EACH * (towns.OTHER + towns.HELD * (key == "squad"))
        cut = replace(bench.SUITES[key], splits={"t": Split(file=name, questions=count)}, default_split="t")
        monkeypatch.setitem(bench.SUITES, key, cut)
    return tmp_path


def test_from_end_to_end(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, plot = data / "confidence.json", data / "confidence.png"
    where = {"--data": data, "--paragraphs": data / "towns.index", "--index": data / "towns.index"}
    where |= {"--out": out, "--plot": plot, "--limit": 8, "-k": 3}
    bench.main([str(part) for pair in where.items() for part in pair])
    found = json.loads(out.read_text())
    assert found["questions"] == "8 of squad, 8 of nq" and plot.stat().st_size > 10_000
    assert found["threshold"] == ExtractiveReader.load().threshold
    own, over, others = found["sets"].values()
    assert own["answers"] == {ANSWERABLE: 8, MISSED: 0, VAIN: 0} and own["refusals"] is None
    for each in (over, others):
        assert each["answers"][VAIN] == 8 and each["answers"][ANSWERABLE] >= 6
        assert (
            0.5 <= each["em"] <= 0.875
        )  # a question of four is answered wrongly by its article, here one to three of the eight drawn
        assert each["mean_confidence"][VAIN] < each["mean_confidence"][ANSWERABLE]
    told = capsys.readouterr().err
    assert "own paragraph" in told and "NQ test-a, in vain" in told


def test_a_part_of_the_questions_is_of_all_articles(data: Path) -> None:
    whole, some = (bench.questions_of(bench.SUITES["squad"], data / "squad", limit) for limit in (None, 8))
    places = [whole.index(each) for each in some]
    assert places == sorted(set(places)) and len(places) == 8 and places[-1] > 0.7 * len(whole)
    assert some == bench.questions_of(bench.SUITES["squad"], data / "squad", 8)


def test_what_is_missing_is_told_in_a_line(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = {"--data": data / "none", "--paragraphs": data / "towns.index", "--index": data / "towns.index"}
    with pytest.raises(SystemExit):
        bench.main([str(part) for pair in {**where, "--out": data / "o.json"}.items() for part in pair])
    told = capsys.readouterr().err
    assert "does not exist" in told and told.count("\n") == 1
