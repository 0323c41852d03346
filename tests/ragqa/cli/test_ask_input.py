"""``ragqa ask`` with questions from standard input."""

import io
import json
from pathlib import Path

import pytest
from conftest import run

from ragqa.cli import ask

QUESTION = "Who built Skarvik Lighthouse?"


def test_a_batch_from_standard_input_keeps_its_order(index: Path, capsys, monkeypatch) -> None:
    questions = [QUESTION, "Who discovered Comet Varga?", "Who founded the bakery on Mill Street?"] * 7
    monkeypatch.setattr("sys.stdin", io.StringIO("\n\n".join(questions) + "\n"))
    status, out, _ = run("ask", "--index", str(index), "--json", "--min-confidence", "0", capsys=capsys)
    rows = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [row["question"] for row in rows] == questions
    assert [row["answer"] for row in rows[:3]] == ["Ada Holm", "Ilona Varga", "Otto Brandt"]


def test_a_bad_question_does_not_stop_the_batch(index: Path, capsys, monkeypatch) -> None:
    lines = [QUESTION.encode(), b"\x07", b"who? \xff", b"  Who discovered\tComet Varga?  "]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\n".join(lines)), encoding="utf-8"))
    status, out, error = run("ask", "--index", str(index), "--json", "--min-confidence", "0", capsys=capsys)
    rows = [json.loads(line) for line in out.splitlines()]
    assert status == 2 and error == "ragqa: 2 of the questions could not be asked\n"
    assert [row["question"] for row in rows] == [QUESTION, "\x07", "who? ?", "  Who discovered\tComet Varga?  "]
    assert rows[0]["answer"] == "Ada Holm"
    assert rows[1]["answer"] is rows[2]["answer"] is None
    assert "is empty" in rows[1]["error"] and "is not in UTF-8" in rows[2]["error"]
    assert rows[3]["answer"] == "Ilona Varga"


def test_a_batch_of_text_answers_repeats_its_questions(index: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{QUESTION}\nWho discovered Comet Varga?\n"))
    _, out, _ = run("ask", "--index", str(index), "--min-confidence", "0", capsys=capsys)
    assert f"> {QUESTION}\nAda Holm " in out and "\n\n> Who discovered Comet Varga?\nIlona Varga " in out


@pytest.mark.parametrize(("code", "readable"), [("utf-8-sig", True), ("utf-16", False)])
def test_a_byte_order_mark_is_not_part_of_a_question(
    index: Path, code: str, readable: bool, capsys, monkeypatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{QUESTION}\n{QUESTION}\n".encode(code))))
    status, out, _ = run("ask", "--index", str(index), "--json", "--min-confidence", "0", capsys=capsys)
    rows = [json.loads(line) for line in out.splitlines()]
    if readable:
        assert status == 0 and [row["question"] for row in rows] == [QUESTION, QUESTION]
    else:
        assert status == 2 and all("UTF-8" in row["error"] for row in rows)


def test_a_line_of_standard_input_without_end_is_one_line(index: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("x" * (ask.MAX_LINE + 1)))
    status, out, err = run("ask", "--index", str(index), capsys=capsys)
    assert (status, out) == (2, "")
    assert err == "ragqa: a line of standard input is longer than 1,000,000 characters: write one question a line\n"
