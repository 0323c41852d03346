"""Limits and checks of HTTP requests, and division of large requests into pieces of work."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from typing import Any
from urllib.parse import urlsplit

MAX_HEADER_BYTES = 32 << 10
"""Maximum size of the request line and the headers in bytes."""
MAX_PASSAGES = 256_000
"""Maximum number of passages in a response to several questions (questions times k): about 250 MB."""
MAX_BYTES = 16 << 20
"""Maximum size of a request's body in bytes, except for uploaded files."""
MAX_BYTES_IN_ALL = 8 * MAX_BYTES
"""Maximum size in bytes of all request bodies that are received at the same time."""
BODY_SECONDS = 30.0
"""Maximum number of seconds in which a client sends the complete body of a request."""
SEND_SECONDS = 30.0
"""Maximum number of seconds in which a client receives a part of the response."""
LINGER_SECONDS = 5.0
"""Maximum number of seconds to discard a refused body: many clients send all of it before they read the response."""
PIECE_QUESTIONS, PIECE_PASSAGES, PIECE_CHARACTERS = 16, 4000, 20_000
"""Limits of a piece of work. A piece takes about 0.1 s, in which other clients wait."""
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class RefusedRequest(Exception):
    """Error for a request that is answered with an HTTP status and a message of one line."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status = status


class ClientLeft(Exception):
    """Error for a client that has closed the connection, or does not read the response."""


def check_header_size(scope: Scope) -> None:
    """Check the size of the target and the headers of a request.

    The HTTP server has the same limit, but applies it only to headers that arrive in several parts.

    Raises:
        RefusedRequest: target and headers have more than ``MAX_HEADER_BYTES``.
    """
    fields = sum(len(name) + len(value) + len(": \r\n") for name, value in scope["headers"])
    if fields + len(scope["raw_path"]) + len(scope["query_string"]) > MAX_HEADER_BYTES:
        raise RefusedRequest(400, f"the headers are too large: at most {MAX_HEADER_BYTES} bytes are read")


class RequestBody:
    """ASGI function that receives the body of a request, and can discard the rest of it."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self._has_ended = receive, False

    async def __call__(self) -> Message:
        """Return the next part of the body, or the message ``http.disconnect``."""
        message = await self._receive()
        self._has_ended = not message.get("more_body", False)
        return message

    async def discard_rest(self, seconds: float) -> bool:
        """Receive and discard the rest of the body.

        Args:
            seconds: time limit in seconds.

        Returns:
            True if the body ended or the client closed the connection within the time limit.
        """
        try:
            async with asyncio.timeout(seconds):
                while not self._has_ended:
                    await self()
        except TimeoutError:
            return False
        return True


def check_host(headers: Iterable[tuple[bytes, bytes]], allowed: Iterable[str], local_address: str) -> None:
    """Check that a request names this server as its target.

    The owner of a web page can make the page's name resolve to 127.0.0.1 (DNS rebinding). Then a browser on this
    machine lets the page read the server's answers. The browser still sends the page's name as Host and Origin.

    Args:
        headers: headers of the request, with names in lower case.
        allowed: names of the server in lower case.
        local_address: address at which the request arrived; it is also accepted, since only names can be rebound.

    Raises:
        RefusedRequest: the Host header is missing, or Host or Origin has another name.
    """
    names = {b"host": "//", b"origin": ""}
    values = [(name, value.decode("latin-1")) for name, value in headers if name in names]
    if not any(name == b"host" for name, _ in values):
        raise RefusedRequest(400, "the request has no Host header")
    for name, value in values:
        try:
            parts = urlsplit(names[name] + value)
            host, _ = (parts.hostname or "").removesuffix("."), parts.port
        except ValueError:
            host = ""
        if not host or host not in (*allowed, local_address):
            header = name.decode().capitalize()
            raise RefusedRequest(421, f"{header} {value[:100]!r} is not this server: start it with --allow-host NAME")


class BodyBudget:
    """Limit on the memory for all request bodies that are received at the same time.

    Args:
        limit: maximum number of bytes.
    """

    def __init__(self, limit: int = MAX_BYTES_IN_ALL) -> None:
        self._left = limit

    async def read(
        self, receive: Receive, headers: Iterable[tuple[bytes, bytes]], seconds: float, most: int = MAX_BYTES
    ) -> bytes:
        """Read the body of a request, and stop as soon as the body exceeds a limit.

        Args:
            receive: ASGI function that returns the next part.
            headers: headers of the request, with names in lower case.
            seconds: time limit in seconds.
            most: maximum size of the body in bytes.

        Raises:
            RefusedRequest: the body is too large or too slow, or all bodies together are too large.
            ClientLeft: the client closed the connection.
        """
        declared = next((int(value) for name, value in headers if name == b"content-length"), 0)
        if declared > most:
            raise RefusedRequest(413, f"the request has {declared} bytes: at most {most} are read")
        body = bytearray()
        try:
            async with asyncio.timeout(seconds):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientLeft
                    part, more = message.get("body", b""), message.get("more_body", False)
                    if len(part) > self._left:
                        raise RefusedRequest(503, "the server reads too many large requests: try again later")
                    self._left -= len(part)
                    body += part
                    if len(body) > most:
                        raise RefusedRequest(413, f"the request is too large: at most {most} bytes are read")
        except TimeoutError:
            raise RefusedRequest(408, f"the request did not arrive within {seconds:g} seconds") from None
        finally:
            self._left += len(body)  # parsed requests need less memory
        return bytes(body)


def split_questions(questions: list[str], k: int) -> Iterator[list[str]]:
    """Divide the questions of a request into pieces of about 0.1 s of work at most.

    Args:
        questions: questions of the request, at least one.
        k: number of passages for each question, at least 1.
    """
    piece: list[str] = []
    characters, most = 0, min(PIECE_QUESTIONS, max(1, PIECE_PASSAGES // k))
    for question in questions:
        if piece and (len(piece) == most or characters + len(question) > PIECE_CHARACTERS):
            yield piece
            piece, characters = [], 0
        piece.append(question)
        characters += len(question)
    yield piece
