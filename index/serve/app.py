"""HTTP application (ASGI) for searches by the protocol of ``ragqa.retrieval.remote``."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict
from typing import Any, Protocol

from index.serve.request_checks import parse_request
from ragqa.errors import BadInput, RemoteError
from ragqa.retrieval.remote import HEALTH, PROTOCOL, SEARCH, ServedCollection
from ragqa.serve.fair_queue import FairQueue, QueueFull
from ragqa.serve.request_limits import (
    BODY_SECONDS,
    LINGER_SECONDS,
    LOOPBACK_NAMES,
    SEND_SECONDS,
    BodyBudget,
    ClientLeft,
    Receive,
    RefusedRequest,
    RequestBody,
    Scope,
    Send,
    check_header_size,
    check_host,
    split_questions,
)
from ragqa.serve.response import ResponseWriter

TURNS = 4
"""Number of searches at once; with more, each search would take longer, and no more would finish per second."""


class Searcher(Protocol):
    """Collection that the application searches; its methods are those of ``Gateway``."""

    async def search(self, questions: list[str], k: int) -> dict[str, Any]:
        """Return the best ``k`` hits of each question (``found``), and the ``missing`` shards."""

    async def collection(self) -> ServedCollection:
        """Return a description of the collection and the current state of its shards."""


class SearchApp:
    """ASGI application in which clients search a collection in turns, within limits of memory."""

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
            max_k: maximum number of passages per question.
            allowed_hosts: names of the server, in addition to the names of loopback.
            queue: queue of the searches; by default a new queue with ``TURNS`` turns.
            body_seconds: seconds that a client has to send the body of a request.
            send_seconds: seconds that a client has to receive a part of the response.
            linger_seconds: seconds that a client has to send the rest of a body that is not read.
        """
        self._searcher, self._max_k = searcher, max_k
        self._hosts = frozenset((*LOOPBACK_NAMES, *(host.lower().strip("[]") for host in allowed_hosts)))
        self._queue, self._bodies = queue or FairQueue(TURNS), BodyBudget()
        self._body_seconds, self._send_seconds, self._linger_seconds = body_seconds, send_seconds, linger_seconds
        self._description: asyncio.Task[ServedCollection] | None = None
        self._routes: dict[tuple[str, str], Callable[[Scope, Receive, ResponseWriter], Awaitable[None]]] = {
            ("GET", HEALTH): self._answer_health,
            ("POST", SEARCH): self._answer_search,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an HTTP request; errors become replies too (see ``ragqa.retrieval.remote``)."""
        body = RequestBody(receive)
        reply = ResponseWriter(scope, send, self._send_seconds, lambda: body.discard_rest(self._linger_seconds))
        try:
            await self._answer(scope, body, reply)
        except RefusedRequest as error:
            await reply.send_error(error.status, _make_error(str(error)))
        except BadInput as error:
            await reply.send_error(400, _make_error(str(error)))
        except RemoteError as error:
            await reply.send_error(503, _make_error(str(error)))
        except QueueFull as error:
            whose, status = ("this client has", 429) if error.of_client else ("the server has", 503)
            await reply.send_error(status, _make_error(f"{whose} too many open requests: try again later"))
        except ClientLeft:
            reply.abort()
        except Exception as error:
            logging.getLogger("index.serve").exception("request failed")
            await reply.send_error(500, _make_error(f"the server has a bug: {type(error).__name__}; its log has more"))

    async def _answer(self, scope: Scope, receive: Receive, reply: ResponseWriter) -> None:
        check_header_size(scope)
        check_host(scope["headers"], self._hosts, (scope.get("server") or ("",))[0])
        answer = self._routes.get((scope["method"], scope["path"]))
        if answer is None:
            route_line = f"{scope['method']} {scope['raw_path'].decode('ascii', 'replace')}"[:100]  # still encoded
            raise RefusedRequest(404, f"there is no {route_line}: send {' or '.join(map(' '.join, self._routes))}")
        await answer(scope, receive, reply)

    async def _answer_health(self, scope: Scope, receive: Receive, reply: ResponseWriter) -> None:
        await reply.send_json(200, {"ragqa": PROTOCOL, **asdict(await self._describe())})

    async def _answer_search(self, scope: Scope, receive: Receive, reply: ResponseWriter) -> None:
        client = (scope.get("client") or ("",))[0]
        with self._queue.enter(client):
            body = await self._bodies.read(receive, scope["headers"], self._body_seconds)
            await self._search(*parse_request(body, self._max_k), client, reply)

    async def _search(self, questions: list[str], k: int, client: str, reply: ResponseWriter) -> None:
        """Search the questions in pieces; send the hits of a piece before searching the next one."""
        missing: dict[str, None] = {}
        pieces = list(split_questions(questions, k))
        for number, piece in enumerate(pieces):
            async with self._queue.take_turn(client):
                answer = await self._searcher.search(piece, k)
            missing |= dict.fromkeys(answer["missing"])
            if number == 0:
                await reply.start(200, (b"content-type", b"application/json"))
                await reply.send(f'{{"ragqa": {PROTOCOL}, "found": ['.encode())
            for place, hits in enumerate(answer["found"]):
                comma = ", " if number or place else ""
                await reply.send((comma + json.dumps(hits)).encode())
                await asyncio.sleep(0)  # let other requests run: encoding a thousand hits takes some milliseconds
        await reply.send(f'], "missing": {json.dumps(list(missing))}}}'.encode(), is_last=True)

    async def _describe(self) -> ServedCollection:
        """Return the description of the collection; simultaneous requests share one call."""
        if self._description is None or self._description.done():
            self._description = asyncio.create_task(self._searcher.collection())
        return await asyncio.shield(self._description)


def _make_error(message: str) -> dict[str, Any]:
    return {"ragqa": PROTOCOL, "error": message}
