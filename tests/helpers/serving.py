"""A server over an index of a few documents, in this process."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ragqa.pipeline import Pipeline
from ragqa.serve.app import ServeSettings, make_app
from ragqa.serve.gate import Access, Limits
from ragqa.serve.http_server import open_listener, run_http_server
from ragqa.serve.json_protocol import JsonProtocol
from ragqa.types import Answer

LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1", "testserver"))


def make_settings(**options: Any) -> ServeSettings:
    """Return settings of a server on loopback; ``token``, ``origins`` and limits go where they belong."""
    limits = {name: options.pop(name) for name in list(options) if name in Limits.__dataclass_fields__}
    access = {name: options.pop(name) for name in list(options) if name in Access.__dataclass_fields__}
    access = {"hosts": None if access.get("token") else LOOPBACK, **access}
    return ServeSettings(access=Access(**access), limits=Limits(**limits), **options)


@contextmanager
def open_client(pipelines: dict[str, Any], log: list[str] | None = None, **options: Any) -> Iterator[Any]:
    """Yield a client that calls the application without a socket."""
    from starlette.testclient import TestClient

    lines = [] if log is None else log
    with TestClient(
        make_app(pipelines, make_settings(**options), lines.append), raise_server_exceptions=False
    ) as client:
        yield client


@contextmanager
def open_server(
    pipelines: dict[str, Any], protocol: type[JsonProtocol] = JsonProtocol, drain_seconds: int = 1, **options: Any
) -> Iterator[int]:
    """Yield the port of a server on a socket."""
    listener = open_listener("127.0.0.1", 0)
    with run_http_server(make_app(pipelines, make_settings(**options)), listener, protocol, drain_seconds):
        yield listener.getsockname()[1]


def read_events(text: str) -> list[tuple[str, Any]]:
    """Return the names and data of server-sent events."""
    events = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines())
        if lines:
            data = lines["data"]
            events.append((lines.get("event", ""), data if data == "[DONE]" else json.loads(data)))
    return events


class WritingPipeline:
    """Pipeline whose reader writes its answer, and can fail."""

    can_stream = True

    def __init__(self, pipeline: Pipeline, error: Exception | None = None) -> None:
        self._pipeline, self._error = pipeline, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipeline, name)

    def stream_answer(self, retrieved: Any, *, min_confidence: float | None) -> Iterator[str | Answer]:
        yield "Ada "
        if self._error:
            raise self._error
        yield "Holm"
        yield self._pipeline.read([retrieved])[0]
