"""Response to an HTTP request, with a time limit for clients that do not read it."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from ragqa.serve.request_limits import ClientLeft, Message, Scope, Send

Header = tuple[bytes, bytes]
NOSNIFF: Header = (b"x-content-type-options", b"nosniff")


class ResponseWriter:
    """Writer of the response to a request, in one or more parts."""

    def __init__(
        self,
        scope: Scope,
        send: Send,
        seconds: float,
        discard_body: Callable[[], Awaitable[bool]],
        headers: tuple[Header, ...] = (),
    ) -> None:
        """Prepare the response.

        Args:
            scope: ASGI scope of the request.
            send: ASGI function that sends a message.
            seconds: maximum number of seconds in which the client receives a part.
            discard_body: function that discards the rest of the request; it returns False if that takes too long.
            headers: headers to add to the response.
        """
        self._send, self._seconds, self._discard_body, self._headers = send, seconds, discard_body, headers
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            # A proxy may see the body end elsewhere, so no other request is read from this connection (RFC 9112, 6.1).
            self._headers += ((b"connection", b"close"),)
        self.status: int | None = None
        """HTTP status of the response; None if it has not begun."""
        self.is_complete = False
        """True if the last part has been sent."""
        self._connection = scope.get("state", {}).get("connection")

    async def forward(self, message: Message) -> None:
        """Send an ASGI message of an application; errors: as for ``send``."""
        if message["type"] == "http.response.start":
            await self.start(message["status"], *message.get("headers", ()))
        else:
            await self.send(message.get("body", b""), is_last=not message.get("more_body", False))

    async def start(self, status: int, *headers: Header) -> None:
        """Send the status, and ``headers`` in addition to the headers of the writer."""
        self.status = status
        fields = [NOSNIFF, *self._headers, *headers]
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
        self.is_complete = is_last

    async def send_json(self, status: int, row: dict[str, Any], *headers: Header) -> None:
        """Send a complete response with a JSON object, and discard the rest of the request.

        With the status 429 or 503, clients are asked to try again after a second. Errors: as for ``send``.
        """
        body = json.dumps(row).encode()
        retry = [(b"retry-after", b"1")] if status in (429, 503) else []
        length = (b"content-length", str(len(body)).encode())
        await self.start(status, (b"content-type", b"application/json"), length, *retry, *headers)
        await self.send(body)
        # If the connection closed while the client is still sending, the client could not read the response.
        if await self._discard_body():
            await self.send(b"", is_last=True)
        else:
            self.abort()

    async def send_error(self, status: int, row: dict[str, Any], *headers: Header) -> None:
        """Send an error as JSON; abort the connection if a response has begun."""
        if self.status is not None:
            self.abort()
            return
        try:
            await self.send_json(status, row, *headers)
        except ClientLeft:
            self.abort()

    def abort(self) -> None:
        """Close the connection at once if the response is incomplete, so that the client notices."""
        if self._connection and not self.is_complete:
            self._connection.abort()
