"""The threshold of an index: chosen from questions, stored with the index, and used by all that ask."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import run

from ragqa import Pipeline, artefacts
from ragqa.errors import BadInput, DamagedArtefact
from ragqa.evaluation import evaluate
from ragqa.index_threshold import THRESHOLD_FILE, IndexThreshold
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.indexing.update import update_index
from ragqa.indexing.update_folder import replace_index_file
from ragqa.reading.calibration import Calibration
from ragqa.risk_control.corpus_questions import make_corpus_questions
from ragqa.risk_control.run import AskedQuestions, set_threshold
from ragqa.risk_control.settings import RiskSettings
from ragqa.types import Question
from tests.conftest import kill_at_every_step
from tests.helpers import towns
from tests.helpers.damage import sign


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build an index of the words of 18 articles about towns."""
    folder = tmp_path_factory.mktemp("towns")
    for article in towns.make_articles(towns.list_names()):
        (folder / f"{article['title']}.txt").write_text(article["paragraphs"][0]["context"])
    build_index([folder], folder.with_suffix(".index"), IndexConfig(retriever="bm25"))
    return folder.with_suffix(".index")


@pytest.fixture(scope="module")
def calibrated(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the index with a threshold."""
    index = tmp_path_factory.mktemp("calibrated") / "towns.index"
    shutil.copytree(built, index)
    set_threshold(Pipeline.load(index, k=3), RiskSettings(count=18, risk=0.1))
    return index


@pytest.fixture
def copy(calibrated: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(calibrated, tmp_path / "towns.index"))


def test_shares_at_a_threshold_by_hand() -> None:
    """Two questions are asked with and without their documents, a third, without an answer, once."""
    asked = AskedQuestions(
        confidence_A=np.array([0.9, 0.3, 0.8, -1.0, 0.6]),
        right_A=np.array([True, False, False, False, False]),
        missing_A=np.array([False, True, False, True, True]),
        weight_A=np.array([0.5, 0.5, 0.5, 0.5, 1.0]),
    )
    point = asked.measure(0.5)
    assert point.answered == pytest.approx((0.5 + 0.5 + 1) / 3) and point.wrong == pytest.approx((0.5 + 1) / 3)
    assert point.right_declined == 0 and point.missing_declined == pytest.approx(2 / 3)
    assert asked.measure(0.95).right_declined == 1 and asked.measure(0.0).missing_declined == pytest.approx(1 / 3)


def test_the_threshold_has_the_risk_and_is_stored(calibrated: Path, tmp_path: Path) -> None:
    shutil.copytree(calibrated, tmp_path / "again.index")
    report = set_threshold(Pipeline.load(tmp_path / "again.index", k=3), RiskSettings(count=18, risk=0.1))
    stored = IndexThreshold.load(calibrated)
    assert stored is not None and stored.threshold == report.threshold == report.before
    assert (stored.questions, report.questions, report.missing, report.is_made) == (18, 18, 0.5, True)
    point = report.at_threshold
    assert point is not None and (18 * point.wrong + 1) / 19 <= 0.1
    # The figures of a lower threshold are those of a larger risk.
    assert report.curve[0].threshold == 0.0 and (18 * report.curve[0].wrong + 1) / 19 > 0.1


def test_made_questions_do_not_lower_the_threshold_of_the_reader(copy: Path, tmp_path: Path) -> None:
    """With a risk of 90 %, every threshold is low enough; only questions from a file may lower the reader's."""
    pipeline, file = Pipeline.load(copy, k=3), tmp_path / "questions.jsonl"
    made = make_corpus_questions(pipeline.retriever.passages, 18)
    file.write_text("".join(json.dumps({"question": each.text, "answers": each.answers}) + "\n" for each in made))
    assert set_threshold(pipeline, RiskSettings(count=18, risk=0.9)).threshold == pipeline.reader.threshold
    assert set_threshold(pipeline, RiskSettings(questions=file, risk=0.9)).threshold == 0


def test_all_that_ask_use_the_stored_threshold(
    copy: Path, built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = IndexThreshold.load(copy)
    assert stored is not None
    threshold = stored.threshold
    pipeline = Pipeline.load(copy)
    assert pipeline.threshold == threshold != pipeline.reader.threshold == Pipeline.load(built).threshold
    report = evaluate(pipeline, [Question("Who founded Valdale?", ("Duke",))], out=tmp_path / "r", coverage=False)
    assert report.figures["confidence"]["declining"]["below"] == threshold
    replace_index_file(copy, THRESHOLD_FILE, replace(stored, threshold=0.9999).to_json())
    ask = ("ask", "When was Valdale 0 founded?", "--index", str(copy), "--json")
    status, out, _ = run(*ask, capsys=capsys)
    assert status == 1 and "below 1.00" in json.loads(out)["reason"]
    assert run(*ask, "--min-confidence", "0", capsys=capsys)[0] == 0
    # With another reader in its place, the threshold does not count.
    pipeline.reader = Pipeline.load(built).reader
    assert pipeline.threshold == pipeline.reader.threshold


def test_a_threshold_of_another_reader_or_encoder_is_not_used(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = towns.copy_reader(tmp_path)
    calibration = reader / "calibration.json"
    row = json.loads(calibration.read_text())
    calibration.unlink()
    calibration.write_text(json.dumps({**row, "threshold": 0.33}))
    sign(reader)
    ask = ("ask", "When was Valdale 0 founded?", "--index", str(copy), "--reader", str(reader))
    error = run(*ask, capsys=capsys)[2]
    assert f"the threshold stored with {copy} is not used: it is of another reader" in error
    assert Pipeline.load(copy, reader=reader).threshold == Calibration.load(reader).threshold == 0.33
    stored = IndexThreshold.load(copy)
    assert stored is not None
    assert stored.find_mismatch(stored.reader, None) is None
    assert stored.find_mismatch(stored.reader, "other") == "encoder" and stored.find_mismatch("x", "y") == "reader"


def test_an_update_and_a_saved_pipeline_keep_the_threshold(built: Path, tmp_path: Path) -> None:
    index, saved = tmp_path / "towns.index", tmp_path / "towns.pipeline"
    shutil.copytree(built, index)
    Pipeline.load(index).save(saved)
    (tmp_path / "new.txt").write_text("Osholm was founded in 1999 by Duke Egon.")
    threshold = IndexThreshold(threshold=0.7, risk=0.1, questions=9, reader="", encoder=None)
    threshold = replace(threshold, reader=Pipeline.load(index).reader.fingerprint)
    replace_index_file(index, THRESHOLD_FILE, threshold.to_json())
    before = artefacts.read_manifest(index, "index")
    opened = Pipeline.load(saved)
    assert opened.index_directory is not None and opened.index_directory.resolve() == index.resolve()
    assert THRESHOLD_FILE in before.files and opened.threshold == 0.7
    for compact in (False, True):
        update_index(index, add=[tmp_path / "new.txt"] * (not compact), compact=compact)
        assert IndexThreshold.load(index) == threshold and Pipeline.load(saved).threshold == 0.7
    assert artefacts.read_manifest(index, "index").origin == before.origin


def test_a_kill_leaves_the_old_or_the_new_threshold(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, old = tmp_path / "towns.index", tmp_path / "old"
    shutil.copytree(built, old)
    replace_index_file(old, THRESHOLD_FILE, "old")

    def check(moment: int, was_new: bool) -> bool:
        artefacts.read_manifest(index, "index")
        text = (index / THRESHOLD_FILE).read_text()
        assert text == "new" if was_new else text in ("old", "new")
        return text == "new"

    with monkeypatch.context() as patch:
        restore: Callable[[], object] = lambda: shutil.copytree(old, index)  # noqa: E731
        moments = kill_at_every_step(
            patch, lambda: replace_index_file(index, THRESHOLD_FILE, "new"), check, restore, [index]
        )
    assert moments > 5 and (old / THRESHOLD_FILE).read_text() == "old"


@pytest.mark.parametrize("text", ["{", "{}", "[]", '{"threshold": 2}', '{"threshold": null}', '{"threshold": NaN}'])
def test_a_file_that_is_no_threshold_is_damage(copy: Path, text: str) -> None:
    row = json.loads((copy / THRESHOLD_FILE).read_text())
    changed = {**row, **json.loads(text)} if text.startswith('{"') else None
    replace_index_file(copy, THRESHOLD_FILE, json.dumps(changed) if changed else text)
    with pytest.raises(DamagedArtefact, match="damaged"):
        Pipeline.load(copy)


def write_questions(file: Path, rows: list[dict[str, object]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_questions_of_a_file(built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With questions without an answer, all are asked once; without any, half of the weight lacks documents."""
    index = tmp_path / "towns.index"
    shutil.copytree(built, index)
    names = towns.list_names()
    rows: list[dict[str, object]] = [
        {"question": f"When was {name} founded?", "answers": [str(1500 + number)]} for number, name in enumerate(names)
    ]
    file = write_questions(tmp_path / "answered.jsonl", rows)
    report = set_threshold(Pipeline.load(index, k=3), RiskSettings(questions=file, risk=0.3))
    assert (report.questions, report.missing, report.is_made) == (18, 0.5, False)
    assert report.at_threshold is not None and report.at_threshold.missing_declined is not None
    mixed = write_questions(tmp_path / "mixed.jsonl", [*rows, {"question": "Who sold the comet?", "answers": []}])
    calibrate = ("calibrate", str(index), "--questions", str(mixed), "--risk", "0.3", "-k", "3")
    status, out, error = run(*calibrate, "--json", capsys=capsys)
    figures = json.loads(out)
    assert status == 0 and (figures["questions"], figures["missing"]) == (19, 0.0)
    assert "asking: 19 questions" in error
    status, out, _ = run(*calibrate, "--missing", "0.5", capsys=capsys)
    assert status == 0 and "19 questions of the file; asked without their documents with a weight of 50 %" in out
    assert "at most 30 % are expected to get a wrong answer" in out and "  <- stored" in out
    thresholds = [float(line.split()[0]) for line in out.splitlines() if line.strip().startswith("0.")]
    assert len(thresholds) == 11 and thresholds == sorted(thresholds)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"question": "Who?", "answers": []}], (), "no question has an answer, so no answer can be right"),
        (
            [{"question": "Who founded Osholm?", "answers": ["x"]}],
            (),
            "a risk of 0.1 needs 9 questions or more, and {file} has 1: add questions, or raise --risk",
        ),
        (
            [],
            ("--count", "3"),
            "a risk of 0.1 needs 9 questions or more, and 3 could be made from {index}: raise --count, or raise --risk",
        ),
        (
            [],
            ("--risk", "0.001"),
            "needs 999 questions or more, and {made} could be made from {index}: give your own with --questions FILE",
        ),
        ([], ("--risk", "1.5"), "risk = 1.5: it must be above 0 and below 1"),
        ([], ("--risk", "0"), "risk = 0.0"),
    ],
)
def test_bad_input_is_one_line(
    built: Path,
    tmp_path: Path,
    rows: list[object],
    options: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["calibrate", str(built), *options]
    file = write_questions(tmp_path / "q.jsonl", rows)  # type: ignore[arg-type]
    if rows:
        arguments += ["--questions", str(file)]
    status, out, error = run(*arguments, capsys=capsys)
    pattern = message.replace("{index}", str(built)).replace("{file}", str(file))
    start, _, end = pattern.partition("{made}")
    assert status == 2 and out == ""
    assert error.splitlines()[-1].startswith("ragqa: ") and start in error and end in error
    assert not (built / THRESHOLD_FILE).exists()


def test_without_a_threshold_of_the_risk_nothing_is_stored(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All gold answers are wrong, so every answer is."""
    rows = [{"question": f"When was {name} founded?", "answers": ["never"]} for name in towns.list_names()]
    file = write_questions(tmp_path / "q.jsonl", rows)  # type: ignore[arg-type]
    options = ("--questions", str(file), "--missing", "0", "-k", "3")
    status, out, error = run("calibrate", str(built), *options, capsys=capsys)
    assert status == 1 and "no threshold has a risk of 0.1" in error and "nothing was stored" in error
    assert "stored in" not in out and not (built / THRESHOLD_FILE).exists()


def test_questions_without_any_answer_are_the_reason_for_no_threshold(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reader cannot read the script of the only question."""
    file = write_questions(tmp_path / "q.jsonl", [{"question": "Кто построил маяк?", "answers": ["Ada Holm"]}])
    status, _, error = run("calibrate", str(built), "--questions", str(file), "--risk", "0.6", capsys=capsys)
    assert status == 1 and "no threshold has a risk of 0.6: no question got an answer; nothing was stored" in error


def test_documents_from_which_no_question_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("hello")
    build_index([tmp_path / "note.txt"], tmp_path / "index", IndexConfig(retriever="bm25"))
    with pytest.raises(BadInput, match=r"a risk of 0\.6 needs 1 question or more, and 0 could be made from"):
        set_threshold(Pipeline.load(tmp_path / "index"), RiskSettings(risk=0.6))


def test_errors_of_writing_are_found_before_the_work(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "mine.txt").write_text("a file of the user")
    status, _, error = run("calibrate", str(copy), capsys=capsys)
    assert status == 2 and "also holds mine.txt" in error and "asking" not in error


def test_an_index_that_is_not_in_a_directory_is_refused(built: Path) -> None:
    pipeline = Pipeline.load(built)
    pipeline.retriever = Pipeline.load(built).retriever
    with pytest.raises(BadInput, match="calibrate its directory"):
        set_threshold(pipeline, RiskSettings())
