"""The client of a chat server: the protocol, the key, and one clear line for everything that can go wrong."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from ragqa.errors import BadInput, RagqaError, RemoteError
from ragqa.reading.chat import server
from ragqa.reading.chat.language_model import ContextOverflow
from ragqa.reading.chat.server import KEY, ChatServer
from tests.helpers.chat_server import MODEL, Response, run_chat_server, say, say_json

MESSAGES = [{"role": "user", "content": "Who?"}]
SECRET = "sk-secret-0123456789"


@pytest.fixture(autouse=True)
def without_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY, raising=False)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that the client would have waited."""
    seconds: list[float] = []
    monkeypatch.setattr(server, "sleep", seconds.append)
    return seconds


def ask(url: str, model: str = MODEL, max_tokens: int = 9, **options: Any) -> tuple[list[str], str]:
    """Return the pieces of a reply and the reason why it ended."""
    writing, pieces = ChatServer(url, model, **options).write(MESSAGES, max_tokens), []
    while True:
        try:
            pieces.append(next(writing))
        except StopIteration as stop:
            return pieces, stop.value


def test_a_streamed_reply_comes_in_pieces_with_its_end() -> None:
    with run_chat_server(say("Ada", " Holm", end="length")) as recording:
        assert ask(recording.url) == (["Ada", " Holm"], "length")
    chat = recording.received[-1]
    assert chat.body == {"model": MODEL, "messages": MESSAGES, "max_tokens": 9, "stream": True, "temperature": 0}
    assert "Authorization" not in chat.headers


def test_a_reply_in_one_piece_is_read_too() -> None:
    reply = say_json({"choices": [{"message": {"content": "Ada"}, "finish_reason": "stop"}]})
    with run_chat_server(reply) as recording:
        assert ask(recording.url) == (["Ada"], "stop")


def test_the_end_of_the_stream_may_be_missing() -> None:
    with run_chat_server(say("Ada", done=False)) as recording:
        assert ask(recording.url) == (["Ada"], "stop")


def test_the_only_model_needs_no_name() -> None:
    with run_chat_server(say("Ada")) as recording:
        assert ask(recording.url, "")[0] == ["Ada"]
        recording.facts["/v1/models"] = {"data": [{"id": "a"}, {"id": "b"}]}
        with pytest.raises(BadInput, match=r"name a model after #.*; it has a, b$"):
            ask(recording.url, "")


def test_the_key_is_sent_to_the_named_host_alone_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, SECRET)
    with run_chat_server(say_json({"error": {"message": f"bad key {SECRET}"}}, 401)) as recording:
        with pytest.raises(RemoteError, match=rf"answers 401: the key in {KEY} is refused \(bad key …\)") as caught:
            ask(recording.url)
        assert SECRET not in str(caught.value)
        assert {request.headers["Authorization"] for request in recording.received} == {f"Bearer {SECRET}"}
    with run_chat_server(say("never")) as other:
        moved = say_json({}, 307, Location=f"{other.url}/chat/completions")
        with run_chat_server(moved) as recording, pytest.raises(RemoteError, match="follows no redirection"):
            ask(recording.url)
        assert other.received == []


@pytest.mark.parametrize(
    ("setting", "url", "key"),
    [
        (SECRET, "https://api.example.com/v1", SECRET),
        (f"api.example.com={SECRET}", "https://api.example.com/v1", SECRET),
        (f"api.example.com={SECRET}", "https://other.example.com/v1", None),
        (f"api.example.com={SECRET}", "https://api.example.com.evil.example/v1", None),
        (f"a.example=one, b.example:8000={SECRET}", "https://b.example:8000/v1", SECRET),
        (f"b.example:8000={SECRET}", "https://b.example:8001/v1", None),
        (f"localhost={SECRET}", "http://localhost:1/v1", SECRET),
        ("eyJ.part.YWI==", "https://api.example.com/v1", "eyJ.part.YWI=="),
        ("", "https://api.example.com/v1", None),
    ],
)
def test_a_key_can_name_its_host(setting: str, url: str, key: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, setting)
    expected = {"Authorization": f"Bearer {key}"} if key else {}
    assert ChatServer(url, "m")._headers == expected


@pytest.mark.parametrize(
    "url", ["http://api.example.com/v1", "http://192.168.1.7:8000/v1", "http://127.0.0.1.nip.io/v1"]
)
def test_a_key_over_plain_http_to_another_machine_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ChatServer(url, "m")._headers == {}
    monkeypatch.setenv(KEY, SECRET)
    with pytest.raises(BadInput, match="would be sent unencrypted; use https") as caught:
        ChatServer(url, "m")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("url", ["http://me:pw@host/v1", "http://host:99999/v1", "http:///v1", "http://host/v1?key=x"])
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(BadInput) as caught:
        ChatServer(url, "m")
    assert "pw" not in str(caught.value) and "key=x" not in str(caught.value)


def test_a_key_that_no_header_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "sk\nX-Evil: 1")
    with pytest.raises(BadInput, match="holds a character"):
        ChatServer("http://localhost/v1", "m")


def test_busy_servers_are_asked_again_after_the_time_that_they_name(waits: list[float]) -> None:
    busy = say_json({"error": {"message": "slow down"}}, 429, Retry_After="7")
    with run_chat_server(busy, say_json({}, 503), say("Ada")) as recording:
        assert ask(recording.url)[0] == ["Ada"]
    assert waits == [7.0, 2.0]


def test_a_server_that_stays_busy_is_given_up(waits: list[float]) -> None:
    message = "answers 503: overloaded; try again later"
    with (
        run_chat_server(say_json({"error": "overloaded"}, 503)) as recording,
        pytest.raises(RemoteError, match=message),
    ):
        ask(recording.url)
    assert waits == [1.0, 2.0, 4.0]
    assert len([request for request in recording.received if "messages" in request.body]) == 4


def test_nobody_waits_for_hours(waits: list[float]) -> None:
    with run_chat_server(say_json({}, 429, Retry_After="7200")) as recording, pytest.raises(RemoteError):
        ask(recording.url)
    assert waits == []


def test_settings_that_a_model_refuses_are_left_out() -> None:
    first = say_json({"error": {"message": "Unsupported: 'max_tokens'. Use 'max_completion_tokens' instead."}}, 400)
    second = say_json({"error": {"message": "'temperature' does not support 0"}}, 400)
    with run_chat_server(first, second, say("Ada")) as recording:
        assert ask(recording.url)[0] == ["Ada"]
    assert recording.received[-1].body == {
        "model": MODEL,
        "messages": MESSAGES,
        "max_completion_tokens": 9,
        "stream": True,
    }


LLAMA_TOO_LONG = {"error": {"code": 400, "message": "request exceeds the available context size", "n_ctx": 256}}
OPENAI_TOO_LONG = {"error": {"message": "too long", "code": "context_length_exceeded"}}
PYTHON_TOO_LONG = {"error": {"message": "This model's maximum context length is 2048 tokens."}}


@pytest.mark.parametrize("row", [LLAMA_TOO_LONG, PYTHON_TOO_LONG, OPENAI_TOO_LONG])
def test_a_prompt_that_is_too_long_is_an_error_of_its_own(row: dict[str, Any]) -> None:
    with run_chat_server(say_json(row, 400)) as recording, pytest.raises(ContextOverflow, match="prompt is too long"):
        ask(recording.url)


def test_an_empty_stream_is_asked_again_in_one_piece_for_its_error() -> None:
    with run_chat_server(Response(b""), say_json(PYTHON_TOO_LONG, 400)) as recording:
        with pytest.raises(ContextOverflow):
            ask(recording.url)
        assert [request.body["stream"] for request in recording.received[-2:]] == [True, False]


@pytest.mark.parametrize(
    ("facts", "context"),
    [
        ({"/v1/models": {"data": [{"id": MODEL, "max_model_len": 8192}]}}, 8192),  # vLLM
        ({"/props": {"default_generation_settings": {"n_ctx": 4096}}}, 4096),  # llama.cpp
        ({"/api/ps": {"models": [{"name": f"{MODEL}:latest", "context_length": 2048}]}}, 2048),  # Ollama
        ({"/api/ps": {"models": []}}, 4096),
        ({}, None),
        ({"/v1/models": {"data": [{"id": MODEL, "max_model_len": "many"}, 7]}, "/props": {"x": 1}}, None),
        ({"/v1/models": [], "/api/ps": {"models": "x"}}, 4096),
    ],
)
def test_the_context_is_what_the_server_tells(facts: dict[str, Any], context: int | None) -> None:
    with run_chat_server(say("x"), facts=facts) as recording:
        model = ChatServer(recording.url, MODEL)
        assert model.find_context() == context
        count = len(recording.received)
        assert model.find_context() == context and len(recording.received) == count


def test_tokens_are_counted_by_the_server_or_estimated() -> None:
    facts = {"/props": {"default_generation_settings": {"n_ctx": 512}}, "/tokenize": {"tokens": [1, 2, 3]}}
    with run_chat_server(say("x"), facts=facts) as recording:
        model = ChatServer(recording.url, MODEL)
        model.find_context()
        assert model.count_tokens("a lamp and oil") == 3
        del recording.facts["/tokenize"]
        assert model.count_tokens("a lamp and oil") == 5  # 14 characters, three for a token
        count = len(recording.received)
        assert model.count_tokens("oil") == 1 and len(recording.received) == count


BROKEN: list[tuple[Response, str]] = [
    (Response(b"hello", kind="text/plain"), "does not answer with JSON: 'hello'; is it the API?"),
    (Response(b"<html>Sign in</html>", kind="text/html"), "does not answer with JSON: '<html>Sign in</html>'"),
    (Response(b"{", kind="application/json"), "does not answer with JSON: '{'"),
    (Response(b"[" * 100_000, kind="application/json"), "does not answer with JSON"),
    (say_json({"choices": []}), "sends no reply: its list of choices is empty"),
    (Response(b"data: [DONE]\n\n"), "sends no reply: its list of choices is empty"),
    (Response(b""), "sends no reply"),
    (say_json({"answer": "Ada"}), "does not speak the chat protocol: its reply has no choices"),
    (Response(b"data: {nonsense\n\n"), "does not answer with JSON: '{nonsense'"),
    (Response(b'data: {"error": {"message": "out of memory"}}\n\n'), "answers 200: out of memory"),
    (Response(b"data: " + b"x" * (5 << 20) + b"\n\n"), "sends more than 4 MB"),
    (say(*["x" * 100_000] * 60), "sends more than 4 MB"),
    (say_json({"error": {"message": "no model x"}}, 404), rf"for the model '{MODEL}': it has {MODEL} \(no model x\)"),
    (say_json({"detail": "internal"}, 418), "answers 418: internal"),
    (say_json({"error": {"message": "no\x1b[31m\nlines"}}, 418), "answers 418: no"),
    (say_json({}, 401), f"answers 401: set {KEY} to your key"),
]


@pytest.mark.parametrize(("response", "message"), BROKEN)
def test_broken_replies_give_one_line(response: Response, message: str) -> None:
    with run_chat_server(response) as recording, pytest.raises(RemoteError, match=message) as caught:
        ask(recording.url)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


def test_odd_values_in_a_stream_are_left_out() -> None:
    events = b'data: {"choices": [{"delta": {"content": 7}}]}\n\ndata: {"choices": [{"delta": "x"}]}\n\n'
    events += b'event: ping\ndata: {"choices": [7]}\n\ndata: {"choices": [{"delta": {"content": "Ada \\ud800"}}]}\n\n'
    with run_chat_server(Response(events)) as recording:
        assert ask(recording.url) == (["Ada \ufffd"], "stop")


@pytest.mark.parametrize("model", [MODEL, ""])
def test_no_server_is_there(model: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(RemoteError, match=r"cannot be reached \(Connection refused\): is a server running there\?"):
        ask(f"http://127.0.0.1:{port}/v1", model)


@contextmanager
def run_raw_server(behave: Callable[[socket.socket], object]) -> Iterator[str]:
    """Run a server that reads something and then calls a function with the connection."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                is_chat = connection.recv(1 << 16).startswith(b"POST /v1/chat")
                if is_chat:
                    behave(connection)
                else:
                    connection.sendall(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def send_for_ever(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    while True:
        connection.sendall(b": waiting\n\n")
        time.sleep(0.05)


def send_headers_for_ever(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X-Filler: x\r\n")
        time.sleep(0.05)


@pytest.mark.parametrize("behave", [send_for_ever, send_headers_for_ever, lambda _: time.sleep(2)])
def test_a_server_that_never_ends_is_left_in_time(behave: Callable[[socket.socket], object]) -> None:
    with run_raw_server(behave) as url:
        start = time.monotonic()
        with pytest.raises(RagqaError, match=r"did not answer within 0\.6 seconds|does not speak HTTP"):
            ask(url, timeout=0.6)
        assert time.monotonic() - start < 5


def test_a_reply_that_nobody_wants_is_not_read_to_its_end() -> None:
    with run_raw_server(send_piece_and_wait) as url:
        writing = ChatServer(url, MODEL, timeout=5).write(MESSAGES, 9)
        assert next(writing) == "Ada"
        start = time.monotonic()
        writing.close()
        assert time.monotonic() - start < 1


def send_piece_and_wait(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    connection.sendall(b'data: {"choices": [{"delta": {"content": "Ada"}}]}\n\n')
    time.sleep(2)
