"""Bad requests on a socket: each gets its status in one shape, without a traceback, a leak or a hang."""

import json
import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from ragqa import Pipeline
from ragqa.errors import DamagedArtefact
from ragqa.serve.json_protocol import JsonProtocol
from tests.helpers.raw_http import LEAVE, exchange, read_status
from tests.helpers.serving import open_server

TOKEN = "a-token-of-the-tests"
QUESTION = "Who built Skarvik Lighthouse?"


class HastyConnection(JsonProtocol):
    """Connection with short limits, so that the tests are fast."""

    header_seconds = 0.4


class FailingPipeline:
    """Pipeline that fails for some questions."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipeline, name)

    def retrieve(self, questions: list[str], **options: Any) -> Any:
        if "bug" in questions:
            raise ZeroDivisionError("secret of the server")
        if "damage" in questions:
            raise DamagedArtefact("/secret/notes.index is damaged")
        if "sleep" in questions:
            time.sleep(1.5)
        return self._pipeline.retrieve(questions, **options)


@pytest.fixture(scope="module")
def pipelines(index: Path) -> dict[str, Any]:
    return {"documents": FailingPipeline(Pipeline.load(index))}


LIMITS = {"body_seconds": 0.5, "send_seconds": 0.5, "linger_seconds": 0.3, "request_seconds": 1.0}


@pytest.fixture(scope="module")
def port(pipelines: dict[str, Any]) -> Iterator[int]:
    with open_server(pipelines, HastyConnection, **LIMITS) as port:
        yield port


@pytest.fixture(scope="module")
def guarded_port(pipelines: dict[str, Any]) -> Iterator[int]:
    with open_server(pipelines, HastyConnection, token=TOKEN, can_edit=True, **LIMITS) as port:
        yield port


def make(
    line: str, body: Any = None, *headers: str, host: str = "localhost", type: str | None = "application/json"
) -> bytes:
    """Return a request; a body that is not bytes is sent as JSON."""
    content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{line} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(content)}", *headers]
    if body is not None and type:
        lines.append(f"Content-Type: {type}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + content


def ask(**row: Any) -> bytes:
    return make("POST /ask", {"question": QUESTION, **row})


START = b"POST /ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = START + b"Transfer-Encoding: chunked\r\n\r\n"
GOOD = make("GET /search?q=bread&k=1")

Parts = list[bytes | float]
REQUESTS: dict[str, tuple[int | None, Parts]] = {
    # what is sent, and the status that answers it: none if the connection is closed
    "no JSON": (400, [make("POST /ask", b"what?")]),
    "empty body": (400, [make("POST /ask", b"")]),
    "no type of the body": (400, [make("POST /ask", {"question": "a"}, type=None)]),
    "a form": (400, [make("POST /ask", b"question=a", type="application/x-www-form-urlencoded")]),
    "plain text, as a form of another page can send": (400, [make("POST /ask", {"question": "a"}, type="text/plain")]),
    "not UTF-8": (400, [make("POST /ask", b'{"question": "\xff"}')]),
    "UTF-16": (400, [make("POST /ask", '{"question": 7}'.encode("utf-16"))]),
    "deep lists": (400, [make("POST /ask", b"[" * 200_000)]),
    "deep objects": (400, [make("POST /ask", b'{"question":' * 100_000)]),
    "a list": (400, [make("POST /ask", [])]),
    "a text": (400, [make("POST /ask", "question")]),
    "no question": (400, [make("POST /ask", {})]),
    "unknown key": (400, [ask(temperature=1)]),
    "null question": (400, [ask(question=None)]),
    "question as number": (400, [ask(question=7)]),
    "question as list": (400, [ask(question=["a"])]),
    "empty question": (400, [ask(question="")]),
    "question of spaces": (400, [ask(question="  \n ")]),
    "question of controls": (400, [ask(question="\x00\x1b")]),
    "question of 10,001 characters": (400, [ask(question="a" * 10_001)]),
    "lone surrogate": (400, [make("POST /ask", b'{"question": "a\\ud800"}')]),
    "k of 0": (400, [ask(k=0)]),
    "negative k": (400, [ask(k=-1)]),
    "huge k": (400, [ask(k=10**18)]),
    "k of 101": (400, [ask(k=101)]),
    "k as text": (400, [ask(k="1")]),
    "k as truth": (400, [ask(k=True)]),
    "k with a fraction": (400, [ask(k=1.5)]),
    "long number": (400, [make("POST /ask", b'{"question": "a", "k": ' + b"9" * 10_000 + b"}")]),
    "NaN as confidence": (400, [make("POST /ask", b'{"question": "a", "min_confidence": NaN}')]),
    "infinite confidence": (400, [make("POST /ask", b'{"question": "a", "min_confidence": 1e999}')]),
    "confidence above 1": (400, [ask(min_confidence=1.01)]),
    "stream as text": (400, [ask(stream="yes")]),
    "filter as text": (400, [ask(filter="work")]),
    "paths as text": (400, [ask(filter={"paths": "work"})]),
    "a filter of the home directory": (400, [ask(filter={"paths": ["~/x"]})]),
    "a filter of the server's directory": (400, [ask(filter={"paths": ["./x"]})]),
    "21 patterns": (400, [ask(filter={"paths": ["a"] * 21})]),
    "a long pattern": (400, [ask(filter={"paths": ["*a" * 200]})]),
    "since no date": (400, [ask(filter={"since": "yesterday"})]),
    "21 turns": (400, [ask(turns=[{"question": "a"}] * 21)]),
    "a turn without a question": (400, [ask(turns=[{"answer": "a"}])]),
    "an empty earlier question": (400, [ask(turns=[{"question": " "}])]),
    "unknown index": (404, [ask(index="../../etc")]),
    "index as path": (404, [make("GET /search?q=a&index=%2Fetc")]),
    "search without a question": (400, [make("GET /search")]),
    "search for nothing": (400, [make("GET /search?q=")]),
    "search with a huge k": (400, [make("GET /search?q=a&k=1001")]),
    "search with a word as k": (400, [make("GET /search?q=a&k=ten")]),
    "negative first document": (400, [make("GET /documents?first=-1")]),
    "limit of 0": (400, [make("GET /documents?limit=0")]),
    "limit of a million": (400, [make("GET /documents?limit=1000000")]),
    "a file of the machine": (404, [make("GET /documents/%2Fetc%2Fpasswd")]),
    "a file of the machine, plainly": (404, [make("GET /documents//etc/passwd")]),
    "traversal in an id": (404, [make("GET /documents/..%2F..%2Fetc%2Fpasswd")]),
    "zero byte in an id": (404, [make("GET /documents/a%00b")]),
    "invalid UTF-8 in an id": (404, [make("GET /documents/%ff%fe")]),
    "huge start of a span": (400, [make("GET /documents/a?start=99999999999999999999")]),
    "traversal": (404, [make("GET /../../etc/passwd")]),
    "encoded traversal": (404, [make("GET /%2e%2e/%2e%2e/etc/passwd")]),
    "double encoded traversal": (404, [make("GET /%252e%252e/app.py")]),
    "traversal with backslashes": (404, [make("GET /..%5c..%5capp.py")]),
    "source of the server": (404, [make("GET /../app.py")]),
    "zero byte in the page's name": (404, [make("GET /index.html%00")]),
    "a long name of the page": (404, [make("GET /" + "a" * 5000)]),
    "escapes in the path": (404, [make("GET /%1b%5b31m%0d%0aX:y")]),
    "documentation pages that load scripts": (404, [make("GET /docs")]),
    "wrong method": (404, [make("GET /ask")]),
    "invented method": (405, [make("FROB /ask")]),
    "TRACE": (405, [make("TRACE /ask")]),
    "proxy": (404, [make("CONNECT evil.example:443")]),
    "absolute address": (404, [make("GET http://evil.example/healthz")]),
    "web socket": (404, [make("GET /ws", None, "Upgrade: websocket", "Connection: Upgrade")]),
    "document without leave": (403, [make("POST /documents?name=a.md", b"# a\n\ntext")]),
    "deletion without leave": (403, [make("DELETE /documents/a")]),
    "no messages": (400, [make("POST /v1/chat/completions", {"model": "documents"})]),
    "messages as text": (400, [make("POST /v1/chat/completions", {"model": "documents", "messages": "a"})]),
    "1,001 messages": (
        400,
        [
            make(
                "POST /v1/chat/completions",
                {"model": "documents", "messages": [{"role": "user", "content": "a"}] * 1001},
            )
        ],
    ),
    "queries as text": (400, [make("POST /retrieve", {"queries": "a"})]),
    "10,001 queries": (400, [make("POST /retrieve", {"queries": ["a"] * 10_001})]),
    "declared 600 MB": (413, [START + b"Content-Length: 629145600\r\n\r\n", b"a" * 100_000]),
    "17 MB in chunks": (413, [CHUNKED, *[b"100000\r\n" + b" " * (1 << 20) + b"\r\n"] * 17]),
    "body cut short": (None, [START + b"Content-Length: 100\r\n\r\n", b"{}", LEAVE]),
    "dripping body": (408, [START + b"Content-Length: 100\r\n\r\n", *[b" ", 0.1] * 8]),
    "no body at all": (408, [START + b"Content-Length: 100\r\n\r\n", 0.8]),
    "dripping headers": (None, [b"POST /ask HTTP/1.1\r\n", *[b"A: b\r\n", 0.1] * 8]),
    "silence": (None, [0.8]),
    "40 kB of headers": (400, [make("GET /healthz", None, "A: " + "b" * 40_000)]),
    "endless headers": (400, [b"GET /healthz HTTP/1.1\r\n" + b"A: " + b"b" * 100_000]),
    "negative length": (400, [START + b"Content-Length: -1\r\n\r\n"]),
    "two lengths": (400, [START + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"]),
    "length and chunks": (400, [START + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"]),
    "no HTTP": (400, [b"SSH-2.0-OpenSSH_9.6\r\n\r\n"]),
    "no host": (400, [b"GET /healthz HTTP/1.0\r\n\r\n"]),
    "two hosts": (400, [make("GET /healthz", None, "Host: evil.example")]),
    "foreign host": (421, [make("GET /healthz", host="evil.example")]),
    "host that begins alike": (421, [make("GET /healthz", host="localhost.evil.example")]),
    "empty host": (421, [make("GET /healthz", host="")]),
    "forwarded host": (421, [make("GET /healthz", None, "X-Forwarded-Host: localhost", host="evil.example")]),
    "foreign origin": (403, [make("GET /healthz", None, "Origin: https://evil.example")]),
    "origin of another port": (403, [make("GET /healthz", None, "Origin: http://localhost:3000")]),
    "null origin": (403, [make("GET /healthz", None, "Origin: null")]),
    "invalid origin": (403, [make("GET /healthz", None, "Origin: http://[x")]),
    "a bug": (500, [ask(question="bug")]),
    "a damaged index": (503, [ask(question="damage")]),
    "an answer that takes too long": (504, [ask(question="sleep")]),
    "own origin": (200, [make("GET /healthz", None, "Origin: http://localhost")]),
    "own address": (200, [make("GET /healthz", host="127.0.0.1:1")]),
    "trailing dot of the host": (200, [make("GET /healthz", host="LOCALHOST.:8000")]),
}
SECRETS = re.compile(rb"Traceback|secret|site-packages|\.py\b|root:x|/etc/|\x1b")


def check_error(answer: bytes, status: int) -> dict[str, Any]:
    """Check that an answer is an error in the one shape, with all headers, and without secrets; return it."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"x-content-type-options: nosniff" in head and b"content-security-policy: default-src 'none'" in head
    assert b"access-control-allow-origin" not in head
    row = json.loads(body)
    assert set(row) == {"error"} and set(row["error"]) == {"message", "type"}
    assert row["error"]["message"] and "\n" not in row["error"]["message"] and len(row["error"]["message"]) < 400
    assert (b"retry-after: 1" in head) == (status in (429, 503))
    return row["error"]


@pytest.mark.parametrize("name", REQUESTS)
def test_bad_requests_get_their_status_and_leave_the_server_well(
    port: int, name: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("ragqa.serve"), "disabled", True)  # it logs bugs, with their traceback
    status, parts = REQUESTS[name]
    start = time.perf_counter()
    answer = exchange(port, *parts)
    assert read_status(answer) == status, answer[-300:]
    assert not SECRETS.search(answer)
    if status not in (None, 200):
        check_error(answer, status)
    assert time.perf_counter() - start < 5
    printed = capfd.readouterr()
    assert "Traceback" not in printed.err + printed.out
    assert read_status(exchange(port, GOOD)) == 200


def with_token(*values: str) -> bytes:
    return make("GET /documents", None, *(f"Authorization: {value}" for value in values))


GUARDED: dict[str, tuple[int, bytes]] = {
    "no token": (401, with_token()),
    "another token": (401, with_token("Bearer b-token-of-the-tests")),
    "the beginning of the token": (401, with_token(f"Bearer {TOKEN[:-1]}")),
    "the token and more": (401, with_token(f"Bearer {TOKEN}x")),
    "an empty token": (401, with_token("Bearer ")),
    "only the word": (401, with_token("Bearer")),
    "another scheme": (401, with_token(f"Basic {TOKEN}")),
    "no scheme": (401, with_token(TOKEN)),
    "the token in upper case": (401, with_token(f"Bearer {TOKEN.upper()}")),
    "two headers": (401, with_token(f"Bearer {TOKEN}", "Bearer x")),
    "bytes that are no text": (401, with_token("Bearer \xff\xfe")),
    "the token in the address": (401, make(f"GET /documents?token={TOKEN}")),
    "the token as a cookie": (401, make("GET /documents", None, f"Cookie: token={TOKEN}")),
    "a route that does not exist": (401, make("GET /nothing")),
    "a path that begins like a public one": (401, make("GET /healthz/../documents")),
    "a public path twice": (401, make("GET //healthz")),
    "an upload": (401, make("POST /documents?name=a.md", b"text")),
    "a deletion": (401, make("DELETE /documents/a")),
    "the preflight of a browser": (
        401,
        make("OPTIONS /ask", None, "Origin: https://a.example", "Access-Control-Request-Method: POST"),
    ),
    "a body of 600 MB": (401, START + b"Content-Length: 629145600\r\n\r\n"),
    "the token": (200, with_token(f"Bearer {TOKEN}")),
    "the token, and the scheme in lower case": (200, with_token(f"bearer {TOKEN}")),
    "the page": (200, make("GET /")),
    "the state": (200, make("GET /healthz")),
    "another name of the server": (200, make("GET /healthz", host="rag.example")),
}


@pytest.mark.parametrize("name", GUARDED)
def test_requests_need_the_token(guarded_port: int, name: str) -> None:
    status, request = GUARDED[name]
    answer = exchange(guarded_port, request)
    assert read_status(answer) == status and TOKEN.encode() not in answer
    if status == 401:
        assert check_error(answer, 401)["type"] == "authentication_error" and b"www-authenticate: Bearer" in answer


def test_the_state_names_indexes_only_to_those_who_have_the_token(guarded_port: int) -> None:
    rows = []
    for headers in ((), (f"Authorization: Bearer {TOKEN}",)):
        rows.append(json.loads(exchange(guarded_port, make("GET /healthz", None, *headers)).partition(b"\r\n\r\n")[2]))
    assert rows[0] == {"status": "ok", "needs_token": True}
    assert rows[1]["indexes"][0]["name"] == "documents" and rows[1]["can_edit"]


def test_uploads_have_limits(guarded_port: int, index: Path) -> None:
    start = f"POST /documents?name=a.md HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
    assert read_status(exchange(guarded_port, start + b"Content-Length: 67108865\r\n\r\n")) == 413
    for name in ("", "..", ".a", "a%2Fb.md", "..%2Fa.md", "a%00.md", "a" * 201):
        request = make(f"POST /documents?name={name}", b"text", f"Authorization: Bearer {TOKEN}")
        assert read_status(exchange(guarded_port, request)) == 400
    assert not index.with_name(f"{index.name}.uploads").exists()
