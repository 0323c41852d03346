"""Hostile requests to the HTTP server of a collection, which is a stand-in here: no Ray is started."""

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from select import select
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

pytest.importorskip("uvicorn", reason="the extra ray is not installed")

from index.serve.app import SearchApp
from index.serve.connection import SearchConnection
from index.serve.request_checks import MAX_QUESTIONS
from ragqa.errors import RemoteError
from ragqa.retrieval.remote import PROTOCOL, RemoteRetriever, ServedCollection, ServedShard, hit_to_row
from ragqa.serve.fair_queue import FairQueue
from ragqa.serve.http_server import LimitedProtocol, run_http_server
from ragqa.types import Hit, Passage
from tests.helpers.raw_http import LAST_CHUNK, LEAVE, exchange, read_status

COLLECTION = ServedCollection(
    retriever="dense",
    fusion=None,
    kind="flat",
    encoder="e",
    fingerprint="f",
    origin="f",
    corpus="c",
    passages=1,
    sources=("a",),
    shards=(ServedShard(name="a", up=True, passages=1, fingerprint="f"),),
)
TEXT = "A passage of some hundred characters, as an index would return it for a question. " * 5


class StandIn:
    """Collection of passages with one text; a search takes some time for each passage."""

    def __init__(self, seconds_per_passage: float = 0.0) -> None:
        self.seconds_per_passage, self.searched = seconds_per_passage, 0

    async def search(self, questions: list[str], k: int) -> dict[str, Any]:
        if questions[0] == "fail":
            raise RemoteError("no shard answers: a (gone)")
        if questions[0] == "bug":
            raise ZeroDivisionError
        self.searched += len(questions) * k
        await asyncio.sleep(len(questions) * k * self.seconds_per_passage)
        hit = hit_to_row(Hit(Passage(0, "d", "", TEXT, "", 0, len(TEXT)), 1.0))
        return {"missing": [], "found": [[{**hit, "id": n} for n in range(k)] for _ in questions]}

    async def collection(self) -> ServedCollection:
        return COLLECTION


class Hasty(SearchConnection):
    """Connection with short limits, so that the tests are fast."""

    header_seconds = 0.4


@contextmanager
def serve(app: SearchApp, protocol: type[LimitedProtocol] = Hasty) -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    with run_http_server(app, listener, protocol):
        yield listener.getsockname()[1]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    app = SearchApp(StandIn(), 1000, ["Wiki.Example"], body_seconds=0.5, send_seconds=0.5, linger_seconds=0.3)
    with serve(app) as port:
        yield port


def make_request(
    body: bytes = b"", *headers: str, line: str = "POST /search HTTP/1.1", host: str = "localhost"
) -> bytes:
    lines = [line, f"Host: {host}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def ask(questions: Any = ("a",), **row: Any) -> bytes:
    return json.dumps({"questions": questions, **row}).encode()


GOOD = make_request(ask(k=1))
CHUNKED = b"POST /search HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
START = b"POST /search HTTP/1.1\r\nHost: localhost\r\n"

REQUESTS: dict[str, tuple[int | None, list[bytes | float]]] = {
    # what is sent, and the status that answers it: none if the connection is closed
    "no JSON": (400, [make_request(b"what?")]),
    "empty body": (400, [make_request()]),
    "not UTF-8": (400, [make_request(b'{"questions": ["\xff"]}')]),
    "deep JSON": (400, [make_request(b"[" * 200_000)]),
    "deep objects": (400, [make_request(b'{"a":' * 100_000)]),
    "long number": (400, [make_request(b'{"questions": ["a"], "k": ' + b"9" * 10_000 + b"}")]),
    "infinite k": (400, [make_request(b'{"questions": ["a"], "k": Infinity}')]),
    "NaN as k": (400, [make_request(b'{"questions": ["a"], "k": NaN}')]),
    "k of 0": (400, [make_request(ask(k=0))]),
    "negative k": (400, [make_request(ask(k=-1))]),
    "huge k": (400, [make_request(ask(k=10**9))]),
    "k as text": (400, [make_request(ask(k="1"))]),
    "k as list": (400, [make_request(ask(k=[1]))]),
    "no questions": (400, [make_request(b"{}")]),
    "null questions": (400, [make_request(ask(None))]),
    "nested questions": (400, [make_request(ask([["a"]]))]),
    "questions as object": (400, [make_request(ask({"a": 1}))]),
    "empty question": (400, [make_request(ask(["a", "  "]))]),
    "only control characters": (400, [make_request(ask(["\x00\x1b"]))]),
    "too many questions": (400, [make_request(ask(["a"] * (MAX_QUESTIONS + 1)))]),
    "too much work": (400, [make_request(ask(["a"] * 500, k=1000))]),
    "lone surrogate": (200, [make_request(b'{"questions": ["a\\ud800"], "k": 1}')]),
    "compressed": (400, [make_request(b"\x1f\x8b\x08\x00" + b"\x00" * 100, "Content-Encoding: gzip")]),
    "declared 600 MB": (413, [START + b"Content-Length: 629145600\r\n\r\n", b"a" * 100_000]),
    "16 MB and a byte in chunks": (413, [CHUNKED, *[b"100000\r\n" + b" " * (1 << 20) + b"\r\n"] * 17]),
    "larger than all integers": (413, [START + b"Content-Length: " + b"9" * 19 + b"\r\n\r\n"]),
    "body cut short": (None, [START + b"Content-Length: 100\r\n\r\n", b"{}", LEAVE]),
    "dripping body": (408, [START + b"Content-Length: 100\r\n\r\n", *[b" ", 0.1] * 8]),
    "no body at all": (408, [START + b"Content-Length: 100\r\n\r\n", 0.8]),
    "dripping headers": (None, [b"POST /search HTTP/1.1\r\n", *[b"A: b\r\n", 0.1] * 8]),
    "silence": (None, [0.8]),
    "endless headers": (400, [b"GET /healthz HTTP/1.1\r\n" + b"A: " + b"b" * 100_000]),
    "40 kB of headers at once": (400, [make_request(b"", "A: " + "b" * 40_000, line="GET /healthz HTTP/1.1")]),
    "40 kB of target at once": (400, [make_request(line=f"GET /healthz?{'b' * 40_000} HTTP/1.1")]),
    "many headers": (400, [b"GET /healthz HTTP/1.1\r\n" + b"A: b\r\n" * 20_000]),
    "negative length": (400, [START + b"Content-Length: -1\r\n\r\n"]),
    "length in words": (400, [START + b"Content-Length: ten\r\n\r\n"]),
    "two lengths": (400, [START + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"]),
    "bad chunk size": (400, [CHUNKED, b"zz\r\n{}\r\n0\r\n\r\n"]),
    "negative chunk": (400, [CHUNKED, b"-1\r\n"]),
    "endless chunk size": (400, [CHUNKED, b"0" * 100_000]),
    "unknown coding": (400, [START + b"Transfer-Encoding: gzip\r\n\r\n"]),
    "space before the colon": (400, [b"GET /healthz HTTP/1.1\r\nHost : localhost\r\n\r\n"]),
    "line feed in a header": (400, [b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nA: \x00b\r\n\r\n"]),
    "no HTTP": (400, [b"SSH-2.0-OpenSSH_9.6\r\n\r\n"]),
    "TLS": (400, [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\n\n"]),
    "unknown version": (200, [b"GET /healthz HTTP/9.9\r\nHost: localhost\r\n\r\n"]),
    "no host": (400, [b"GET /healthz HTTP/1.0\r\n\r\n"]),
    "two hosts": (400, [make_request(b"", "Host: evil.example")]),
    "foreign host": (421, [make_request(ask(), host="evil.example")]),
    "foreign host, local port": (421, [make_request(ask(), host="evil.example:8077")]),
    "host that begins alike": (421, [make_request(ask(), host="localhost.evil.example")]),
    "host that ends alike": (421, [make_request(ask(), host="evil-localhost")]),
    "another address": (421, [make_request(ask(), host="192.0.2.1")]),
    "empty host": (421, [make_request(ask(), host="")]),
    "no valid port": (421, [make_request(ask(), host="localhost:abc")]),
    "foreign origin": (421, [make_request(ask(), "Origin: https://evil.example")]),
    "null origin": (421, [make_request(ask(), "Origin: null")]),
    "forwarded host": (421, [make_request(ask(), "X-Forwarded-Host: localhost", host="evil.example")]),
    "traversal": (404, [make_request(line="GET /../../etc/passwd HTTP/1.1")]),
    "encoded traversal": (404, [make_request(line="GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1")]),
    "encoded NUL": (404, [make_request(line="GET /healthz%00 HTTP/1.1")]),
    "escapes in the path": (404, [make_request(line="GET /%1b%5b31m%0d%0aX:y HTTP/1.1")]),
    "absolute address": (404, [make_request(line="GET http://evil.example/healthz HTTP/1.1")]),
    "proxy": (404, [make_request(line="CONNECT evil.example:443 HTTP/1.1")]),
    "wrong method": (404, [make_request(ask(), line="PUT /search HTTP/1.1")]),
    "invented method": (404, [make_request(line="FROB /healthz HTTP/1.1")]),
    "search by GET": (404, [make_request(line="GET /search HTTP/1.1")]),
    "Ray's own routes": (404, [make_request(line="GET /-/routes HTTP/1.1")]),
    "web socket": (
        404,
        [make_request(b"", "Upgrade: websocket", "Connection: Upgrade", line="GET /ws HTTP/1.1")],
    ),
    "lost shards": (503, [make_request(ask(["fail"]))]),
    "trailing name of the host": (200, [make_request(ask(k=1), host="LOCALHOST.:8077")]),
    "allowed host": (200, [make_request(ask(k=1), host="wiki.example")]),
    "own address": (200, [make_request(ask(k=1), host="127.0.0.1:1")]),
    "own origin": (200, [make_request(ask(k=1), "Origin: http://localhost:8077")]),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_hostile_requests_get_their_status_and_leave_the_server_well(
    port: int, name: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    status, parts = REQUESTS[name]
    answer = exchange(port, *parts)
    assert read_status(answer) == status
    assert b"Traceback" not in answer and b"\x1b" not in answer
    if status not in (None, 200):
        row = json.loads(answer.rpartition(b"\r\n\r\n")[2])
        assert row["ragqa"] == PROTOCOL and row["error"] and "\n" not in row["error"]
    printed = capfd.readouterr()
    assert "Traceback" not in printed.err + printed.out + caplog.text
    assert read_status(exchange(port, GOOD)) == 200


def test_an_unknown_route_is_answered_with_those_that_there_are(port: int) -> None:
    answer = exchange(port, make_request(line="GET /find HTTP/1.1"))
    error = json.loads(answer.rpartition(b"\r\n\r\n")[2])["error"]
    assert error.startswith("there is no GET /find: send GET /healthz or POST /search")


def test_a_bug_is_one_line_for_the_client(
    port: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger("index.serve")
    monkeypatch.setattr(logger, "disabled", False)  # libraries of other tests change the logging, also of parents
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "handlers", [caplog.handler])
    caplog.set_level(logging.ERROR, logger.name)
    answer = exchange(port, make_request(ask(["bug"])))
    assert read_status(answer) == 500 and b"the server has a bug: ZeroDivisionError" in answer
    assert "Traceback" in caplog.text  # for whoever runs the server


def test_pipelined_requests_are_answered_in_their_order(port: int) -> None:
    answer = exchange(port, GOOD + make_request(b"what?") + make_request(line="GET /healthz HTTP/1.1"), count=3)
    assert [part.split(b" ", 1)[0] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"200", b"400", b"200"]


def test_a_request_smuggled_behind_a_body_is_a_request_of_its_own(port: int) -> None:
    hidden = b"GET /nothing HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    answer = exchange(port, CHUNKED + b"0\r\n\r\n" + hidden, count=2)
    assert [part.split(b" ", 1)[0] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"400", b"421"]
    both = START + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    assert read_status(exchange(port, both + hidden)) == 400


@pytest.mark.parametrize("megabytes", [17, 100])
def test_a_client_that_closes_each_connection_reads_why_its_body_is_refused(megabytes: int) -> None:
    with serve(SearchApp(StandIn(), 1000, linger_seconds=60)) as port:
        with pytest.raises(HTTPError, match="413"):
            urlopen(f"http://localhost:{port}/search", b" " * (megabytes << 20), timeout=60)  # sends Connection: close
        assert read_status(exchange(port, GOOD)) == 200


def test_a_client_that_leaves_stops_its_search() -> None:
    searcher = StandIn(seconds_per_passage=1e-5)
    with serve(SearchApp(searcher, 1000)) as port:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(make_request(ask(["a"] * 256, k=1000)))
            connection.recv(1000)
        time.sleep(0.3)
        searched = searcher.searched
        time.sleep(0.3)
        assert searcher.searched == searched < 256_000


def test_a_client_that_does_not_read_is_cut_off_with_little_work_done() -> None:
    searcher = StandIn()
    with serve(SearchApp(searcher, 1000, send_seconds=0.3)) as port:
        connection = socket.create_connection(("127.0.0.1", port), 5)
        connection.sendall(make_request(ask(["a"] * 256, k=1000)))
        time.sleep(1.5)
        assert searcher.searched < 64_000
        received = [b""]
        with connection, suppress(ConnectionError):
            while data := connection.recv(1 << 20):
                received.append(data)
        assert not b"".join(received).endswith(LAST_CHUNK)


def send_large_bodies(port: int, count: int, refusals: int) -> list[int | None]:
    """Send 15 MB to ``count`` searches at once, and their last byte after ``refusals`` answers; return the statuses."""
    answers: list[int | None] = []
    body = ask(["a"]) + b" " * (15 << 20)
    is_time = threading.Event()

    def send() -> None:
        with socket.create_connection(("127.0.0.1", port), 60) as connection:
            connection.sendall(make_request(body)[:-1])
            while not is_time.is_set() and not select([connection], [], [], 0.01)[0]:
                pass  # a refused request is answered before its last byte
            connection.sendall(body[-1:])
            answers.append(read_status(connection.recv(1 << 16)))
            if len(answers) >= refusals:
                is_time.set()

    threads = [threading.Thread(target=send) for _ in range(count)]
    for thread in threads:
        thread.start()
    if not refusals:
        is_time.set()
    for thread in threads:
        thread.join()
    return answers


def test_the_bodies_of_all_requests_share_a_limit() -> None:
    with serve(SearchApp(StandIn(), 1000), LimitedProtocol) as port:
        answers = send_large_bodies(port, 12, refusals=4)
        assert answers[:4] == [503] * 4 and answers.count(200) <= 8
        assert send_large_bodies(port, 1, refusals=0) == [200]  # the memory is free again


@pytest.mark.parametrize(
    ("queue", "status", "line"),
    [
        (FairQueue(1, 1, 9), 503, "the server has too many open requests"),
        (FairQueue(1, 9, 1), 429, "this client has too many open requests"),
    ],
)
def test_a_full_queue_refuses_in_one_line(queue: FairQueue, status: int, line: str) -> None:
    with serve(SearchApp(StandIn(0.5), 1000, queue=queue)) as port:
        first = threading.Thread(target=exchange, args=(port, GOOD))
        first.start()
        time.sleep(0.2)
        answer = exchange(port, GOOD)
        assert read_status(answer) == status and line in answer.decode() and b"retry-after: 1" in answer
        first.join()
        assert read_status(exchange(port, GOOD)) == 200


def test_a_small_request_does_not_wait_for_large_ones() -> None:
    """Eight large requests of 256 questions with k = 1,000 would take 40 s of the shards' time."""
    with serve(SearchApp(StandIn(seconds_per_passage=2e-5), 1000), LimitedProtocol) as port:
        large = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
        stop = threading.Event()

        def drain(connection: socket.socket) -> None:
            connection.sendall(make_request(ask(["a"] * 256, k=1000)))
            while not stop.is_set() and connection.recv(1 << 20):
                pass

        threads = [threading.Thread(target=drain, args=(connection,)) for connection in large]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        seconds = []
        for _ in range(10):
            start = time.perf_counter()
            assert len(RemoteRetriever(f"http://127.0.0.1:{port}").search(["small"], 10)[0]) == 10
            seconds.append(time.perf_counter() - start)
        stop.set()
        for thread, connection in zip(threads, large, strict=True):
            thread.join()
            connection.close()
        assert sorted(seconds)[len(seconds) // 2] < 5


def test_turns_go_round_the_clients() -> None:
    async def run() -> list[str]:
        queue, order = FairQueue(1), []

        async def work(client: str) -> None:
            async with queue.take_turn(client):
                order.append(client)
                await asyncio.sleep(0)

        await asyncio.gather(*(work(client) for client in ("a", "a", "a", "a", "b", "c", "b")))
        return order

    assert asyncio.run(run()) == ["a", "a", "b", "c", "a", "b", "a"]


def test_a_cancelled_wait_gives_its_turn_to_the_next() -> None:
    async def run() -> bool:
        queue = FairQueue(1)

        async def work() -> None:
            async with queue.take_turn("a"):
                await asyncio.sleep(0.01)

        tasks = [asyncio.create_task(work()) for _ in range(4)]
        await asyncio.sleep(0)
        tasks[1].cancel()  # while it waits
        await asyncio.gather(tasks[0], return_exceptions=True)
        tasks[2].cancel()  # just when its turn comes
        await asyncio.wait_for(tasks[3], 1)
        await asyncio.wait_for(work(), 1)
        return all(task.done() for task in tasks)

    assert asyncio.run(run())
