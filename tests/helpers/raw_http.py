"""HTTP requests as bytes on a socket, also such as no client would send."""

import re
import socket
import time
from contextlib import suppress

LEAVE, LAST_CHUNK = b"", b"\r\n0\r\n\r\n"


def exchange(port: int, *parts: bytes | float, timeout: float = 5, count: int = 1) -> bytes:
    """Send the parts and return the answer to ``count`` requests, or what comes before the connection is closed.

    A number among the parts is a pause in seconds, and ``LEAVE`` ends what is sent.
    """
    with socket.create_connection(("127.0.0.1", port), timeout) as connection:
        answer = b""
        try:
            for part in parts:
                if part == LEAVE:
                    connection.shutdown(socket.SHUT_WR)
                elif isinstance(part, float):
                    time.sleep(part)
                else:
                    connection.sendall(part)
        except OSError:
            pass  # the server has stopped to read
        with suppress(ConnectionError):
            while not has_answers(answer, count) and (data := connection.recv(1 << 16)):
                answer += data
        return answer


def has_answers(data: bytes, count: int) -> bool:
    """Return whether ``count`` whole responses have come."""
    for _ in range(count):
        head, found, data = data.partition(b"\r\n\r\n")
        if not found:
            return False
        length = re.search(rb"content-length: (\d+)", head)
        body, end, rest = (
            (data[: int(length[1])], True, data[int(length[1]) :]) if length else data.partition(LAST_CHUNK)
        )
        if not end or (length and len(body) < int(length[1])):
            return False
        data = rest
    return True


def read_status(answer: bytes) -> int | None:
    """Return the status of an answer; None if the connection was closed without one."""
    return int(answer.split(b" ", 2)[1]) if answer else None
