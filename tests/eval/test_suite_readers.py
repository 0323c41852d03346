"""Generative readers scored on a suite, and the table that compares them."""

import json
from pathlib import Path
from typing import Any

import pytest

from eval.export_figures import export_figures
from eval.suite import Split, Suite, SuiteConfig, score_suite
from eval.table import HEAD, find_reader_kind, format_gain, make_table
from pipelines.common.generator_training import write_generator
from ragqa.errors import BadInput
from ragqa.evaluation import Report
from ragqa.evaluation.statistics import compute_wilson_interval
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.models.generation.generators import load_generator
from tests.helpers import generators

TWO = Suite(
    key="two",
    title="Two Questions",
    about="About a novel. Licence: none.",
    splits={"test-a": Split("test-a.jsonl", 2)},
    default_split="test-a",
    hub=None,
    answer_type="names",
    published=(),
    caution="Two questions say little.",
)
READERS = ("rag-token", "rag-sequence", "fid", "closed-book")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write an index of two passages, two questions, and a generator of each kind in ``KIND/model``."""
    root = tmp_path_factory.mktemp("readers")
    for number, text in enumerate(generators.TEXTS[1:]):
        (root / f"{number}.txt").write_text(text)
    build_index([root / "0.txt", root / "1.txt"], root / "two.index", IndexConfig(retriever="bm25"))
    rows = [{"question": text, "answers": ["a lady"]} for text in ("who wrote the tale of genji", "when was that")]
    (root / "test-a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    plain = generators.write_byt5(root / "byt5")
    for kind in READERS:
        write_generator(load_generator(plain, kind), root / kind / "model")
    return root


def score_reader(root: Path, monkeypatch: pytest.MonkeyPatch, reader: str, trained: str | None = None) -> Report:
    """Score a reader on the suite; the report is in the default place."""
    monkeypatch.chdir(root)
    config = SuiteConfig(pipeline=Path("two.index"), data=Path(), reader=Path(reader), trained=trained)
    return score_suite(TWO, config)


def test_readers_of_one_folder_name_leave_reports_side_by_side(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reports = [score_reader(root, monkeypatch, f"{kind}/model") for kind in READERS]
    assert len({report.path for report in reports}) == len(READERS)
    for kind, report in zip(READERS, reports, strict=True):
        assert f"-reader-{kind}-" in report.path.name
        assert report.figures["about"]["system"]["reader"].endswith(f"-{kind}")
        assert len(list(report.rows())) == 2 and report.em is not None


def test_one_model_used_in_two_ways_leaves_two_reports(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = {score_reader(root, monkeypatch, f"{kind}:byt5").path for kind in ("fid", "closed-book")}
    assert len(paths) == 2


def test_the_table_compares_a_reader_with_its_own_closed_book(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [root / f"{kind}.json" for kind in ("fid", "closed-book", "rag-token")]
    for file in files:
        trained = "20 steps" if file.stem == "rag-token" else "10 steps"
        export_figures(score_reader(root, monkeypatch, f"{file.stem}/model", trained), file)
    _, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in make_table(files).splitlines()]
    rows_by_reader = {row[HEAD.index("reader")]: row for row in rows}
    assert list(rows_by_reader) == ["fid, 10 steps", "closed-book, 10 steps", "rag-token, 20 steps"]
    assert {name: row[-1] for name, row in rows_by_reader.items()} == {
        "fid, 10 steps": "+0.0, intervals touch",
        "closed-book, 10 steps": "–",
        "rag-token, 20 steps": "–",  # no closed book has this training
    }
    assert rows_by_reader["closed-book, 10 steps"][HEAD.index("retriever")] == "–"
    with pytest.raises(BadInput, match="two closed books have the training '10 steps' on Two Questions"):
        make_table([*files, files[1]])
    with pytest.raises(BadInput, match=r"test-a\.jsonl is not a record: name files that --record"):
        make_table([files[0], root / "test-a.jsonl"])
    with pytest.raises(BadInput, match=r"none\.json cannot be read: No such file"):
        make_table([root / "none.json"])


@pytest.mark.parametrize(
    ("system", "kind"),
    [
        ({"reader": "0123456789abcdef", "reader_kind": "fid"}, "fid"),
        ({"reader": None, "reader_kind": None}, None),
        # older records
        ({"reader": "0123456789abcdef-fid"}, "fid"),
        ({"reader": "0123456789abcdef"}, "span"),
        ({"reader": None}, None),
        ({"predictions": "answers.json"}, None),
    ],
)
def test_records_of_every_version_have_a_kind_of_reader(system: dict[str, Any], kind: str | None) -> None:
    assert find_reader_kind({"about": {"system": system}}) == kind


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (0.021, 0.05, "+2.0, intervals apart"),
        (0.02, 0.05, "+2.0, intervals touch"),  # the intervals share an end
        (0.005, 0.05, "+2.0, intervals touch"),
    ],
)
def test_intervals_touch_if_they_share_a_point(low: float, high: float, message: str) -> None:
    assert format_gain(make_figures(0.03, low, high), make_figures(0.01, 0.0, 0.02)) == message


def make_figures(value: float, low: float, high: float, questions: int = 100_000) -> dict[str, Any]:
    """Return the figures of an evaluation; with many questions Wilson's interval is the narrower one."""
    return {"em": {"value": value, "low": low, "high": high}, "about": {"questions": questions}}


def test_zero_right_answers_still_have_an_interval() -> None:
    """Wilson's interval of 0 of 694 ends at 0.55 %. The resampled interval of 4 of 694 begins at 0.14 %."""
    ours = make_figures(4 / 694, 0.0014, 0.0115, 694)
    assert format_gain(ours, make_figures(0.0, 0.0, 0.0, 694)) == "+0.6, intervals touch"
    assert compute_wilson_interval(0.0, 694) == pytest.approx((0.0, 0.005505), abs=1e-6)
    assert compute_wilson_interval(4 / 694, 694) == pytest.approx((0.002244, 0.014731), abs=1e-5)
    assert compute_wilson_interval(0.5, 10) == pytest.approx((0.236593, 0.763407), abs=1e-6)


def test_a_reader_below_its_closed_book_has_a_negative_gain() -> None:
    assert format_gain(make_figures(0.0, 0.0, 0.0), make_figures(0.1, 0.05, 0.2)) == "-10.0, intervals apart"
