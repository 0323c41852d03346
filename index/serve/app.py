"""HTTP application (ASGI) that answers searches by the protocol of ``ragqa.retrieval.remote``."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import asdict
from typing import Any, Protocol

from index.serve.fair_queue import FairQueue, QueueFull
from index.serve.request_checks import (
    BODY_SECONDS,
    LINGER_SECONDS,
    LOOPBACK_NAMES,
    BodyBudget,
    ClientLeft,
    Receive,
    RefusedRequest,
    RequestBody,
    check_header_size,
    check_host,
    parse_request,
    split_questions,
)
from ragqa.errors import BadInput, RemoteError
from ragqa.retrieval.remote import HEALTH, PROTOCOL, SEARCH, ServedCollection

SEND_SECONDS = 30.0
"""Seconds that a client has to receive a part of the response."""
TURNS = 4
"""Number of pieces of work at once; with more, clients would wait longer and nothing would be faster."""

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Searcher(Protocol):
    """Collection that the application searches."""

    async def search(self, questions: list[str], k: int) -> dict[str, Any]:
        """Return the hits of each question, and the names of missing shards."""

    async def collection(self) -> ServedCollection:
        """Return a description of the collection."""


class SearchApp:
    """ASGI application that searches a collection, with bounded work and memory and fair turns of clients."""

    def __init__(
        self,
        searcher: Searcher,
        max_k: int,
        allowed_hosts: Iterable[str] = (),
        *,
        queue: FairQueue | None = None,
        body_seconds: float = BODY_SECONDS,
        send_seconds: float = SEND_SECONDS,
        linger_seconds: float = LINGER_SECONDS,
    ) -> None:
        """Make an application over a collection.

        Args:
            searcher: the collection.
            max_k: maximum k of a request.
            allowed_hosts: names of the server, in addition to the names of loopback.
            queue: queue of the searches; by default a new one.
            body_seconds: seconds that a client has to send the body of a request.
            send_seconds: seconds that a client has to receive a part of the response.
            linger_seconds: seconds that a client has to send the rest of a body that is not read.
        """
        self._searcher, self._max_k = searcher, max_k
        self._hosts = frozenset((*LOOPBACK_NAMES, *(host.lower().strip("[]") for host in allowed_hosts)))
        self._queue, self._bodies = queue or FairQueue(TURNS), BodyBudget()
        self._body_seconds, self._send_seconds, self._linger_seconds = body_seconds, send_seconds, linger_seconds
        self._description: asyncio.Task[ServedCollection] | None = None
        self._routes: dict[tuple[str, str], Callable[[Scope, Receive, _Reply], Awaitable[None]]] = {
            ("GET", HEALTH): self._answer_health,
            ("POST", SEARCH): self._answer_search,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of the ASGI server."""
        body = RequestBody(receive)
        reply = _Reply(scope, send, self._send_seconds, lambda: body.discard_rest(self._linger_seconds))
        try:
            await self._answer(scope, body, reply)
        except RefusedRequest as error:
            await reply.send_error(error.status, str(error))
        except BadInput as error:
            await reply.send_error(400, str(error))
        except RemoteError as error:
            await reply.send_error(503, str(error))
        except QueueFull as error:
            whose, status = ("this client has", 429) if error.of_client else ("the server has", 503)
            await reply.send_error(status, f"{whose} too many open requests: try again later")
        except ClientLeft:
            reply.abort()
        except Exception as error:
            logging.getLogger("index.serve").exception("request failed")
            await reply.send_error(500, f"the server has a bug: {type(error).__name__}; its log has more")

    async def _answer(self, scope: Scope, receive: Receive, reply: "_Reply") -> None:
        check_header_size(scope)
        check_host(scope["headers"], self._hosts, (scope.get("server") or ("",))[0])
        answer = self._routes.get((scope["method"], scope["path"]))
        if answer is None:
            route_line = f"{scope['method']} {scope['raw_path'].decode('ascii', 'replace')}"[:100]  # still encoded
            raise RefusedRequest(404, f"there is no {route_line}: send {' or '.join(map(' '.join, self._routes))}")
        await answer(scope, receive, reply)

    async def _answer_health(self, scope: Scope, receive: Receive, reply: "_Reply") -> None:
        await reply.send_row(200, asdict(await self._describe()))

    async def _answer_search(self, scope: Scope, receive: Receive, reply: "_Reply") -> None:
        client = (scope.get("client") or ("",))[0]
        with self._queue.enter(client):
            body = await self._bodies.read(receive, scope["headers"], self._body_seconds)
            await self._search(*parse_request(body, self._max_k), client, reply)

    async def _search(self, questions: list[str], k: int, client: str, reply: "_Reply") -> None:
        """Search the questions in pieces, and send the hits of a piece before the next piece is searched."""
        missing: dict[str, None] = {}
        pieces = list(split_questions(questions, k))
        for number, piece in enumerate(pieces):
            async with self._queue.take_turn(client):
                answer = await self._searcher.search(piece, k)
            missing |= dict.fromkeys(answer["missing"])
            if number == 0:
                await reply.start(200)
                await reply.send(f'{{"ragqa": {PROTOCOL}, "found": ['.encode())
            for place, hits in enumerate(answer["found"]):
                comma = ", " if number or place else ""
                await reply.send((comma + json.dumps(hits)).encode())
                await asyncio.sleep(0)  # let other requests run: encoding a thousand hits takes some milliseconds
        await reply.send(f'], "missing": {json.dumps(list(missing))}}}'.encode(), is_last=True)

    async def _describe(self) -> ServedCollection:
        """Return the description of the collection; simultaneous requests share one call of the shards."""
        if self._description is None or self._description.done():
            self._description = asyncio.create_task(self._searcher.collection())
        return await asyncio.shield(self._description)


class _Reply:
    """Response to a request, in one or more parts."""

    def __init__(self, scope: Scope, send: Send, seconds: float, discard_body: Callable[[], Awaitable[bool]]) -> None:
        self._send, self._seconds, self._discard_body, self._started = send, seconds, discard_body, False
        self._connection = scope.get("state", {}).get("connection")

    async def start(self, status: int, *headers: tuple[bytes, bytes]) -> None:
        """Send the status and the headers."""
        self._started = True
        fields = [(b"content-type", b"application/json"), (b"x-content-type-options", b"nosniff"), *headers]
        await self._send({"type": "http.response.start", "status": status, "headers": fields})

    async def send(self, part: bytes, is_last: bool = False) -> None:
        """Send a part of the body.

        Raises:
            ClientLeft: the client has closed the connection, or did not receive the part in time.
        """
        if self._connection and self._connection.is_closing():
            raise ClientLeft
        try:
            async with asyncio.timeout(self._seconds):
                await self._send({"type": "http.response.body", "body": part, "more_body": not is_last})
        except TimeoutError:
            raise ClientLeft from None

    async def send_row(self, status: int, row: dict[str, Any]) -> None:
        """Send a complete response with the JSON object ``row``."""
        body = json.dumps({"ragqa": PROTOCOL, **row}).encode()
        retry = [(b"retry-after", b"1")] if status in (429, 503) else []
        await self.start(status, (b"content-length", str(len(body)).encode()), *retry)
        await self.send(body)
        # The client has the whole response. But a connection that is closed while the client sends is reset, and then
        # the client cannot read it.
        if await self._discard_body():
            await self.send(b"", is_last=True)
        else:
            self.abort()

    async def send_error(self, status: int, line: str) -> None:
        """Send an error message, or abort a response that has begun."""
        if self._started:
            self.abort()
            return
        try:
            await self.send_row(status, {"error": line})
        except ClientLeft:
            self.abort()

    def abort(self) -> None:
        """Close the connection at once, so that the client notices that the response is incomplete."""
        if self._connection:
            self._connection.abort()
