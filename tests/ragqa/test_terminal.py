"""No text can control a terminal, and JSON keeps its value."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import run
from hypothesis import given
from hypothesis import strategies as st

from ragqa import terminal
from ragqa.cli.render import render_answer
from ragqa.corpus.sources import CorpusReport
from ragqa.progress import Bars
from ragqa.types import Answer, Hit, Passage, Source, Span

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b1A\x7f\u202eevil\u2066\u2028x\u2029\u200f\x00\ud800\r"
CONTROLS = (*map(chr, (*range(9), *range(11, 32), *range(0x7F, 0xA0))), *"\u061c\u200e\u200f\u2028\u2029")
OBEYED = {*CONTROLS, *map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xD800, 0xE000)))}


def find_obeyed(text: str) -> set[str]:
    return OBEYED & set(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\tb\nc", "a\tb\nc"),
        ("a\r\nb\x85", "a\\x0d\nb\\x85"),
        ("\u202egpj.exe\u2069", r"\u202egpj.exe\u2069"),
        ("\udcff", r"\udcff"),
        *((text, text) for text in ("Zürich 源氏 שלום", "नि\u200dक 👩\u200d🔬", "a\u00a0b\u00ad")),
    ],
)
def test_controls_become_visible_escapes(text: str, shown: str) -> None:
    assert terminal.escape_controls(text) == shown


@given(st.text() | st.text(alphabet=[*sorted(OBEYED), "a", "\n", " "]))
def test_no_printed_text_is_obeyed(text: str) -> None:
    out = io.StringIO()
    terminal.print_text(text, file=out)
    assert find_obeyed(out.getvalue()) == set()
    assert "\n" not in terminal.to_one_line(text)
    for indent in (None, 1):
        encoded = terminal.to_json({text: [text]}, indent=indent)
        assert not find_obeyed(encoded)
        valid = text.encode("utf-8", "replace").decode()
        assert json.loads(encoded) == {valid: [valid]}


def test_json_escapes_what_json_allows_raw() -> None:
    assert terminal.to_json("\x7f\x9b\u202e\u2028é") == r'"\u007f\u009b\u202e\u2028é"'


def test_a_terminal_without_utf_8_gets_escapes() -> None:
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding="latin-1")
    terminal.print_text("Zürich 源", file=stream)
    assert buffer.getvalue() == b"Z\xfcrich \\u6e90\n"


def test_our_styles_stay_and_those_of_documents_do_not(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(terminal, "has_colours", lambda: True)
    text = f"{HOSTILE} \x1b[1mno \x1b[0mis it Ada\x1b[1;32m?"
    start = text.index("Ada")
    hit = Hit(Passage(0, f"{HOSTILE}d", f"{HOSTILE}\x1b[1mt", text, f"{HOSTILE}p", 0, len(text)), 1.0)
    answer = Answer("q", "Ada", 1.0, 0.9, (Source(hit, Span(start, start + 3), 1.0),), note=HOSTILE, missing=(HOSTILE,))
    terminal.print_styled(render_answer(answer))
    shown = capsys.readouterr().out
    assert shown.startswith("\x1b[1mAda\x1b[0m   (confidence 0.90)\n")
    rest = shown.replace("\x1b[1mAda\x1b[0m", "").replace("\x1b[1;32mAda\x1b[0m", "")
    assert find_obeyed(rest) == set()
    assert rest.count(r"\x1b]0;owned\x07") == 6 and r"\x1b[1mno" in rest


def test_names_of_files_are_escaped_in_errors_reports_and_bars(tmp_path: Path, capsys) -> None:
    """The names hold no lone surrogates and no zero, which a test cannot give to the system."""
    name = "\x1b[2Ja\x9b\u202e\nb.jsonl"
    (tmp_path / name).write_text("nothing\n")
    (tmp_path / "good.md").write_text("A text about lighthouses.")
    command = ("index", str(tmp_path), "--out", str(tmp_path / "i"), "--retriever", "bm25")
    status, out, err = run(*command, "--strict", capsys=capsys)
    assert status == 2 and out == "" and find_obeyed(err) == set()
    assert r"\x1b[2Ja\x9b\u202e b.jsonl:1: " in err.splitlines()[-1]
    status, out, err = run(*command, capsys=capsys)
    assert status == 0 and find_obeyed(out + err) == set()
    assert any(line.endswith(r"not JSON") or r"\x1b[2Ja\x9b\u202e b.jsonl:1" in line for line in out.splitlines())
    status, out, err = run("ask", HOSTILE.replace("\0", ""), "--index", str(tmp_path / name), capsys=capsys)
    assert status == 2 and find_obeyed(out + err) == set()
    with Bars().step(f"bar {HOSTILE}", 2, "[bold]things") as step:
        step.advance_to(1, HOSTILE)
    err = capsys.readouterr().err
    assert find_obeyed(err) == set() and err.startswith(r"bar \x1b]0;owned\x07") and "1 [bold]thing in" in err
    report = CorpusReport()
    report.note(f"a\n{HOSTILE}", "b\nleft out or repaired: 0")
    assert len("\n".join(report.describe_problems()).splitlines()) == 1


def test_usage_errors_are_one_line(capsys) -> None:
    for arguments, message in (
        (["ask", "--nope"], "ragqa ask: No such option: --nope"),
        (["ask", "Who", "built", "it?"], 'ragqa ask: Put the question in quotes: ragqa ask "Who built it?"'),
        (["index"], "ragqa index: Missing argument"),
        (["eval", "compare", "x"], "ragqa eval compare: Missing argument"),
        (["ask", f"--{HOSTILE}".replace("\0", "")], r"ragqa ask: No such option: --\x1b]0;owned\x07\x1b[2J"),
    ):
        status, out, err = run(*arguments, capsys=capsys)
        assert (status, out, len(err.splitlines())) == (2, "", 1)
        assert err.startswith(message) and err.endswith(". Try --help.\n") and not find_obeyed(err)


def test_warnings_log_records_and_tracebacks_are_escaped() -> None:
    program = """
import logging, warnings
from ragqa.terminal import escape_messages
escape_messages()
warnings.warn("w\\x1b[2J")
logging.getLogger("library").error("l\\x1b[2J\\u202e")
raise KeyError("\\x9b") from ValueError("t\\x1b[2J")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1 and find_obeyed(done.stderr) == set()
    for shown in (r"UserWarning: w\x1b[2J", r"l\x1b[2J\u202e", r"ValueError: t\x1b[2J"):
        assert shown in done.stderr
