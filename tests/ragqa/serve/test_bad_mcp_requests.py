"""Bad requests to /mcp, and their errors in the forms of the server, of JSON-RPC and of tools."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")
pytest.importorskip("fastapi", reason="the extra serve is not installed")

from ragqa import Pipeline
from tests.helpers.bad_requests import SECONDS, check_answer, check_error, make, read_json
from tests.helpers.raw_http import exchange
from tests.helpers.serving import open_server

ACCEPT = "Accept: application/json, text/event-stream"
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.fixture(scope="module")
def port(index: Path) -> Iterator[int]:
    with open_server({"documents": Pipeline.load(index)}) as port:
        yield port


def post(body: Any, *headers: str, path: str = "/mcp", **options: Any) -> bytes:
    return make(f"POST {path}", body, ACCEPT, *headers, **options)


def call(method: str, params: Any = None) -> bytes:
    return post({"jsonrpc": "2.0", "id": 1, "method": method, **({} if params is None else {"params": params})})


def use(tool: Any, arguments: Any) -> bytes:
    return call("tools/call", {"name": tool, "arguments": arguments})


HTTP: dict[str, tuple[int, bytes]] = {
    # name: status of the response, and the request
    "a stream": (405, make("GET /mcp", None, ACCEPT)),
    "the end of a session": (405, make("DELETE /mcp", None, "Mcp-Session-Id: 1")),
    "another method": (405, make("PUT /mcp", PING, ACCEPT)),
    "a longer path": (404, post(PING, path="/mcp/")),
    "an unknown index": (404, post(PING, path="/mcp?index=..%2Fetc")),
    "an index that is no text": (404, post(PING, path="/mcp?index=%ff%1b")),
    "no type of the body": (400, post(PING, type=None)),
    "plain text, as a form of another page can send": (400, post(PING, type="text/plain")),
    "a type that begins alike": (400, post(PING, type="application/jsonx")),
    "two types of the body": (400, post(PING, "Content-Type: text/plain")),
    "a foreign host": (421, post(PING, host="evil.example")),
    "a foreign origin": (403, post(PING, "Origin: https://evil.example")),
}
MESSAGES: dict[str, tuple[int, int | None, bytes]] = {
    # name: status, code of the JSON-RPC error (None without a body), and the request
    "no JSON": (400, -32700, post(b"what?")),
    "an empty body": (400, -32700, post(b"")),
    "deep lists": (400, -32700, post(b"[" * 200_000)),
    "not UTF-8": (400, -32700, post(b'{"jsonrpc": "2.0", "id": 1, "method": "ping\xff"}')),
    "a lone surrogate": (400, -32700, post(b'{"jsonrpc": "2.0", "id": 1, "method": "a\\ud800"}')),
    "a number of 6,000 digits": (
        400,
        -32700,
        post(b'{"jsonrpc": "2.0", "method": "ping", "id": ' + b"9" * 6000 + b"}"),
    ),
    "a list of messages": (400, -32600, post([PING, PING])),
    "a text": (400, -32600, post("ping")),
    "another version of JSON-RPC": (400, -32600, post({**PING, "jsonrpc": "1.0"})),
    "a method as number": (400, -32600, post({**PING, "method": 7})),
    "parameters as list": (400, -32600, call("tools/call", ["search"])),
    "100,000 unknown keys": (200, -32602, call("tools/call", {f"k{number}": 1 for number in range(100_000)})),
    "an unknown version of the protocol": (400, -32602, post(PING, "MCP-Protocol-Version: 9999-01-01")),
    "a reply that the client cannot accept": (406, -32600, make("POST /mcp", PING, "Accept: text/html")),
    "an id as object": (202, None, post({**PING, "id": {"a": 1}})),
    "a reply to nothing": (202, None, post({"jsonrpc": "2.0", "id": 1, "result": {}})),
    "an unknown method": (200, -32601, call("shutdown")),
    "the private method of a class": (200, -32601, call("__init__")),
    "a start without a version": (200, -32602, call("initialize", {})),
    "a call without a tool": (200, -32602, call("tools/call")),
    "a tool as number": (200, -32602, use(7, {})),
    "arguments as list": (200, -32602, use("search", ["a"])),
    "a file of the machine as a resource": (200, -32602, call("resources/read", {"uri": "file:///etc/passwd"})),
    "a subscription": (200, -32601, call("resources/subscribe", {"uri": "file:///etc/passwd"})),
    "a prompt": (200, -32602, call("prompts/get", {"name": "a"})),
    "a level of the log": (200, -32601, call("logging/setLevel", {"level": "debug"})),
}
TOOLS: dict[str, tuple[str, bytes]] = {
    # name: beginning of the error that the agent reads, and the request
    "an unknown tool": ("Unknown tool: rm", use("rm", {})),
    "a tool of the class": ("Unknown tool: __class__", use("__class__", {})),
    "no query": ("query: Field required", use("search", {})),
    "a query as number": ("query: Input should be a valid string", use("search", {"query": 7})),
    "an empty query": ("query: String should have at least 1", use("search", {"query": ""})),
    "a query of spaces": ("the question is empty", use("search", {"query": " "})),
    "a query of 10,001 characters": ("query: String should have at most 10000", use("search", {"query": "a" * 10_001})),
    "a question of control characters": ("the question is empty", use("ask", {"question": "\0\x1b"})),
    "k as a word": ("k: Input should be a valid integer", use("ask", {"question": "a", "k": "many"})),
    "k of a million": ("k: Input should be less than", use("ask", {"question": "a", "k": 10**6})),
    "a confidence of 2": ("min_confidence: Input should be", use("ask", {"question": "a", "min_confidence": 2})),
    "a file of the machine": ("there is no document '/etc/passwd'", use("fetch", {"id": "/etc/passwd"})),
    "traversal": ("there is no document '../../etc/passwd#5'", use("fetch", {"id": "../../etc/passwd#5"})),
    "the address of a file": ("there is no document 'file:///", use("fetch", {"id": "file:///etc/passwd"})),
    "an offset of 5,000 digits": ("there is no document 'a#999", use("fetch", {"id": "a#" + "9" * 5000})),
    "an id of control characters": ("there is no document '\\x1b[31m\\n", use("fetch", {"id": "\x1b[31m\n\0"})),
    "an id of 10,001 characters": ("id: String should have at most 10000", use("fetch", {"id": "a" * 10_001})),
    "a quotation from a file of the machine": (
        "there is no document '/etc/passwd'",
        use("verify", {"quote": "root:x", "document": "/etc/passwd"}),
    ),
    "a quotation of 2,001 characters": ("quote: String should have at most 2000", use("verify", {"quote": "a" * 2001})),
    "a quotation of no document": ("document: Field required", use("verify", {"quote": "a"})),
}


@pytest.mark.parametrize("name", HTTP)
def test_bad_http_has_the_errors_of_the_server(port: int, name: str, caplog: pytest.LogCaptureFixture) -> None:
    status, request = HTTP[name]
    check_error(check_answer(port, [request], status, caplog), status)


@pytest.mark.parametrize("name", MESSAGES)
def test_bad_messages_have_the_errors_of_json_rpc(port: int, name: str, caplog: pytest.LogCaptureFixture) -> None:
    status, code, request = MESSAGES[name]
    answer = check_answer(port, [request], status, caplog)
    if code is None:
        assert answer.endswith(b"\r\n\r\n")
    else:
        error = read_json(answer)["error"]
        assert error["code"] == code and "\n" not in error["message"] and len(error["message"]) < 200


@pytest.mark.parametrize("name", TOOLS)
def test_bad_calls_of_tools_are_one_line(port: int, name: str, caplog: pytest.LogCaptureFixture) -> None:
    beginning, request = TOOLS[name]
    result = read_json(check_answer(port, [request], 200, caplog))["result"]
    (content,) = result["content"]
    line = content["text"].partition(": ")[2] if "Unknown tool" not in beginning else content["text"]
    assert result["isError"] and line.startswith(beginning) and "\n" not in line and len(line) < 300


def test_long_quotations_are_checked_in_time(port: int, caplog: pytest.LogCaptureFixture) -> None:
    listed = read_json(exchange(port, make("GET /documents"), timeout=SECONDS))
    for quote in ("the " * 499, "a" * 1999, "a." * 999):
        request = use("verify", {"quote": quote, "document": listed["documents"][0]["id"]})
        assert not read_json(check_answer(port, [request], 200, caplog))["result"]["isError"]
