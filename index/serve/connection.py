"""HTTP connections of a served index."""

from typing import Any

from ragqa.retrieval.remote import PROTOCOL
from ragqa.serve.http_server import LimitedProtocol


class SearchConnection(LimitedProtocol):
    """Connection whose errors have the form of ``ragqa.retrieval.remote``."""

    @staticmethod
    def make_error(message: str) -> dict[str, Any]:
        """Return the JSON object that answers bytes that are not HTTP."""
        return {"ragqa": PROTOCOL, "error": message}
