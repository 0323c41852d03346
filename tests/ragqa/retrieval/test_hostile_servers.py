"""The client of a served index survives servers that break its protocol or HTTP, or never finish."""

import gzip
import json
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from ragqa.errors import BadInput, Mismatch, RagqaError, RemoteError
from ragqa.retrieval import remote
from ragqa.retrieval.remote import PROTOCOL, RemoteRetriever, hit_to_row
from ragqa.types import Hit, Passage

TIMEOUT = 0.6
HIT = hit_to_row(Hit(Passage(1, "d", "t", "x", "p", 0, 1), 1.0))
SHARD = {"name": "a", "up": True, "passages": 1, "fingerprint": "f", "error": None}
COLLECTION = {
    "ragqa": PROTOCOL,
    "retriever": "dense",
    "fusion": None,
    "kind": "flat",
    "encoder": "e",
    "fingerprint": "f",
    "origin": "o",
    "corpus": "c",
    "passages": 1,
    "sources": ["a"],
    "shards": [SHARD],
}

Behaviour = Callable[[socket.socket], object]


@contextmanager
def run_server(behave: Behaviour) -> Iterator[str]:
    """Run a server that reads one request per connection and then calls a function; yield its URL."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.settimeout(5)
                read_request(connection)
                behave(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    assert not thread.is_alive()


def read_request(connection: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(1 << 16)
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length")), 0)
    while len(body) < length:
        body += connection.recv(1 << 16)


def reply(body: bytes, *headers: str, status: str = "200 OK", length: int | None = None) -> Behaviour:
    """Return a server that sends one response."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}", *headers]
    return lambda connection: connection.sendall("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)


def reply_json(row: Any, **options: Any) -> Behaviour:
    return reply(json.dumps(row).encode(), **options)


def reply_hits(*hits: Any, **row: Any) -> Behaviour:
    return reply_json({"ragqa": PROTOCOL, "missing": [], "found": [list(hits)], **row})


def reply_hit(**values: Any) -> Behaviour:
    """Return a server whose only hit has other values."""
    return reply_hits({**HIT, **values})


def send(*parts: bytes) -> Behaviour:
    return lambda connection: [connection.sendall(part) for part in parts]


def repeat(part: bytes, *, first: bytes = b"", pause: float = 0) -> Behaviour:
    """Return a server that sends a part without end."""

    def behave(connection: socket.socket) -> None:
        connection.sendall(first)
        while True:
            connection.sendall(part)
            time.sleep(pause)

    return behave


OK, CHUNKED = b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
BOMB = gzip.compress(b" " * (50 << 20))
MEGABYTE = b" " * (1 << 20)
LATE, INVALID, FOREIGN = "did not answer within 0.6 seconds", "does not answer as an index", "is not an index served"
LIMITED = f"{LATE}|{INVALID}"  # by time or by size, whichever is first

SERVERS: dict[str, tuple[Behaviour, str, type[RagqaError]]] = {
    # the behaviour of the server, and the error that the user sees
    "silence": (lambda connection: connection.recv(1), LATE, RemoteError),
    "dripping status": (repeat(b"H", pause=0.05), LATE, RemoteError),
    "dripping headers": (repeat(b"A: b\r\n", first=OK, pause=0.05), LATE, RemoteError),
    "dripping body": (repeat(b" ", first=OK + b"Content-Length: 1000\r\n\r\n", pause=0.05), LATE, RemoteError),
    "dripping chunks": (repeat(b"1\r\n \r\n", first=CHUNKED, pause=0.05), LATE, RemoteError),
    "endless 100 Continue": (repeat(b"HTTP/1.1 100 Continue\r\n\r\n", pause=0.01), LATE, RemoteError),
    "flood of 100 Continue": (repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 5000), LIMITED, RemoteError),
    "endless body": (repeat(MEGABYTE, first=OK + b"\r\n"), "more than 4 MB", RemoteError),
    "endless chunks": (repeat(b"100000\r\n" + MEGABYTE + b"\r\n", first=CHUNKED), "more than 4 MB", RemoteError),
    "huge chunk": (repeat(MEGABYTE, first=CHUNKED + b"ffffffffffff\r\n"), "more than 4 MB", RemoteError),
    "negative chunk": (repeat(MEGABYTE, first=CHUNKED + b"-1\r\n"), "more than 4 MB", RemoteError),
    "huge length": (
        repeat(MEGABYTE, first=OK + b"Content-Length: 1000000000000\r\n\r\n"),
        "more than 4 MB",
        RemoteError,
    ),
    "endless trailers": (repeat(b"A: b\r\n" * 9000, first=CHUNKED + b"0\r\n"), LIMITED, RemoteError),
    "endless status line": (repeat(b"H" * 9000), INVALID, RemoteError),
    "endless header": (repeat(b"A" * 9000, first=OK), INVALID, RemoteError),
    "many headers": (repeat(b"A: b\r\n" * 100, first=OK), INVALID, RemoteError),
    "body cut short": (reply(b"{", length=100), "ends 99 bytes early", RemoteError),
    "chunk cut short": (send(CHUNKED + b"64\r\n{"), INVALID, RemoteError),
    "chunk without a size": (send(CHUNKED + b"zz\r\n{"), INVALID, RemoteError),
    "body longer than said": (reply(json.dumps(COLLECTION).encode(), length=20), FOREIGN, RemoteError),
    "negative length": (reply(b"{}", length=-5), FOREIGN, RemoteError),
    "no response": (lambda connection: None, INVALID, RemoteError),
    "no HTTP": (send(b"SSH-2.0-OpenSSH_9.6\r\n"), INVALID, RemoteError),
    "binary": (send(bytes(range(256)) * 10), INVALID, RemoteError),
    "no number as status": (send(b"HTTP/1.1 abc OK\r\n\r\n"), INVALID, RemoteError),
    "redirect to another host": (
        reply(b"", "Location: http://169.254.169.254/latest/meta-data", status="302 Found"),
        "answers 302 to .* and ragqa follows no redirection",
        RemoteError,
    ),
    "redirect to a file": (reply(b"", "Location: file:///etc/passwd", status="307 Go"), "no redirection", RemoteError),
    "empty": (reply(b""), FOREIGN, RemoteError),
    "no content": (send(b"HTTP/1.1 204 No Content\r\n\r\n"), FOREIGN, RemoteError),
    "gzip bomb": (reply(BOMB, "Content-Encoding: gzip"), FOREIGN, RemoteError),
    "not UTF-8": (reply(b'{"ragqa": 2, "error": "\xff\xfe"}'), FOREIGN, RemoteError),
    "deep JSON": (reply(b"[" * 500_000), FOREIGN, RemoteError),
    "deep objects": (reply(b'{"ragqa":' * 200_000), FOREIGN, RemoteError),
    "long number": (reply(b'{"ragqa": ' + b"1" * 10_000 + b"}"), FOREIGN, RemoteError),
    "infinite version": (reply(b'{"ragqa": Infinity}'), FOREIGN, RemoteError),
    "infinite version as number": (reply(b'{"ragqa": 1e999}'), FOREIGN, RemoteError),
    "version as text": (reply_json({"ragqa": "1"}), FOREIGN, RemoteError),
    "version as truth": (reply_json({"ragqa": True}), FOREIGN, RemoteError),
    "list": (reply_json([1, 2]), FOREIGN, RemoteError),
    "null": (reply_json(None), FOREIGN, RemoteError),
    "newer version": (reply_json({"ragqa": 10**30}), "update ragqa", Mismatch),
    "error of many lines": (
        reply_json({"ragqa": PROTOCOL, "error": "a\nb\r\nc"}, status="500 X"),
        ": a b c$",
        RemoteError,
    ),
    "long error": (reply_json({"ragqa": PROTOCOL, "error": "a" * 10**6}, status="400 X"), "aaa…$", BadInput),
    "error as object": (reply_json({"ragqa": PROTOCOL, "error": {"a": [1]}}, status="400 X"), "{'a'", BadInput),
    "nothing found": (reply_json({"ragqa": 1}), INVALID, RemoteError),
    "found is a text": (reply_json({"ragqa": PROTOCOL, "missing": [], "found": "a"}), INVALID, RemoteError),
    "found is an object": (reply_json({"ragqa": PROTOCOL, "missing": [], "found": {"a": []}}), INVALID, RemoteError),
    "hits are null": (reply_json({"ragqa": PROTOCOL, "missing": [], "found": [None]}), INVALID, RemoteError),
    "missing is a text": (reply_hits(HIT, missing="abc"), INVALID, RemoteError),
    "missing holds numbers": (reply_hits(HIT, missing=[1]), INVALID, RemoteError),
    "too many answers": (reply_hits(HIT, found=[[HIT], [HIT]]), "2 answers to 1 questions", RemoteError),
    "too few answers": (reply_hits(HIT, found=[]), "0 answers to 1 questions", RemoteError),
    "too many hits": (reply_hits(*({**HIT, "id": n} for n in range(4))), "4 passages, where 3", RemoteError),
    "a passage twice": (reply_hits(HIT, HIT), "a passage comes twice", RemoteError),
    "hit is a list": (reply_hits([1]), INVALID, RemoteError),
    "id as text": (reply_hit(id="1"), INVALID, RemoteError),
    "id as truth": (reply_hit(id=True), INVALID, RemoteError),
    "id as fraction": (reply_hit(id=1.5), INVALID, RemoteError),
    "negative id": (reply_hit(id=-1), INVALID, RemoteError),
    "huge id": (reply_hit(id=10**20), "out of range", RemoteError),
    "text as number": (reply_hit(text=1), INVALID, RemoteError),
    "no text": (reply_hit(text=None), INVALID, RemoteError),
    "title as list": (reply_hit(title=["a"]), INVALID, RemoteError),
    "half a surrogate pair": (reply_hit(text="a\ud800"), INVALID, RemoteError),
    "end behind the text": (reply_hit(start=0, end=5), "do not fit its text", RemoteError),
    "end before start": (reply_hit(start=5, end=1), "out of range", RemoteError),
    "score NaN": (reply_hit(score=float("nan")), FOREIGN, RemoteError),
    "score infinite": (reply_hit(score=float("inf")), FOREIGN, RemoteError),
    "score as text": (reply_hit(score="1.0"), INVALID, RemoteError),
    "score beyond all floats": (reply_hit(score=10**400), INVALID, RemoteError),
    "score 1e999": (
        reply(json.dumps({"ragqa": PROTOCOL, "missing": [], "found": [[HIT]]}).encode().replace(b"1.0", b"1e9999")),
        "not a finite number",
        RemoteError,
    ),
}


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the size of a response to 4 MB, so that the tests are fast."""
    monkeypatch.setattr(remote, "_BYTES", 4 << 20)
    monkeypatch.setattr(remote, "_BYTES_PER_PASSAGE", 0)


@pytest.mark.parametrize("name", SERVERS)
def test_a_hostile_server_is_one_line_within_the_time_limit(name: str) -> None:
    behave, line, error = SERVERS[name]
    tracemalloc.start()
    with run_server(behave) as url:
        start = time.perf_counter()
        with pytest.raises(error, match=line) as raised:
            RemoteRetriever(url, timeout=TIMEOUT if LATE in line else 5).search(["a"], 3)
        seconds = time.perf_counter() - start
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    message = str(raised.value)
    assert url in message and "\n" not in message and len(message) < 800
    assert seconds < 3 and peak < 64 << 20


@pytest.mark.parametrize(
    "change",
    [
        {"retriever": None},
        {"retriever": 1},
        {"passages": "1"},
        {"passages": -1},
        {"passages": 1.5},
        {"passages": True},
        {"sources": "abc"},
        {"sources": [1]},
        {"sources": None},
        {"shards": {"a": SHARD}},
        {"shards": None},
        {"shards": [None]},
        {"shards": [{**SHARD, "up": 1}]},
        {"shards": [{**SHARD, "up": "yes"}]},
        {"shards": [{**SHARD, "name": ["a"]}]},
        {"shards": [{**SHARD, "passages": None}]},
        {"shards": [{**SHARD, "error": 5}]},
        {"fingerprint": 7},
        {"encoder": {"a": 1}},
        {"kind": "\ud800"},
    ],
)
def test_a_hostile_description_is_one_line(change: dict[str, Any]) -> None:
    with run_server(reply_json(COLLECTION)) as url:
        assert RemoteRetriever(url).fetch_collection().shards[0].name == "a"
    with run_server(reply_json({**COLLECTION, **change})) as url, pytest.raises(RemoteError, match=INVALID) as raised:
        RemoteRetriever(url).fetch_collection()
    assert "\n" not in str(raised.value)


def test_bytes_after_a_response_are_not_taken_for_the_next() -> None:
    """A server that sends two responses at once cannot answer the question after."""
    planted = json.dumps({"ragqa": PROTOCOL, "missing": [], "found": [[{**HIT, "text": "planted"}]]}).encode()
    good = json.dumps({"ragqa": PROTOCOL, "missing": [], "found": [[HIT]]}).encode()
    two = b"".join(OK + f"Content-Length: {len(body)}\r\n\r\n".encode() + body for body in (good, planted))
    with run_server(send(two)) as url:
        retriever = RemoteRetriever(url, timeout=2)
        for _ in range(3):
            assert retriever.search(["a"], 1)[0][0].passage.text == "x"


def test_large_k_is_asked_in_smaller_batches() -> None:
    sizes: list[int] = []

    class Recorder(RemoteRetriever):
        def _search_batch(self, questions: list[str], k: int) -> list[Any]:
            sizes.append(len(questions))
            return [[] for _ in questions]

    assert Recorder("http://localhost:1").search(["a"] * 40, 1000) == [[]] * 40
    assert sizes == [16, 16, 8]
    Recorder("http://localhost:1").search(["a"], 100_000)
    assert sizes[3:] == [1]
