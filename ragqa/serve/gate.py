"""Gate of the application: checks of every request, and headers of every response."""

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from ragqa.serve.errors import BUG, make_error
from ragqa.serve.fair_queue import MAX_OPEN, MAX_OPEN_PER_CLIENT, FairQueue, QueueFull
from ragqa.serve.request_limits import (
    BODY_SECONDS,
    LINGER_SECONDS,
    MAX_BYTES,
    SEND_SECONDS,
    BodyBudget,
    ClientLeft,
    Message,
    Receive,
    RefusedRequest,
    RequestBody,
    Scope,
    Send,
    check_header_size,
    check_host,
)
from ragqa.serve.response import ResponseWriter

REQUEST_SECONDS = 120.0
"""Maximum number of seconds until a response begins, and between two of its parts."""
MAX_UPLOAD_BYTES = 64 << 20
"""Maximum size of an uploaded file in bytes."""
HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        b"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        b"require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""Headers of every response, in addition to ``X-Content-Type-Options: nosniff`` and the headers of CORS."""
PREFLIGHT_HEADERS = (
    (b"access-control-allow-methods", b"GET, POST, DELETE"),
    (b"access-control-allow-headers", b"Authorization, Content-Type"),
    (b"access-control-max-age", b"600"),
)
"""Headers of the reply to a preflight request, after which a browser lets another origin's page send requests."""
ENTRY = "ragqa.entry"
"""Name of the request's ``LogEntry`` in its ASGI scope."""

App = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Access:
    """Rules that decide who may send requests."""

    token: str | None = None
    """Token that requests must have; None if requests need no token."""
    hosts: Collection[str] | None = None
    """Names under which requests may reach the server, in lower case; None for any name."""
    origins: Collection[str] = ()
    """Origins of other pages that may read responses (CORS), such as ``https://chat.example``."""
    public_paths: Collection[str] = ()
    """Paths that need no token."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of time in seconds, and of open requests."""

    request_seconds: float = REQUEST_SECONDS
    """Maximum time until a response begins, and between two of its parts."""
    body_seconds: float = BODY_SECONDS
    """Maximum time until the body of a request is complete."""
    send_seconds: float = SEND_SECONDS
    """Maximum time in which a client receives a part of a response."""
    linger_seconds: float = LINGER_SECONDS
    """Maximum time to discard the rest of a refused body."""
    max_open: int = MAX_OPEN
    """Maximum number of open requests."""
    max_open_per_client: int = MAX_OPEN_PER_CLIENT
    """Maximum number of open requests of one IP address."""


@dataclass
class LogEntry:
    """Facts about a request, for its line in the access log and for the route ``/healthz``."""

    has_token: bool = False
    """True if the request has the token, or if the server has none."""
    questions: list[str] = field(default_factory=list)


class Gate:
    """ASGI application that checks requests before it passes them to another application."""

    def __init__(
        self,
        app: App,
        access: Access,
        limits: Limits,
        log: Callable[[str], object],
        *,
        log_questions: bool = False,
    ) -> None:
        """Put a gate before an application.

        Args:
            app: application behind the gate.
            access: rules that decide who may send requests.
            limits: limits of time and of open requests.
            log: function that writes a line of the access log.
            log_questions: True to write the questions into the log.
        """
        self._app, self._access, self._limits, self._log = app, access, limits, log
        self._log_questions = log_questions
        self._bodies = BodyBudget()
        self._open = FairQueue(0, limits.max_open, limits.max_open_per_client)
        self._token = access.token.encode() if access.token else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an HTTP request; pass lifespan events on, and ignore all else."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return
        start, entry = perf_counter(), LogEntry()
        scope[ENTRY] = entry
        body = RequestBody(receive)
        allowed = self._find_allowed_origin(scope["headers"])
        headers = (*HEADERS, (b"access-control-allow-origin", allowed), (b"vary", b"Origin")) if allowed else HEADERS
        linger = self._limits.linger_seconds
        reply = ResponseWriter(scope, send, self._limits.send_seconds, lambda: body.discard_rest(linger), headers)
        try:
            await self._answer(scope, body, reply, entry)
        finally:
            self._log(self._format_entry(scope, entry, reply.status, perf_counter() - start))

    async def _answer(self, scope: Scope, receive: RequestBody, reply: ResponseWriter, entry: LogEntry) -> None:
        try:
            check_header_size(scope)
            self._check_source(scope)
            if scope["method"] == "OPTIONS" and self._find_allowed_origin(scope["headers"]):
                await reply.start(204, *PREFLIGHT_HEADERS)
                await reply.send(b"", is_last=True)
                return
            entry.has_token = self._has_token(scope["headers"])
            if not entry.has_token and scope["path"] not in self._access.public_paths:
                raise RefusedRequest(401, "the token is missing or wrong: send the header Authorization: Bearer TOKEN")
            with self._open.enter((scope.get("client") or ("",))[0]):
                is_upload = (scope["method"], scope["path"]) == ("POST", "/documents")
                most = MAX_UPLOAD_BYTES if is_upload else MAX_BYTES
                body = await self._bodies.read(receive, scope["headers"], self._limits.body_seconds, most)
                await self._run(scope, body, receive, reply)
        except RefusedRequest as error:
            headers = [(b"www-authenticate", b"Bearer")] if error.status == 401 else []
            await reply.send_error(error.status, make_error(error.status, str(error)), *headers)
        except QueueFull as error:
            whose, status = ("this client has", 429) if error.of_client else ("the server has", 503)
            line = f"{whose} too many open requests: try again later"
            await reply.send_error(status, make_error(status, line))
        except ClientLeft:
            reply.abort()
        except Exception:
            logging.getLogger("ragqa.serve").exception("request failed")
            await reply.send_error(500, make_error(500, BUG))

    def _check_source(self, scope: Scope) -> None:
        """Refuse a request that a foreign page makes a browser send.

        Nothing is checked if the server has a token (``hosts`` is None), since a foreign page does not know the token.
        """
        if self._access.hosts is None:
            return
        headers = [(name, value) for name, value in scope["headers"] if name != b"origin"]
        check_host(headers, self._access.hosts, (scope.get("server") or ("",))[0])
        host = next(value for name, value in headers if name == b"host").decode("latin-1").lower()
        for name, value in scope["headers"]:
            origin = value.decode("latin-1").lower()
            if name == b"origin" and origin not in self._access.origins and _get_place(origin) != host:
                raise RefusedRequest(403, f"the origin {origin[:100]!r} is another page: allow it with --cors ORIGIN")

    def _find_allowed_origin(self, headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
        origins = [value for name, value in headers if name == b"origin"]
        is_allowed = len(origins) == 1 and origins[0].decode("latin-1").lower() in self._access.origins
        return origins[0] if is_allowed else None

    def _has_token(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        if self._token is None:
            return True
        values = [value for name, value in headers if name == b"authorization"]
        scheme, _, token = (values[0] if len(values) == 1 else b"").partition(b" ")
        return hmac.compare_digest(token.strip(), self._token) and scheme.lower() == b"bearer"

    async def _run(self, scope: Scope, body: bytes, receive: RequestBody, reply: ResponseWriter) -> None:
        clock: asyncio.Timeout = asyncio.timeout(self._limits.request_seconds)
        loop, left = asyncio.get_running_loop(), asyncio.Event()
        parts = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive_body() -> Message:
            if part := next(parts, None):
                return part
            await left.wait()
            return {"type": "http.disconnect"}

        async def send_part(message: Message) -> None:
            await reply.forward(message)
            if not reply.is_complete:
                clock.reschedule(loop.time() + self._limits.request_seconds)

        async def wait_until_left() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            left.set()

        async def run_app() -> None:
            try:
                async with clock:
                    await self._app(scope, receive_body, send_part)
            except TimeoutError:
                if not clock.expired():
                    raise
                raise RefusedRequest(504, f"no answer within {self._limits.request_seconds:g} seconds") from None

        app, watch = asyncio.create_task(run_app()), asyncio.create_task(wait_until_left())
        try:
            await asyncio.wait((app, watch), return_when=asyncio.FIRST_COMPLETED)
            if not app.done() and not reply.is_complete:
                app.cancel()
            await app
        except asyncio.CancelledError:
            if not left.is_set():
                raise
            raise ClientLeft from None
        finally:
            app.cancel()
            watch.cancel()

    def _format_entry(self, scope: Scope, entry: LogEntry, status: int | None, seconds: float) -> str:
        """Return a line of the access log, without the query string, which can contain a question."""
        client = (scope.get("client") or ("-",))[0]
        path = scope["raw_path"].partition(b"?")[0].decode("ascii", "replace")[:200]
        line = f"{client} {scope['method'][:20]} {path} {status or 'left'} {seconds:.3f} s"
        if self._log_questions and entry.questions:
            line += f" {' | '.join(entry.questions)[:1000]}"
        return line


def _get_place(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def get_entry(scope: Any) -> LogEntry:
    """Return the log entry in the ASGI scope of a request."""
    entry: LogEntry = scope[ENTRY]
    return entry
