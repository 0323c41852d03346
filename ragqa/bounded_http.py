"""HTTP connections that limit the time and the size of a response.

``http.client`` limits only the time of each socket call. So a server that sends single bytes can block a client
forever, and a response can have any size. Here, each request has a deadline and a maximum number of received bytes.
"""

import io
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from math import inf
from time import monotonic
from typing import Any

READ_BYTES = 64 << 10
"""Maximum number of bytes of a body to read in one call."""
HEADER_BYTES = 256 << 10
"""Number of bytes that a response can have for headers, trailers and chunk sizes, in addition to its body."""


class TooLarge(HTTPException):
    """Response that is larger than its request allows."""


class _Bounds:
    def __init__(self) -> None:
        self.deadline, self.left = 0.0, 0

    def get_seconds(self) -> float:
        seconds = self.deadline - monotonic()
        if seconds <= 0:
            raise TimeoutError("the deadline has passed")
        return seconds


class _BoundedReader(io.RawIOBase):
    def __init__(self, connection: socket.socket, bounds: _Bounds) -> None:
        self._connection, self._bounds = connection, bounds
        self._raw = connection.makefile("rb", buffering=0)  # the socket stays open as long as the response needs it

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._connection.settimeout(self._bounds.get_seconds())
        count = self._raw.readinto(buffer)
        self._bounds.left -= count or 0
        if self._bounds.left < 0:
            raise TooLarge("the response is too large")
        return int(count or 0)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _BoundedSocket:
    """Socket with the methods that ``http.client`` calls, within the bounds of a request."""

    def __init__(self, connection: socket.socket, bounds: _Bounds) -> None:
        self._connection, self._bounds = connection, bounds

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_BoundedReader(self._connection, self._bounds))

    def sendall(self, data: Any) -> None:
        self._connection.settimeout(self._bounds.get_seconds())
        self._connection.sendall(data)

    def close(self) -> None:
        self._connection.close()


class BoundedConnection:
    """Connection to an HTTP server, reused for one request after another."""

    def __init__(self, host: str, port: int | None, use_tls: bool, connect_seconds: float = inf) -> None:
        """Prepare a connection; the first request opens it.

        Args:
            host: name or address of the server.
            port: port of the server; None for the default port.
            use_tls: True for HTTPS, False for HTTP.
            connect_seconds: time limit of each attempt to connect, in seconds; the request's deadline applies, too.

        Raises:
            HTTPException: the host has a space or a control character.
        """
        self._bounds, self._connect_seconds = _Bounds(), connect_seconds
        self._connection = HTTPSConnection(host, port) if use_tls else HTTPConnection(host, port)

    @contextmanager
    def request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str] = {},
        *,
        deadline: float,
        max_bytes: int,
    ) -> Iterator[HTTPResponse]:
        """Send a request, and yield the response for the block to read.

        Redirections are not followed. The connection stays open for the next request if the server allows this and the
        block reads the response to its end.

        Args:
            method: GET or POST.
            path: path of the URL.
            body: JSON to send; None for a request without a body.
            headers: headers to send in addition to ``Content-Type``.
            deadline: value of ``time.monotonic`` at which the request must be over.
            max_bytes: maximum size of the response's body in bytes; ``HEADER_BYTES`` more can be received.

        Raises:
            TimeoutError, TooLarge, HTTPException, OSError, UnicodeError: as for ``exchange``.
        """
        self._bounds.deadline, self._bounds.left = deadline, max_bytes + HEADER_BYTES
        try:
            if self._connection.sock is None:
                self._open()
            sent = {"Content-Type": "application/json"} if body else {}
            self._connection.request(method, path, body, {**sent, **headers})
            with self._connection.getresponse() as response:
                yield response
                is_reusable = response.isclosed() and not response.will_close
        except BaseException:
            self.close()
            raise
        if not is_reusable:
            self.close()

    def exchange(
        self, method: str, path: str, body: bytes | None, *, deadline: float, max_bytes: int
    ) -> tuple[int, bytes, bool]:
        """Send a request, and return the whole response; arguments: as for ``request``.

        Returns:
            Status code, body, and True if the connection stays open for another request.

        Raises:
            TimeoutError: the deadline has passed.
            TooLarge: the response is larger than ``max_bytes``.
            HTTPException: the response is not HTTP or is incomplete, or the path has a space or a control character.
            OSError: the server cannot be reached, or the connection breaks.
            UnicodeError: the name of the server is not a valid host name, or the path is not ASCII.
        """
        with self.request(method, path, body, deadline=deadline, max_bytes=max_bytes) as response:
            data = read_body(response, max_bytes)
        return response.status, data, not response.will_close

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        self._connection.close()

    def _open(self) -> None:
        self._connection.timeout = min(self._bounds.get_seconds(), self._connect_seconds)
        self._connection.connect()
        connected: socket.socket | ssl.SSLSocket = self._connection.sock
        self._connection.sock = _BoundedSocket(connected, self._bounds)


def read_body(response: HTTPResponse, max_bytes: int) -> bytes:
    """Return the body of a response.

    The function reads in pieces, so that a false ``Content-Length`` does not reserve memory.

    Args:
        response: response of ``BoundedConnection.request``.
        max_bytes: maximum size of the body in bytes.

    Raises:
        TimeoutError: the deadline of the request has passed.
        TooLarge: the body is larger than ``max_bytes``.
        HTTPException: the body is shorter than its header says, or a part of it is not HTTP.
        OSError: the connection breaks.
    """
    body = bytearray()
    while part := response.read(READ_BYTES):
        body += part
        if len(body) > max_bytes:
            raise TooLarge("the response is too large")
    if response.length:  # http.client does not report a short body that is read in pieces
        raise HTTPException(f"the response ends {response.length} bytes early")
    return bytes(body)
