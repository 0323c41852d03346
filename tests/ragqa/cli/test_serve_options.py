"""``ragqa serve``: its options, and its end by SIGTERM."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from ragqa.cli.options import PipelineOptions
from ragqa.cli.serve import make_access, name_indexes
from ragqa.errors import BadInput
from tests.conftest import run

TOKEN = "a-token-of-the-tests"


def test_another_address_needs_a_token_or_leave() -> None:
    with pytest.raises(BadInput, match=r"--host 0\.0\.0\.0: everybody .* or add --no-auth"):
        make_access("0.0.0.0", None, False, [], [])
    assert make_access("0.0.0.0", TOKEN, False, [], []).hosts is None
    access = make_access("192.0.2.7", None, True, ["Rag.Example"], [])
    assert access.hosts == {"localhost", "127.0.0.1", "::1", "192.0.2.7", "rag.example"} and access.token is None
    assert make_access("127.0.0.1", None, False, [], []).hosts == {"localhost", "127.0.0.1", "::1"}


@pytest.mark.parametrize("token", ["", "short", "a token with spaces", "ein-Schlüssel-mit-ü", "line\nline-and-more"])
def test_weak_tokens_are_refused(token: str) -> None:
    with pytest.raises(BadInput, match="at least 16 characters"):
        make_access("127.0.0.1", token, False, [], [])


@pytest.mark.parametrize("origin", ["*", "null", "chat.example", "https://", "https://chat.example/", "file:///x"])
def test_origins_must_be_origins(origin: str) -> None:
    with pytest.raises(BadInput, match="name an origin as in https"):
        make_access("127.0.0.1", None, False, [], [origin])


def test_indexes_are_named_by_the_user_or_by_their_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a=b").mkdir()
    paths = [Path("work=x/notes.index"), Path("x/notes.index"), Path("a=b"), Path("http://host:8077")]
    assert name_indexes(paths) == {
        "work": Path("x/notes.index"),
        "notes": Path("x/notes.index"),
        "a=b": Path("a=b"),
        "host:8077": Path("http://host:8077"),
    }
    with pytest.raises(BadInput, match="two indexes have the name notes: name them, as in --index notes2=y/notes"):
        name_indexes([Path("x/notes.index"), Path("y/notes")])


def test_errors_of_the_start_are_one_line(index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options, line in (
        (["--index", str(tmp_path / "nothing")], "nothing"),
        (["--index", str(index), "--host", "0.0.0.0"], "everybody in the network could ask"),
        (["--index", str(index), "--host", "no.such.host.invalid"], "everybody in the network could ask"),
        (["--index", str(index), "--host", "192.0.2.1", "--no-auth"], "cannot be listened on"),
        (["--index", str(index), "--in", "public"], "--in, --tag and --since do not protect documents"),
    ):
        status, out, err = run("serve", "--port", "0", *options, capsys=capsys)
        assert status == 2 and out == "" and line in err and err.count("\n") == 1


def test_a_warning_about_several_indexes_is_printed_once(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = PipelineOptions(reader="chat:http://127.0.0.1:9/v1#m")
    assert set(options.load_pipelines({"a": index, "b": index})) == {"a", "b"}
    assert capsys.readouterr().err.count("m at 127.0.0.1 has no calibration of its own") == 1


def test_help_of_servers_does_not_show_the_filters_that_they_refuse(capsys: pytest.CaptureFixture[str]) -> None:
    for command, is_shown in (("ask", True), ("serve", False), ("mcp", False)):
        status, out, _ = run(command, "--help", capsys=capsys)
        options = re.findall(r"^  --(in|tag|since|device) ", out, re.MULTILINE)
        assert status == 0 and options == ["in", "tag", "since", "device"][0 if is_shown else 3 :]


def test_the_server_ends_by_sigterm_when_open_requests_are_answered(index: Path) -> None:
    command = [sys.executable, "-m", "ragqa", "serve", "--index", f"notes={index}", "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "RAGQA_TOKEN": TOKEN}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        address = re.search(r"^serving notes at (http://127\.0\.0\.1:\d+) \(Ctrl-C ends it\)$", line.strip())
        assert address, line
        host = address[1].removeprefix("http://")
        connections = [HTTPConnection(host, timeout=30) for _ in range(8)]
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
        for connection in connections:
            connection.request("GET", "/healthz")  # then the server has accepted the connection
            assert connection.getresponse().read()
        for connection in connections:
            connection.request("POST", "/ask", json.dumps({"question": "Who built Skarvik Lighthouse?"}), headers)
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        answers = [json.loads(connection.getresponse().read())["answer"] for connection in connections]
        for connection in connections:
            connection.close()
        rest = process.communicate(timeout=30)[1]
        assert process.returncode == 0 and "Traceback" not in rest and "finishing open requests" in rest
        assert answers == ["Ada Holm"] * 8
    finally:
        process.kill()
        process.wait()
