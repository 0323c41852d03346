"""Gate of the server: origins, the access log, limits, and clients that leave or wait."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from ragqa import Pipeline
from tests.helpers.raw_http import exchange, read_status
from tests.helpers.serving import open_client, open_server

QUESTION = "Who built Skarvik Lighthouse?"
ORIGIN = "https://chat.example"


class SlowPipeline:
    """Pipeline that records its questions and reads slowly."""

    def __init__(self, pipeline: Pipeline, seconds: float) -> None:
        self._pipeline, self._seconds = pipeline, seconds
        self.questions: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipeline, name)

    def read(self, retrieved: list[Any], **options: Any) -> Any:
        self.questions += [each.question for each in retrieved]
        time.sleep(self._seconds)
        return self._pipeline.read(retrieved, **options)


@pytest.fixture(scope="module")
def pipeline(index: Path) -> Pipeline:
    return Pipeline.load(index)


def make_ask(question: str = QUESTION, **row: Any) -> bytes:
    body = json.dumps({"question": question, **row}).encode()
    return make_post("/ask", body)


def make_post(path: str, body: bytes) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        f"Content-Length: {len(body)}",
        "Content-Type: application/json",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@pytest.fixture(scope="module")
def cors_client(pipeline: Pipeline) -> Iterator[Any]:
    with open_client({"a": pipeline}, origins=(ORIGIN,)) as client:
        yield client


def test_only_named_origins_may_read_responses(cors_client: Any) -> None:
    allowed = cors_client.post("/ask", json={"question": QUESTION}, headers={"Origin": ORIGIN})
    assert allowed.status_code == 200 and allowed.headers["access-control-allow-origin"] == ORIGIN
    refused = cors_client.post("/ask", json={"question": QUESTION}, headers={"Origin": "https://evil.example"})
    assert refused.status_code == 403 and "access-control-allow-origin" not in refused.headers
    headers = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    preflight = cors_client.options("/ask", headers={"Origin": ORIGIN, **headers})
    assert preflight.status_code == 204 and preflight.headers["access-control-allow-origin"] == ORIGIN
    assert preflight.headers["access-control-allow-headers"] == "Authorization, Content-Type"
    preflight = cors_client.options("/ask", headers={"Origin": "https://evil.example", **headers})
    assert preflight.status_code == 403 and "access-control-allow-origin" not in preflight.headers
    for reply in (allowed, refused, preflight, cors_client.get("/nothing", headers={"Origin": ORIGIN})):
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")


def test_a_page_of_a_named_origin_reads_errors_and_sends_the_token(pipeline: Pipeline) -> None:
    token = "a-token-of-the-tests"
    with open_client({"a": pipeline}, origins=(ORIGIN,), token=token) as client:
        headers = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST"}
        assert client.options("/ask", headers=headers).status_code == 204
        reply = client.get("/documents", headers={"Origin": ORIGIN})
        assert reply.status_code == 401 and reply.headers["access-control-allow-origin"] == ORIGIN
        reply = client.get("/documents", headers={"Origin": ORIGIN, "Authorization": f"Bearer {token}"})
        assert reply.status_code == 200 and reply.headers["vary"] == "Origin"


def test_without_named_origins_there_are_no_headers_of_cors(pipeline: Pipeline) -> None:
    with open_client({"a": pipeline}) as client:
        reply = client.get("/healthz", headers={"Origin": "http://testserver"})
        assert reply.status_code == 200
        assert not [name for name in reply.headers if name.startswith("access-control")]


def test_the_log_has_no_questions_unless_asked(pipeline: Pipeline) -> None:
    for log_questions in (False, True):
        log: list[str] = []
        with open_client({"a": pipeline}, log, log_questions=log_questions) as client:
            client.post("/ask", json={"question": QUESTION})
            client.get("/search", params={"q": "rye bread"})
            client.post("/retrieve", json={"queries": ["one", "two"]})
            client.post("/v1/chat/completions", json={"model": "a", "messages": [{"role": "user", "content": "who"}]})
            client.get("/nothing")
        assert [line.split()[1:4] for line in log] == [
            ["POST", "/ask", "200"],
            ["GET", "/search", "200"],
            ["POST", "/retrieve", "200"],
            ["POST", "/v1/chat/completions", "200"],
            ["GET", "/nothing", "404"],
        ]
        assert [(QUESTION in log[0]), ("rye bread" in log[1]), ("one | two" in log[2]), log[3].endswith(" who")] == [
            log_questions
        ] * 4


def test_a_client_that_leaves_is_not_answered(pipeline: Pipeline) -> None:
    slow = SlowPipeline(pipeline, 0.5)
    with open_server({"a": slow}) as port:
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
        clients[0].sendall(make_ask("Who built it?"))
        time.sleep(0.25)
        for client in clients[1:]:
            client.sendall(make_ask("Who founded it?"))
        time.sleep(0.1)
        for client in clients:
            client.close()
        assert read_status(exchange(port, make_ask(), timeout=10)) == 200
        assert slow.questions == ["Who built it?", QUESTION]


def test_a_client_that_does_not_read_delays_no_other(pipeline: Pipeline) -> None:
    with open_server({"a": pipeline}, send_seconds=0.3) as port:
        body = json.dumps({"queries": ["lighthouse"] * 10_000, "topk": 25}).encode()
        connection = socket.create_connection(("127.0.0.1", port), 5)
        with connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(make_post("/retrieve", body))
            time.sleep(0.3)
            start = time.perf_counter()
            assert read_status(exchange(port, make_ask(), timeout=10)) == 200
            assert time.perf_counter() - start < 3


@pytest.mark.parametrize(("limit", "status"), [("max_open", 503), ("max_open_per_client", 429)])
def test_a_full_server_refuses_with_a_time_to_try_again(pipeline: Pipeline, limit: str, status: int) -> None:
    with open_server({"a": SlowPipeline(pipeline, 0.5)}, **{limit: 1}) as port:
        answers: list[bytes] = []
        first = threading.Thread(target=lambda: answers.append(exchange(port, make_ask(), timeout=10)))
        first.start()
        time.sleep(0.3)
        answer = exchange(port, make_ask())
        assert read_status(answer) == status and b"retry-after: 1" in answer
        first.join()
        assert read_status(answers[0]) == 200
        assert read_status(exchange(port, make_ask(), timeout=10)) == 200


def test_questions_that_wait_together_are_read_together(pipeline: Pipeline) -> None:
    class Counting(SlowPipeline):
        calls = 0

        def read(self, retrieved: list[Any], **options: Any) -> Any:
            self.calls += 1
            return super().read(retrieved, **options)

    counting = Counting(pipeline, 0.3)
    with open_server({"a": counting}) as port:
        answers: list[bytes] = []
        questions = [f"Who built Skarvik Lighthouse number {number}?" for number in range(12)]
        threads = [
            threading.Thread(target=lambda q=question: answers.append(exchange(port, make_ask(q), timeout=20)))
            for question in questions
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rows = [json.loads(answer.partition(b"\r\n\r\n")[2]) for answer in answers]
        assert sorted(row["question"] for row in rows) == sorted(questions)
        assert counting.calls <= 6  # the first one alone, the others in batches
        assert all(row == pipeline.ask(row["question"]).to_dict() for row in rows[:3])


def test_open_requests_are_answered_at_the_end(pipeline: Pipeline) -> None:
    answers: list[bytes] = []
    with open_server({"a": SlowPipeline(pipeline, 1.0)}, drain_seconds=10) as port:
        thread = threading.Thread(target=lambda: answers.append(exchange(port, make_ask(), timeout=10)))
        thread.start()
        time.sleep(0.4)
    thread.join()
    assert read_status(answers[0]) == 200 and b"Ada Holm" in answers[0]
    with pytest.raises(ConnectionRefusedError):
        exchange(port, make_ask())
