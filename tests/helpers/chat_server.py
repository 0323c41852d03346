"""A local server that speaks the chat protocol with recorded replies."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "recorded-1"


@dataclass
class Received:
    """Request that the server received."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Recording:
    """What the server sends, and what it received."""

    chat: list["Response | Callable[[dict[str, Any]], Response]"]
    """Responses to ``POST /v1/chat/completions``, one after the other; the last one is repeated.

    A function gets the body of the request, and returns the response.
    """
    facts: dict[str, Any] = field(default_factory=dict)
    """Objects by path for other requests, or functions that return them; 404 for paths without one."""
    received: list[Received] = field(default_factory=list)
    url: str = ""

    @property
    def prompts(self) -> list[str]:
        """Last messages of the chats that were received."""
        return [request.body["messages"][-1]["content"] for request in self.received if "messages" in request.body]


@dataclass(frozen=True)
class Response:
    """Response of the server."""

    body: bytes
    status: int = 200
    kind: str = "text/event-stream"
    headers: tuple[tuple[str, str], ...] = ()


def say(*pieces: str, end: str = "stop", done: bool = True) -> Response:
    """Return a streamed reply."""
    events: list[Any] = [{"choices": [{"delta": {"role": "assistant"}}]}]
    events += [{"choices": [{"delta": {"content": piece}, "finish_reason": None}]} for piece in pieces]
    events += [{"choices": [{"delta": {}, "finish_reason": end}]}, {"choices": [], "usage": {"total_tokens": 5}}]
    lines = [f"data: {json.dumps(event)}\n\n" for event in events] + ["data: [DONE]\n\n"] * done
    return Response(b": ping\n\n" + "".join(lines).encode())


def say_json(row: Any, status: int = 200, **headers: str) -> Response:
    """Return a response with an object in one piece."""
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Response(json.dumps(row).encode(), status, "application/json", named)


@contextmanager
def run_chat_server(
    *chat: Response | Callable[[dict[str, Any]], Response], facts: dict[str, Any] | None = None, port: int = 0
) -> Iterator[Recording]:
    """Run the server; by default it has one model and tells nothing else."""
    models = {"/v1/models": {"data": [{"id": MODEL, "owned_by": "nobody"}]}}
    recording = Recording(list(chat), models | (facts or {}))
    server = ThreadingHTTPServer(("127.0.0.1", port), _make_handler(recording))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    recording.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield recording
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def _make_handler(recording: Recording) -> Callable[..., BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(body)

        def do_GET(self) -> None:
            self._answer({})

        def _answer(self, body: dict[str, Any]) -> None:
            recording.received.append(Received(self.path, dict(self.headers), body))
            if self.path == "/v1/chat/completions":
                wanted = recording.chat.pop(0) if len(recording.chat) > 1 else recording.chat[0]
                response = wanted(body) if callable(wanted) else wanted
            elif self.path in recording.facts:
                fact = recording.facts[self.path]
                response = say_json(fact() if callable(fact) else fact)
            else:
                response = say_json({"error": {"message": "not found"}}, 404)
            self.send_response(response.status)
            self.send_header("Content-Type", response.kind)
            self.send_header("Content-Length", str(len(response.body)))
            for name, value in response.headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(response.body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
