"""Bad HTTP: framing, headers, hosts, origins, methods, slow clients, and tokens."""

from collections.abc import Iterator
from gzip import compress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from ragqa import Pipeline
from ragqa.serve.json_protocol import JsonProtocol
from tests.helpers.bad_requests import SECONDS, FailingPipeline, Parts, check_answer, check_error, make, read_json
from tests.helpers.raw_http import LEAVE, exchange, read_status
from tests.helpers.serving import open_server

TOKEN = "a-token-of-the-tests"


class HastyConnection(JsonProtocol):
    """Connection with a short time limit for headers, so that the tests are fast."""

    header_seconds = 0.4


@pytest.fixture(scope="module")
def pipelines(index: Path) -> dict[str, Any]:
    return {"documents": FailingPipeline(Pipeline.load(index))}


@pytest.fixture(scope="module")
def port(pipelines: dict[str, Any]) -> Iterator[int]:
    with open_server(pipelines, linger_seconds=0.3) as port:
        yield port


@pytest.fixture(scope="module")
def hasty_port(pipelines: dict[str, Any]) -> Iterator[int]:
    """Yield the port of a server with short limits of time, for requests that exceed them."""
    with open_server(pipelines, HastyConnection, body_seconds=0.5) as port:
        yield port


@pytest.fixture(scope="module")
def guarded_port(pipelines: dict[str, Any]) -> Iterator[int]:
    with open_server(pipelines, token=TOKEN, can_edit=True, linger_seconds=0.3) as port:
        yield port


START = b"POST /ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = START + b"Transfer-Encoding: chunked\r\n\r\n"
HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"

REQUESTS: dict[str, tuple[int, Parts]] = {
    # name: status of the response, and the parts of the request
    "declared 600 MB": (413, [START + b"Content-Length: 629145600\r\n\r\n", b"a" * 100_000]),
    "17 MB in chunks": (413, [CHUNKED, *[b"100000\r\n" + b" " * (1 << 20) + b"\r\n"] * 17]),
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
    "own origin": (200, [make("GET /healthz", None, "Origin: http://localhost")]),
    "own address": (200, [make("GET /healthz", host="127.0.0.1:1")]),
    "trailing dot of the host": (200, [make("GET /healthz", host="LOCALHOST.:8000")]),
    "invented method": (405, [make("FROB /ask")]),
    "TRACE": (405, [make("TRACE /ask")]),
    "proxy": (404, [make("CONNECT evil.example:443")]),
    "absolute address": (404, [make("GET http://evil.example/healthz")]),
    "web socket": (404, [make("GET /ws", None, "Upgrade: websocket", "Connection: Upgrade")]),
    "a length with a sign": (400, [START + b"Content-Length: +2\r\n\r\n{}"]),
    "a hexadecimal length": (400, [START + b"Content-Length: 0x2\r\n\r\n{}"]),
    "a length of 5,000 digits": (400, [START + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n"]),
    "a length of 20 digits": (413, [START + b"Content-Length: " + b"9" * 20 + b"\r\n\r\n"]),
    "an unknown coding of the transfer": (400, [START + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"]),
    "chunked twice": (400, [START + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n0\r\n\r\n"]),
    "a coding that ends alike": (400, [START + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"]),
    "a chunk whose size is no number": (400, [CHUNKED + b"xyz\r\n"]),
    "a chunk of negative size": (400, [CHUNKED + b"-1\r\n"]),
    "a chunk whose size has 30 digits": (400, [CHUNKED + b"F" * 30 + b"\r\n"]),
    "a chunk longer than its size": (400, [CHUNKED + b"2\r\n{}XX0\r\n\r\n"]),
    "an endless extension of a chunk": (400, [CHUNKED + b"1;" + b"a" * 100_000]),
    "endless trailers": (400, [CHUNKED + b"0\r\n" + b"A: b\r\n" * 20_000]),
    "a space before the colon": (400, [HEAD + b"Content-Length : 5\r\n\r\n"]),
    "a header without a name": (400, [HEAD + b": a\r\n\r\n"]),
    "a header without a colon": (400, [HEAD + b"A\r\n\r\n"]),
    "a zero byte in a header": (400, [HEAD + b"A: b\0c\r\n\r\n"]),
    "a bare carriage return in a header": (400, [HEAD + b"A: b\rX: c\r\n\r\n"]),
    "a host in the trailers": (400, [CHUNKED + b"2\r\n{}\r\n0\r\nHost: evil.example\r\n\r\n"]),
    "a compressed body": (400, [make("POST /ask", compress(b" " * 50_000_000), "Content-Encoding: gzip")]),
    "the start of HTTP/2": (400, [b"PRI * HTTP/2.0\r\n\r\n"]),
    "HTTP/0.9": (400, [b"GET /healthz\r\n\r\n"]),
    "the start of TLS": (400, [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 500]),
    "only line breaks": (400, [b"\r\n" * 5000]),
    "only zero bytes": (400, [b"\0" * 5000]),
    "bytes that are no text in the path": (400, [b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n"]),
    "a space in the path": (400, [make("GET /heal thz")]),
    "a fragment in the path": (404, [make("GET /healthz#a")]),
    "a path without a slash": (404, [make("GET healthz")]),
    "options of the server": (404, [make("OPTIONS *")]),
    "a method in lower case": (405, [make("get /healthz")]),
    "a method of 3,000 letters": (405, [make("A" * 3000 + " /healthz")]),
    "a preflight of a foreign page": (
        403,
        [make("OPTIONS /ask", None, "Origin: https://evil.example", "Access-Control-Request-Method: POST")],
    ),
    "a host with a name and a password": (421, [make("GET /healthz", host="localhost@evil.example")]),
    "a host with a port that is no number": (421, [make("GET /healthz", host="localhost:x")]),
    "a host with a path": (421, [make("GET /healthz", host="evil.example/localhost")]),
    "an origin that begins alike": (403, [make("GET /healthz", None, "Origin: http://localhost.evil.example")]),
    "an origin with a name": (403, [make("GET /healthz", None, "Origin: http://localhost@evil.example")]),
    "two origins, one of them foreign": (
        403,
        [make("GET /healthz", None, "Origin: http://localhost", "Origin: https://evil.example")],
    ),
    "ranges of a file of the page": (200, [make("GET /main.js", None, "Range: bytes=" + "0-," * 9000)]),
    "5,000 headers": (200, [make("GET /healthz", None, *["A:"] * 5000)]),
}
SLOW: dict[str, tuple[int | None, Parts]] = {
    # status None: the server closes the connection
    "body cut short": (None, [START + b"Content-Length: 100\r\n\r\n", b"{}", LEAVE]),
    "dripping body": (408, [START + b"Content-Length: 100\r\n\r\n", *[b" ", 0.1] * 8]),
    "no body at all": (408, [START + b"Content-Length: 100\r\n\r\n", 0.8]),
    "dripping headers": (None, [b"POST /ask HTTP/1.1\r\n", *[b"A: b\r\n", 0.1] * 8]),
    "silence": (None, [0.8]),
    "a chunk that is announced and never comes": (408, [CHUNKED + b"FFFFFFFFFFF\r\nabc"]),
    "a client that leaves within a chunk": (None, [CHUNKED + b"FF\r\nabc", LEAVE]),
    "half a request line": (None, [b"GET /heal", 0.8]),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_bad_http_gets_its_status(port: int, name: str, caplog: pytest.LogCaptureFixture) -> None:
    status, parts = REQUESTS[name]
    answer = check_answer(port, parts, status, caplog)
    if status != 200:
        check_error(answer, status)


@pytest.mark.parametrize("name", SLOW)
def test_slow_clients_are_cut_off(hasty_port: int, name: str, caplog: pytest.LogCaptureFixture) -> None:
    status, parts = SLOW[name]
    answer = check_answer(hasty_port, parts, status, caplog)
    if status:
        check_error(answer, status)


def test_a_request_behind_a_refused_one_is_not_answered(port: int) -> None:
    smuggled = make("GET /healthz")
    for first in (START + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"no HTTP\r\n\r\n"):
        answer = exchange(port, first + smuggled, timeout=SECONDS, count=2)
        assert answer.count(b"HTTP/1.1 ") == 1 and read_status(answer) == 400


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
    "a public path with a line break": (401, make("GET /healthz%0a")),
    "a public path in upper case": (401, make("GET /HEALTHZ")),
    "a public path with a parameter": (401, make("GET /healthz;x/../documents")),
    "a route named in a header": (401, make("GET /documents", None, "X-Original-URL: /healthz")),
    "a method named in a header": (401, make("POST /ask", {}, "X-HTTP-Method-Override: OPTIONS")),
    "a proxy's word for the client": (401, make("GET /documents", None, "X-Forwarded-For: 127.0.0.1")),
    "the token for a proxy": (401, make("GET /documents", None, f"Proxy-Authorization: Bearer {TOKEN}")),
    "the token in quotes": (401, with_token(f'Bearer "{TOKEN}"')),
    "the token in Basic form": (401, with_token("Basic YS10b2tlbi1vZi10aGUtdGVzdHM6")),
    "a second token after a comma": (401, with_token(f"Bearer x, Bearer {TOKEN}")),
    "a header that is folded": (401, make("GET /documents", None, "Authorization: Bearer", "X: y", f" {TOKEN}")),
    "the tools of agents": (401, make("POST /mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})),
    "a client of OpenAI's API": (401, make("GET /v1/models", None, f"Api-Key: {TOKEN}")),
    "a trainer": (401, make("POST /retrieve", {"queries": ["a"]})),
    "the description of the routes": (401, make("GET /openapi.json")),
    "the token": (200, with_token(f"Bearer {TOKEN}")),
    "the token, and the scheme in lower case": (200, with_token(f"bearer {TOKEN}")),
    "the page": (200, make("GET /")),
    "the state": (200, make("GET /healthz")),
    "another name of the server": (200, make("GET /healthz", host="rag.example")),
}


@pytest.mark.parametrize("name", GUARDED)
def test_requests_need_the_token(guarded_port: int, name: str) -> None:
    status, request = GUARDED[name]
    answer = exchange(guarded_port, request, timeout=SECONDS)
    assert read_status(answer) == status and TOKEN.encode() not in answer
    if status == 401:
        assert check_error(answer, 401)["type"] == "authentication_error" and b"www-authenticate: Bearer" in answer


def test_the_state_names_indexes_only_to_those_who_have_the_token(guarded_port: int) -> None:
    rows = []
    for headers in ((), (f"Authorization: Bearer {TOKEN}",)):
        rows.append(read_json(exchange(guarded_port, make("GET /healthz", None, *headers), timeout=SECONDS)))
    assert rows[0] == {"status": "ok", "needs_token": True}
    assert rows[1]["indexes"][0]["name"] == "documents" and rows[1]["can_edit"]
