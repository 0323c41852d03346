"""HTTP connection of a served index."""

from typing import Any

from ragqa.retrieval.remote import PROTOCOL
from ragqa.serve.http_server import LimitedProtocol


class SearchConnection(LimitedProtocol):
    """HTTP connection that reports errors in the protocol of ``ragqa.retrieval.remote``."""

    @staticmethod
    def make_error(message: str) -> dict[str, Any]:
        """Return the JSON object of the reply to a request that is not valid HTTP."""
        return {"ragqa": PROTOCOL, "error": message}
