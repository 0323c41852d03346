"""Bad requests to the server as bytes, and the checks of what answers them."""

import json
import re
import time
from typing import Any

import pytest

from ragqa import Pipeline
from ragqa.errors import DamagedArtefact
from tests.helpers.raw_http import exchange, read_status

QUESTION = "Who built Skarvik Lighthouse?"
Parts = list[bytes | float]
SECRETS = re.compile(rb"Traceback|secret|site-packages|\.py\b|root:x|\x1b")
SECONDS = 20.0
"""Time within which every bad request is answered, on a busy machine, too."""


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


def make(
    line: str, body: Any = None, *headers: str, host: str = "localhost", type: str | None = "application/json"
) -> bytes:
    """Return a request; a body that is not bytes is sent as JSON."""
    content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{line} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(content)}", *headers]
    if body is not None and type:
        lines.append(f"Content-Type: {type}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + content


def check_error(answer: bytes, status: int) -> dict[str, Any]:
    """Check that an answer is an error in the one shape, with all headers, and without secrets; return it."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"x-content-type-options: nosniff" in head and b"content-security-policy: default-src 'none'" in head
    assert b"access-control-allow-origin" not in head
    row = json.loads(body)
    assert set(row) == {"error"} and set(row["error"]) == {"message", "type"}
    assert row["error"]["message"] and "\n" not in row["error"]["message"] and len(row["error"]["message"]) < 400
    assert (b"retry-after: 1" in head) == (status in (429, 503))
    assert (b"\r\nallow: " in head) == (status == 405)
    return row["error"]


def check_answer(
    port: int, parts: Parts, status: int | None, caplog: pytest.LogCaptureFixture, logged: bool = False
) -> bytes:
    """Send a request; check its status, that nothing leaks, and that the server is well. Return the answer.

    Args:
        port: port of the server.
        parts: what is sent, as for ``exchange``.
        status: status that answers it; None if the connection is closed.
        caplog: what is logged meanwhile.
        logged: True if the server logs a traceback: it has a bug.
    """
    start = time.perf_counter()
    answer = exchange(port, *parts, timeout=SECONDS)
    assert read_status(answer) == status, answer[-300:]
    assert not SECRETS.search(answer)
    assert time.perf_counter() - start < SECONDS
    assert read_status(exchange(port, make("GET /search?q=bread&k=1"), timeout=SECONDS)) == 200
    assert bool([record for record in caplog.records if record.exc_info]) is logged
    return answer


def read_json(answer: bytes) -> Any:
    """Return the body of an answer."""
    return json.loads(answer.partition(b"\r\n\r\n")[2])
