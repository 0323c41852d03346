"""``ragqa eval`` end to end: formats, bad input, no partial output."""

import json
from pathlib import Path

import pytest
from conftest import run

from ragqa import Pipeline
from ragqa.evaluation import Report, evaluate
from ragqa.question_files import read_questions

ROWS = [
    {"question": "Who built Skarvik Lighthouse?", "answers": ["Ada Holm"], "documents": ["lighthouse.md"]},
    {"question": "When was the bakery on Mill Street founded?", "answers": ["1923"], "documents": ["bakery.txt"]},
    {"question": "Who sold the comet?", "answers": []},
]


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return file


@pytest.fixture
def report(questions: Path, index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    out = tmp_path / "r.report"
    assert run("eval", str(questions), "--index", str(index), "--out", str(out), capsys=capsys)[0] == 0
    return out


def test_a_summary_is_printed(questions: Path, index: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = run("eval", str(questions), "--index", str(index), capsys=capsys)
    assert status == 0
    assert "questions.jsonl: 3 questions, 1 of them without an answer" in out
    assert "3 passages" in out and "exact match" in out and "100.0 %" in out
    assert "asking: 3 questions" in err
    assert out.splitlines()[-1] == f"report: {tmp_path / 'questions-documents.report' / 'report.html'}"
    assert (tmp_path / "questions-documents.report" / "report.html").is_file()


def test_a_path_with_a_newline_is_shown_on_one_line(questions: Path, index: Path, tmp_path: Path, capsys) -> None:
    arguments = ("eval", str(questions), "--index", str(index), "--limit", "1", "--out", str(tmp_path / "a\nb.report"))
    status, out, _ = run(*arguments, capsys=capsys)
    assert status == 0 and out.splitlines()[-1] == f"report: {tmp_path}/a b.report/report.html"


def test_json_figures_are_those_of_evaluate(questions: Path, index: Path, tmp_path: Path, capsys) -> None:
    arguments = ("eval", str(questions), "--index", str(index), "--out", str(tmp_path / "a"), "--json")
    status, out, _ = run(*arguments, capsys=capsys)
    figures = json.loads(out)
    python = evaluate(Pipeline.load(index), read_questions(questions), out=tmp_path / "b", name="questions.jsonl")
    assert status == 0
    assert figures["em"] == python.figures["em"] and figures["gold_document"] == python.figures["gold_document"]
    assert figures["gold_document"]["accuracy"] == {"1": 1.0, "3": 1.0}
    assert figures["coverage_bound"]["corpus"] == 1.0


@pytest.mark.parametrize(
    "options", [["--retriever", "bm25"], ["--no-read"], ["--batch", "2"], ["--limit", "2"], ["-k", "1"]]
)
def test_options_are_passed_to_the_evaluation(
    questions: Path, index: Path, tmp_path: Path, options: list[str], capsys
) -> None:
    status, out, _ = run(
        "eval", str(questions), "--index", str(index), "--out", str(tmp_path / "r"), *options, capsys=capsys
    )
    assert status == 0 and "answer recall @1" in out
    assert ("exact match  " in out) == (options != ["--no-read"])


def test_a_file_name_that_is_not_utf_8_is_written_with_question_marks(
    questions: Path, index: Path, capsys, monkeypatch
) -> None:
    """File names need not be valid UTF-8."""
    monkeypatch.chdir(questions.parent)
    named = questions.parent / "q\udcff.jsonl"
    questions.rename(named)
    status, out, _ = run("eval", str(named), "--index", str(index), capsys=capsys)
    assert status == 0 and "q?.jsonl: 3 questions" in out
    assert Report.load(questions.parent / "q\udcff-documents.report").figures["about"]["name"] == "q?.jsonl"


def test_two_reports_are_compared(report: Path, tmp_path: Path, capsys) -> None:
    status, out, _ = run("eval", "compare", str(report), str(report), capsys=capsys)
    assert status == 0 and "exact match" in out and "1.0000" in out
    page = tmp_path / "both.html"
    status, out, _ = run("eval", "compare", str(report), str(report), "--json", "--html", str(page), capsys=capsys)
    assert json.loads(out)["em"]["p"] == 1.0
    assert page.read_text().lower().startswith("<!doctype html>")


def test_a_page_is_rebuilt(report: Path, capsys) -> None:
    before = Report.load(report).figures
    status, out, _ = run("eval", "page", str(report), capsys=capsys)
    assert status == 0 and "exact match" in out
    assert Report.load(report).figures == before


def test_help_shows_an_example(capsys) -> None:
    for command in (["eval"], ["eval", "questions"], ["eval", "compare"], ["eval", "page"]):
        status, out, _ = run(*command, "--help", capsys=capsys)
        assert status == 0 and "Example: ragqa eval" in out


def test_a_comparison_page_replaces_only_another_one(report: Path, questions: Path, capsys) -> None:
    before = questions.read_bytes()
    for target in (questions, report / "report.html", report / "new.html", report.parent):
        status, _, err = run("eval", "compare", str(report), str(report), "--html", str(target), capsys=capsys)
        assert status == 2 and "is not a page of a comparison" in err
    page = report.parent / "both.html"
    for _ in range(2):
        assert run("eval", "compare", str(report), str(report), "--html", str(page), capsys=capsys)[0] == 0
    assert questions.read_bytes() == before
    assert run("eval", "page", str(report), capsys=capsys)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.jsonl", "--index", "INDEX"], "missing.jsonl cannot be read"),
        (["missing.jsonl"], "missing.jsonl cannot be read"),
        (["bad.jsonl", "--index", "INDEX"], "bad.jsonl:2: not a question"),
        (["empty.jsonl", "--index", "INDEX"], "no questions"),
        (["notes.txt", "--index", "INDEX"], "questions are read from"),
        (["questions.jsonl"], "--index DIR"),
        (["questions.jsonl", "--index", "missing"], "missing does not exist"),
        (["questions.jsonl", "--index", "INDEX", "--rule", "f1"], "choose one of nq, squad, regex"),
        (["questions.jsonl", "--index", "INDEX", "--predictions", "p.jsonl"], "--index DIR"),
        (["questions.jsonl", "--index", "INDEX", "--out", "precious"], "not a ragqa report"),
        (["questions.jsonl", "--index", "INDEX", "--reader", "precious"], "precious"),
        (["questions.jsonl", "--predictions", "p.jsonl"], "ends before the questions do"),
        (
            ["questions.jsonl", "--predictions", "ids.json"],
            "its ids are such as 'q7', those of the questions such as '1'",
        ),
        (["questions.jsonl", "--predictions", "none.json"], "it is empty"),
        (["questions.jsonl", "--predictions", "p.jsonl", "-k", "3", "--reader", "x"], "-k, --reader cannot change"),
        (["questions.jsonl", "--predictions", "p.jsonl", "--fast", "--max-answer", "3"], "--fast, --max-answer cannot"),
        (["questions.jsonl", "--index", "INDEX", "--beams", "3"], "this is a span reader: leave them out"),
        (["demo", "--index", "INDEX", "--predictions", "p.jsonl"], "--index DIR"),
        (["compare", "missing", "REPORT"], "missing does not exist"),
        (["compare", "INDEX", "REPORT"], "not a ragqa report"),
        (["page", "precious"], "precious is not a ragqa directory"),
    ],
)
def test_bad_input_is_reported_in_one_line(
    arguments: list[str], message: str, questions: Path, report: Path, index: Path, tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.jsonl").write_text('{"question": "a?", "answers": []}\nnothing\n')
    Path("empty.jsonl").write_text("\n")
    Path("notes.txt").write_text("notes")
    Path("p.jsonl").write_text('{"prediction": "a"}\n')
    Path("ids.json").write_text('{"q7": "a"}')
    Path("none.json").write_text("{}")
    Path("precious").mkdir()
    Path("precious", "file").write_text("kept")
    before = sorted(tmp_path.rglob("*"))
    capsys.readouterr()
    real = [{"INDEX": str(index), "REPORT": str(report)}.get(argument, argument) for argument in arguments]
    status, out, err = run("eval", *real, capsys=capsys)
    assert status == 2 and out == ""
    assert err.splitlines()[-1].startswith("ragqa: ") and message in err
    left = [path for path in sorted(tmp_path.rglob("*")) if path not in before]
    assert all(".evaluating" in str(path) for path in left)


def test_a_failed_run_keeps_the_report_that_was_there(report: Path, questions: Path, index: Path, capsys) -> None:
    before = (report / "report.json").read_bytes()
    questions.write_text('{"question": "Who?", "answers": ["x"]}\n')
    status, _, _ = run(
        "eval", str(questions), "--index", str(index), "--out", str(report), "--rule", "x", capsys=capsys
    )
    assert status == 2 and (report / "report.json").read_bytes() == before
