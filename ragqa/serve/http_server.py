"""HTTP server (uvicorn) in a thread, with limits on connections."""

import json
import logging
import os
import socket
from asyncio import TimerHandle
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from time import sleep
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ragqa.errors import BadInput
from ragqa.serve.request_limits import MAX_HEADER_BYTES

MAX_CONNECTIONS = 1000
"""Maximum number of open connections; further connections are closed at once."""
HEADER_SECONDS = 10.0
"""Maximum number of seconds in which a client sends the request line and all headers."""
LISTEN_BACKLOG = 1024
"""Maximum number of connections that wait in the kernel until they are accepted."""
IDLE_SECONDS = 75
"""Seconds after which an idle connection is closed; until then, clients can reuse it."""


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 connection with a time limit for headers; too many connections are refused.

    The application finds the connection in ``scope["state"]["connection"]``, and can abort it.
    """

    header_seconds = HEADER_SECONDS
    """Maximum number of seconds in which a client sends the headers."""
    extra_headers: tuple[tuple[str, str], ...] = ()
    """Headers of the response to bytes that are not HTTP."""

    @staticmethod
    def make_error(message: str) -> dict[str, Any]:
        """Return the JSON object of an error about bytes that are not HTTP."""
        return {"error": message}

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.app_state = {**self.app_state, "connection": self}
        self._timer: TimerHandle | None = None

    def is_closing(self) -> bool:
        """Return True if the connection is closed or is being closed."""
        return self.transport.is_closing()

    def abort(self) -> None:
        """Close the connection at once; data still in its buffer is not sent."""
        self.transport.abort()

    def connection_made(self, transport: Any) -> None:
        """Start the time limit for headers, or close the connection if too many are open."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            self.abort()
        else:
            self._set_timer(self.header_seconds)

    def data_received(self, data: bytes) -> None:
        """Read a part of a request; the time limit starts and stops with the headers."""
        super().data_received(data)
        is_in_headers = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        if not is_in_headers:
            self._set_timer(None)
        elif self._timer is None:
            self._set_timer(self.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time limit, since the connection is closed."""
        self._set_timer(None)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP with an error in JSON, or abort a response that has begun."""
        body = json.dumps(self.make_error(msg)).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        headers += self.extra_headers
        try:
            for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:
            self.abort()
        else:
            self.transport.close()

    def _set_timer(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self.abort)


@contextmanager
def run_http_server(
    app: Any, listener: socket.socket, protocol: type[H11Protocol] = LimitedProtocol, drain_seconds: int = 1
) -> Iterator[None]:
    """Run an ASGI application in a thread while the block runs.

    Args:
        app: ASGI application.
        listener: listening socket, which is closed at the end.
        protocol: class of the connections.
        drain_seconds: maximum number of seconds to finish open requests at the end.
    """
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # bad requests are answered, not logged
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        loop="asyncio",
        interface="asgi3",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=drain_seconds,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, args=([listener],), name="HTTP server", daemon=True)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            sleep(0.01)
        yield
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def open_listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address and a TCP port.

    Args:
        host: IP address or host name.
        port: number of the port; 0 for any free one.

    Raises:
        BadInput: the address does not exist, or the port is in use, forbidden or out of range.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=LISTEN_BACKLOG)
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None) or 0
        reason = os.strerror(number) if number > 0 else str(error)  # a name look-up fails with a negative number
        raise BadInput(f"port {port} of {host} cannot be listened on ({reason}): choose another") from error
