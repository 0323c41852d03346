"""HTTP application: its routes, errors and gate."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from ragqa import __version__
from ragqa.errors import BadInput, RagqaError
from ragqa.pipeline import Pipeline
from ragqa.serve.errors import BUG, UNAVAILABLE, make_error
from ragqa.serve.gate import Access, App, Gate, Limits
from ragqa.serve.request_limits import RefusedRequest
from ragqa.serve.routes import answers, chat, documents, health, retrieve
from ragqa.serve.work import Work

PAGE = Path(__file__).parent / "page"
"""Folder of the page: static files."""


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """Settings of the server."""

    access: Access = field(default_factory=Access)
    limits: Limits = field(default_factory=Limits)
    can_edit: bool = False
    """True if requests may add and delete documents."""
    log_questions: bool = False
    """True to write the questions into the access log."""


def make_app(
    indexes: Mapping[str, Pipeline],
    settings: ServeSettings | None = None,
    log: Callable[[str], object] = lambda line: None,
) -> App:
    """Make the ASGI application of some indexes.

    Args:
        indexes: pipelines by the names of the indexes; the first is the default.
        settings: settings of the server.
        log: function that writes a line of the access log.
    """
    settings = settings or ServeSettings()
    app = FastAPI(
        title="ragqa",
        version=__version__,
        description="Answers from your own documents, with sources.",
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        dependencies=[Depends(HTTPBearer(auto_error=False))],  # for OpenAPI; the gate checks the token
    )
    app.state.work, app.state.can_edit = Work(indexes), settings.can_edit
    app.state.needs_token = settings.access.token is not None
    for module in (answers, documents, chat, retrieve, health):
        app.include_router(module.router)
    if find_spec("mcp"):  # the extra `mcp`
        from ragqa.serve.mcp_endpoint import McpEndpoint

        app.router.routes.append(Route("/mcp", McpEndpoint(app.state.work)))
    app.mount("/", StaticFiles(directory=PAGE, html=True))
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)
    public = {"/", "/healthz", *(f"/{file.relative_to(PAGE).as_posix()}" for file in PAGE.rglob("*"))}
    access = replace(settings.access, public_paths=public)
    return Gate(app, access, settings.limits, log, log_questions=settings.log_questions)


def _reply(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse(make_error(status, message), status, headers)


async def _handle_bad_form(request: Request, error: Exception) -> JSONResponse:
    """Answer a request that does not have the form of its route; nothing of the request is repeated."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"][1:] if not isinstance(part, str) or part.isidentifier())
    if first["type"] == "json_invalid":
        return _reply(400, "the body is not JSON")
    if first["loc"] == ("body",):
        return _reply(400, "send a JSON object, with the header Content-Type: application/json")
    return _reply(400, f"{place[:100]}: {first['msg']}")


async def _handle_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    message = error.detail
    if error.status_code == 404:
        message = f"there is no such route for {request.method[:20]}: /openapi.json describes all"
    return _reply(error.status_code, message, error.headers)


async def _handle_refusal(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RefusedRequest)
    return _reply(error.status, str(error), {"Retry-After": "1"} if error.status in (409, 503) else None)


async def _handle_bad_input(request: Request, error: Exception) -> JSONResponse:
    return _reply(400, str(error))


async def _handle_failure(request: Request, error: Exception) -> JSONResponse:
    """Answer a failure of the index or of another server; the message, which can hold paths, goes into the log."""
    logging.getLogger("ragqa.serve").error("%s", error)
    return _reply(503, UNAVAILABLE, {"Retry-After": "1"})


async def _handle_bug(request: Request, error: Exception) -> JSONResponse:
    """Answer a request in which the server fails; the gate logs the error."""
    return _reply(500, BUG)


_HANDLERS: dict[type[Exception], Callable[[Request, Exception], Any]] = {
    RequestValidationError: _handle_bad_form,
    HTTPException: _handle_http_error,
    RefusedRequest: _handle_refusal,
    BadInput: _handle_bad_input,
    RagqaError: _handle_failure,
    OSError: _handle_failure,
    Exception: _handle_bug,
}
