"""HTTP connections of ``ragqa serve``."""

from typing import Any

from ragqa.serve.errors import make_error
from ragqa.serve.gate import HEADERS
from ragqa.serve.http_server import LimitedProtocol
from ragqa.serve.response import NOSNIFF


class JsonProtocol(LimitedProtocol):
    """Connection whose errors have the form and the headers of the application's errors."""

    extra_headers = tuple((name.decode(), value.decode()) for name, value in (NOSNIFF, *HEADERS))

    @staticmethod
    def make_error(message: str) -> dict[str, Any]:
        """Return the JSON object of an error about bytes that are not HTTP."""
        return make_error(400, message)
