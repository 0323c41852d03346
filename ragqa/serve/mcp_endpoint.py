"""``POST /mcp``: the Model Context Protocol (MCP) over HTTP."""

import asyncio
from urllib.parse import parse_qs

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError
from pydantic_core import from_json
from starlette.responses import Response

from ragqa.serve.errors import NO_JSON
from ragqa.serve.mcp_tools import make_mcp_server
from ragqa.serve.request_limits import MAX_BYTES, Message, Receive, RefusedRequest, Scope, Send
from ragqa.serve.work import Work

NO_MESSAGE = "the body is not a message of JSON-RPC 2.0: send one object with jsonrpc, id, method and params"


class McpEndpoint:
    """ASGI application that answers requests of MCP clients in JSON, without sessions.

    ``?index=NAME`` chooses another index than the first. Hosts and tokens are checked by ``Gate``.
    """

    def __init__(self, work: Work) -> None:
        """Serve the indexes of ``work``; an index gets an MCP server at its first request."""
        self._work = work
        self._managers: dict[str, tuple[StreamableHTTPSessionManager, asyncio.Task[None]]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a POST request.

        Raises:
            RefusedRequest: there is no such index, or the Content-Type is not ``application/json``.
        """
        types = [value for name, value in scope["headers"] if name == b"content-type"]
        if len(types) != 1 or types[0].partition(b";")[0].strip().lower() != b"application/json":
            raise RefusedRequest(400, "send a JSON object, with the header Content-Type: application/json")
        names = parse_qs(scope["query_string"].decode("latin-1")).get("index")
        index = self._work.find_index(names[0] if names else None).name
        if index not in self._managers:
            self._managers[index] = await self._start(index)
        first = await receive()  # the gate sends the body in one part
        if error := _find_error(first.get("body", b"")):
            await Response(error.model_dump_json(exclude_unset=True), 400, media_type="application/json")(
                scope, receive, send
            )
            return
        parts = iter([first])

        async def receive_again() -> Message:
            return next(parts, None) or await receive()

        await self._managers[index][0].handle_request(scope, receive_again, send)

    async def _start(self, index: str) -> tuple[StreamableHTTPSessionManager, asyncio.Task[None]]:
        server = make_mcp_server(self._work, index)
        server.streamable_http_app(
            json_response=True,
            stateless_http=True,
            max_request_body_size=MAX_BYTES,
            # ``Gate`` checks hosts.
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        manager = server.session_manager
        has_started = asyncio.Event()

        async def run() -> None:
            async with manager.run():
                has_started.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(run())
        await has_started.wait()
        return manager, task


def _find_error(body: bytes) -> JSONRPCError | None:
    """Return the error for a body that is not a message of JSON-RPC; None if the body is one.

    The package ``mcp`` would answer with several lines about its classes.
    """
    try:
        jsonrpc_message_adapter.validate_python(from_json(body), by_name=False)
        return None
    except ValidationError:
        error = ErrorData(code=INVALID_REQUEST, message=NO_MESSAGE)
    except ValueError:
        error = ErrorData(code=PARSE_ERROR, message=NO_JSON)
    return JSONRPCError(jsonrpc="2.0", id=None, error=error)
