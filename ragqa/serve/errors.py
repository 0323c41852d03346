"""Errors as JSON in one shape: ``{"error": {"message": …, "type": …}}``."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from ragqa.terminal import to_one_line

BUG = "the server has a bug; its log has more"
NO_JSON = "the body is not JSON"
UNAVAILABLE = "the index or its reader cannot be used now; the server's log has more"
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    421: "wrong_host_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def make_error(status: int, message: str) -> dict[str, Any]:
    """Return an error as a JSON object; an empty message becomes the phrase of the HTTP status."""
    text = to_one_line(message) or HTTPStatus(status).phrase
    return {"error": {"message": text, "type": _TYPES.get(status, "server_error")}}


def describe_bad_value(place: Sequence[str | int], message: str) -> str:
    """Return pydantic's message about a value, after the place of the value.

    Args:
        place: keys and list positions that lead to the value. Keys that are not identifiers are left out, and at most
            100 characters are kept, since clients choose the keys.
        message: message of pydantic.
    """
    names = ".".join(str(part) for part in place if not isinstance(part, str) or part.isidentifier())[:100]
    return f"{names}: {message}" if names else message
