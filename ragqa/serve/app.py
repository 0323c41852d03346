"""HTTP application: routes, errors and gate."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route

from ragqa import __version__
from ragqa.errors import BadInput, Locked, RagqaError
from ragqa.pipeline import Pipeline
from ragqa.serve.errors import BUG, NO_JSON, UNAVAILABLE, describe_bad_value, make_error
from ragqa.serve.gate import Access, App, Gate, Limits
from ragqa.serve.request_limits import RefusedRequest
from ragqa.serve.routes import answers, chat, documents, health, retrieve
from ragqa.serve.schemas import UNKNOWN_KEY
from ragqa.serve.work import Work

PAGE = Path(__file__).parent / "page"
"""Folder with the static files of the page."""
_MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class _Application(FastAPI):
    """Application whose OpenAPI description has no status 422, since bad requests get 400 here."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI description of the routes."""
        if not self.openapi_schema:
            description = super().openapi()
            for operations in description["paths"].values():
                for operation in operations.values():
                    operation["responses"].pop("422", None)
            for name in ("HTTPValidationError", "ValidationError"):
                description["components"]["schemas"].pop(name, None)
        assert self.openapi_schema is not None
        return self.openapi_schema


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """Settings of the server."""

    access: Access = field(default_factory=Access)
    limits: Limits = field(default_factory=Limits)
    can_edit: bool = False
    """True if requests may add and delete documents."""
    file_folders: tuple[Path, ...] = ()
    """Folders whose PDF files may be sent, if they are documents of an index; absolute, without symbolic links."""
    log_questions: bool = False
    """True to write the questions into the access log."""


def make_app(
    indexes: Mapping[str, Pipeline],
    settings: ServeSettings | None = None,
    log: Callable[[str], object] = lambda line: None,
) -> App:
    """Return the ASGI application that serves indexes, behind a ``Gate``.

    Args:
        indexes: pipelines by the names of their indexes, at least one; the first is the default.
        settings: settings of the server; None for the defaults.
        log: function that writes a line of the access log.
    """
    settings = settings or ServeSettings()
    app = _Application(
        title="ragqa",
        version=__version__,
        description="Answers from your own documents, with sources.",
        docs_url=None,  # these pages load scripts from other servers
        redoc_url=None,
        redirect_slashes=False,
        dependencies=[Depends(HTTPBearer(auto_error=False))],  # for OpenAPI; the gate checks the token
    )
    app.state.work, app.state.can_edit = Work(indexes), settings.can_edit
    app.state.file_folders = settings.file_folders
    app.state.needs_token = settings.access.token is not None
    for module in (answers, documents, chat, retrieve, health):
        app.include_router(module.router)
    if find_spec("mcp"):  # the extra `mcp`
        from ragqa.serve.mcp_endpoint import McpEndpoint

        app.router.routes.append(Route("/mcp", McpEndpoint(app.state.work), methods=["POST"]))
    page = {f"/{file.name}": file for file in PAGE.iterdir()}
    page["/"] = page["/index.html"]
    # Files mounted at / would also match wrong methods of the routes above, which must get the status 405.
    app.router.routes += [Route(path, _make_file_endpoint(file)) for path, file in page.items()]
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)
    access = replace(settings.access, public_paths={"/healthz", *page})
    return Gate(app, access, settings.limits, log, log_questions=settings.log_questions)


def _make_file_endpoint(file: Path) -> Callable[[Request], Awaitable[Response]]:
    content, media_type = file.read_bytes(), _MEDIA_TYPES[file.suffix]

    async def send_file(request: Request) -> Response:
        return Response(content, media_type=media_type)

    return send_file


def _reply(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse(make_error(status, message), status, headers)


async def _handle_bad_form(request: Request, error: Exception) -> JSONResponse:
    """Answer a request that does not have the form of its route, without repeating its values."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return _reply(400, NO_JSON)
    if first["loc"] == ("body",) and first["type"] != UNKNOWN_KEY:
        return _reply(400, "send a JSON object, with the header Content-Type: application/json")
    return _reply(400, describe_bad_value(first["loc"][1:], first["msg"]))


async def _handle_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    message, headers = error.detail, dict(error.headers or {})
    if error.status_code == 404:
        message = "there is no such route: /openapi.json describes all"
    elif error.status_code == 400:  # FastAPI cannot read the body: it is nested too deeply, or is not UTF-8
        message = NO_JSON
    elif error.status_code == 405:
        headers["Allow"] = _list_methods(request)
        message = f"use another method for this route: {headers['Allow']}"
    return _reply(error.status_code, message, headers)


def _list_methods(request: Request) -> str:
    """Return the methods of all routes with the path of a request, for the header Allow."""
    scopes = {method: {**request.scope, "method": method} for method in ("DELETE", "GET", "HEAD", "POST")}
    routes = request.app.routes
    return ", ".join(
        method for method, scope in scopes.items() if any(route.matches(scope)[0] is Match.FULL for route in routes)
    )


async def _handle_refusal(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RefusedRequest)
    return _reply(error.status, str(error), {"Retry-After": "1"} if error.status == 503 else None)


async def _handle_lock(request: Request, error: Exception) -> JSONResponse:
    return _reply(409, "another process is changing the index: try again later", {"Retry-After": "1"})


async def _handle_bad_input(request: Request, error: Exception) -> JSONResponse:
    return _reply(400, str(error))


async def _handle_failure(request: Request, error: Exception) -> JSONResponse:
    """Answer a failure of the index or of another server.

    Only the log gets the message, since it can name paths.
    """
    logging.getLogger("ragqa.serve").error("%s", error)
    return _reply(503, UNAVAILABLE, {"Retry-After": "1"})


async def _handle_bug(request: Request, error: Exception) -> JSONResponse:
    # The framework raises the error again, and the gate logs it.
    return _reply(500, BUG)


_HANDLERS: dict[type[Exception], Callable[[Request, Exception], Any]] = {
    RequestValidationError: _handle_bad_form,
    HTTPException: _handle_http_error,
    RefusedRequest: _handle_refusal,
    Locked: _handle_lock,
    BadInput: _handle_bad_input,
    RagqaError: _handle_failure,
    OSError: _handle_failure,
    Exception: _handle_bug,
}
