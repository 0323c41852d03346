"""The command that scores a pipeline on a suite: what it prints, reports and records."""

import io
import json
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from eval.suite import Suite, SuiteConfig, main, name_report, score_suite
from ragqa.errors import BadInput
from ragqa.evaluation import Report
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.types import Question
from tests.helpers.suites import DOCUMENTS, QUESTIONS, THREE, write_questions


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder with the split ``test-a`` of three questions."""
    (tmp_path / "data").mkdir()
    return write_questions(tmp_path / "data" / "test-a.jsonl").parent


@pytest.fixture(scope="module")
def three_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suites")
    for name, text in DOCUMENTS.items():
        (folder / name).write_text(text)
    build_index([folder / name for name in DOCUMENTS], folder / "three.index", IndexConfig(retriever="bm25"))
    return folder / "three.index"


def run_command(suite: Suite, *arguments: str) -> str:
    """Run the command of a suite; return what it prints."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
        patch.setattr(sys, "argv", ["three", *arguments])
        main(suite)
    return out.getvalue()


@pytest.fixture
def command(three_index: Path, data: Path, tmp_path: Path) -> Callable[..., str]:
    """Return the command of the three questions with its report at ``tmp_path / "r"``."""
    return partial(
        run_command, THREE, "--pipeline", str(three_index), "--data", str(data), "--out", str(tmp_path / "r")
    )


class SuiteOutput(NamedTuple):
    """The output of a command, and the paths of its report and its record."""

    printed: str
    report: Path
    record: Path


@pytest.fixture(scope="module")
def suite_output(three_index: Path, tmp_path_factory: pytest.TempPathFactory) -> SuiteOutput:
    folder = tmp_path_factory.mktemp("scored")
    write_questions(folder / "test-a.jsonl", QUESTIONS)
    report, record = folder / "three.report", folder / "records" / "three.json"
    options = ["--pipeline", three_index, "--data", folder, "--out", report, "--record", record]
    return SuiteOutput(run_command(THREE, *map(str, options), "--corpus", "three invented documents"), report, record)


def test_the_command_prints_the_scores_and_their_data(suite_output: SuiteOutput) -> None:
    assert suite_output.printed.startswith("Three Questions, test-a: 3 questions\n")
    assert "\ncorpus: three invented documents, 3 passages\n" in suite_output.printed
    assert re.search(r"^exact match +66\.7 %", suite_output.printed, re.MULTILINE)  # two of three
    assert re.search(r"^answer in the corpus +66\.7 %", suite_output.printed, re.MULTILINE)
    assert "\ncaution: Three questions say little.\n" in suite_output.printed
    assert suite_output.printed.endswith(f"\nreport: {suite_output.report / 'report.html'}\n")


def test_published_figures_are_a_paragraph_of_their_own(suite_output: SuiteOutput) -> None:
    """Their paragraph says that they are for other corpora."""
    paragraphs = suite_output.printed.split("\n\n")
    (of_others,) = (text for text in paragraphs if "ORACLE" in text)
    sentence, *rows = of_others.splitlines()
    assert sentence == "published scores, each on its own corpus and split (not comparable):"
    assert [row.split(";")[0].split() for row in rows] == [["98.7", "ORACLE"], ["1.2", "GUESS"]]
    for row, number in zip(rows, THREE.published, strict=True):
        assert number.corpus in row and number.split in row and number.source in row
    ours = "\n\n".join(text for text in paragraphs if text is not of_others)
    assert "exact match" in ours and "98.7" not in ours and "all of Wikipedia" not in ours
    assert "exact match" not in of_others and "66.7" not in of_others


def test_the_report_is_written(suite_output: SuiteOutput) -> None:
    report = Report.load(suite_output.report)
    assert (suite_output.report / "report.html").is_file()
    about, rows = report.figures["about"], list(report.rows())
    assert (about["name"], about["split"], about["questions"]) == ("Three Questions", "test-a", 3)
    assert (about["source"], about["caution"], about["answer_type"]) == (THREE.about, THREE.caution, "names")
    assert [row["em"] for row in about["published"]] == [98.7, 1.2]
    assert report.em == pytest.approx(2 / 3)
    assert [row.as_question for row in rows] == QUESTIONS
    assert [row.em for row in rows] == [True, True, False]
    assert [row.prediction for row in rows] == ["Ada Holm", "Ilona Varga", "Otto Brandt"]


def test_a_record_holds_figures_and_no_texts(suite_output: SuiteOutput) -> None:
    record = suite_output.record.read_text(encoding="utf-8")
    table = suite_output.record.with_suffix(".tsv").read_text(encoding="utf-8")
    texts = [text for q in QUESTIONS for text in (q.text, *q.answers)] + ["Otto Brandt", *DOCUMENTS.values()]
    for text in texts:
        assert text.strip() not in record and text.strip() not in table
    assert "ORACLE" not in record
    figures = json.loads(record)
    assert figures["em"]["value"] == pytest.approx(2 / 3)
    assert figures["corpus"] == "three invented documents, 3 passages"
    assert figures["questions"] == "Three Questions, test-a: 3 questions"
    assert "--record" in figures["command"] and figures["hardware"]
    head, *rows = [line.split("\t") for line in table.splitlines()]
    assert head[:2] == ["id", "em"]
    assert [row[:2] for row in rows] == [["q1", "1"], ["q2", "1"], ["q3", "0"]]
    assert all(len(row) == len(head) for row in rows)
    assert sorted(path.name for path in suite_output.record.parent.iterdir()) == ["three.json", "three.tsv"]


@pytest.mark.parametrize(
    ("suite", "rule", "right"),
    [
        (replace(THREE, regex=True), "regex", [True, False, False]),
        (replace(THREE, unicode=None), "squad", [False, False, False]),
        (THREE, "nq", [False, False, False]),
    ],
)
def test_the_rule_of_the_suite_scores_the_answers(
    three_index: Path, tmp_path: Path, suite: Suite, rule: str, right: list[bool]
) -> None:
    """As patterns, gold answers match at the beginning of an answer but not at its end."""
    questions = [replace(QUESTIONS[0], answers=("ada|bo",)), replace(QUESTIONS[1], answers=("varga",)), QUESTIONS[2]]
    write_questions(tmp_path / "test-a.jsonl", questions)
    config = SuiteConfig(pipeline=three_index, data=tmp_path, out=tmp_path / "r", no_coverage=True)
    report = score_suite(suite, config)
    assert report.figures["about"]["rule"] == rule
    assert [row.em for row in report.rows()] == right


def test_options_reach_the_pipeline(command: Callable[..., str], tmp_path: Path) -> None:
    printed = command("--k", "2", "--batch", "3", "--retriever", "bm25", "--depth", "3")
    about = Report.load(tmp_path / "r").figures["about"]
    assert (about["system"]["k"], about["system"]["depth"], about["batch"]) == (2, 3, 3)
    assert "\ncorpus: lighthouse.txt, bakery.txt, comet.txt, 3 passages\n" in printed


def test_a_sample_is_named_as_such(command: Callable[..., str], tmp_path: Path) -> None:
    assert command("--no-read", "--limit", "2").startswith(
        "Three Questions, 2 of test-a, drawn by chance: 2 questions\n"
    )
    assert len(list(Report.load(tmp_path / "r").rows())) == 2
    for limit in ("3", "4"):
        assert command("--no-read", "--limit", limit).startswith("Three Questions, test-a: 3 questions\n")


def test_retrieval_alone_is_scored_without_reading(command: Callable[..., str], tmp_path: Path) -> None:
    printed = command("--no-read", "--no-coverage", "--depth", "2")
    assert "\nexact match" not in printed
    assert re.search(r"^answer recall @1 +66\.7 %", printed, re.MULTILINE)
    assert re.search(r"^answer in the corpus +not searched", printed, re.MULTILINE)
    assert all(row.prediction is None and len(row.hits) <= 2 for row in Report.load(tmp_path / "r").rows())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "dev"], "has no split 'dev'"),
        (["--split", "train"], "does not exist"),
        (["--data", "/nowhere"], "/nowhere/test-a.jsonl does not exist"),
        (["--pipeline", "/nowhere"], "/nowhere"),
        (["--retriever", "dense"], "dense"),
        (["--k", "0"], "k = 0"),
        (["--depth", "0"], "depth = 0"),
        (["--batch", "0"], "batch = 0"),
        (["--limit", "0"], "question"),
        (["--limit", "-1"], "-1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_reported_in_one_line(
    command: Callable[..., str], tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        command(*arguments)
    error = capsys.readouterr().err
    assert stop.value.code == 2
    assert message in error and error.count("\n") == 1 and "Traceback" not in error
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("questions", [QUESTIONS[:2], [*QUESTIONS, QUESTIONS[0]]], ids=["few", "many"])
def test_a_file_of_another_size_leaves_no_report(
    command: Callable[..., str],
    data: Path,
    tmp_path: Path,
    questions: list[Question],
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_questions(data / "test-a.jsonl", questions)
    with pytest.raises(SystemExit):
        command("--no-read")
    assert "test-a.jsonl has" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_reports_of_different_settings_have_different_names() -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"fast": True},
        {"beams": 4},
        {"beams": 4, "max_answer": 9},
        {"beams": 4, "min_answer": 9},
        {"k": 3},
    ]
    configs = [SuiteConfig(pipeline=Path("p"), reader=Path("x"), **options) for options in changes]
    readers: list[Any] = [
        SimpleNamespace(kind="fid", fingerprint="a" * 16 + "-fid"),
        SimpleNamespace(kind="fid", fingerprint="b" * 16 + "-fid"),
        SimpleNamespace(kind="span", fingerprint="c" * 16),
    ]
    named = [name_report(THREE, "dev", config, reader) for config in configs for reader in readers]
    assert len(set(named)) == len(changes) * len(readers)
    assert named[9] == f"{THREE.key}-dev-p-beams-4-max-answer-9-reader-fid-aaaaaaaa"
    assert named[2] == f"{THREE.key}-dev-p-reader-span-cccccccc"


def test_decoding_options_reach_the_pipeline(three_index: Path, tmp_path: Path) -> None:
    """The packaged span reader refuses them."""
    write_questions(tmp_path / "test-a.jsonl", QUESTIONS)
    config = SuiteConfig(pipeline=three_index, data=tmp_path, out=tmp_path / "r", fast=True)
    with pytest.raises(BadInput, match="are for generative readers, and this is a span reader"):
        score_suite(THREE, config)
    assert not (tmp_path / "r").exists()
