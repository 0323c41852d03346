"""``GET /healthz``."""

import asyncio

from fastapi import APIRouter, Request, Response

from ragqa import __version__
from ragqa.serve.gate import get_entry
from ragqa.serve.routes.common import WorkOfApp, reply_json
from ragqa.serve.schemas import HealthReply, describe_errors
from ragqa.serve.work import ServedIndex

router = APIRouter(tags=["server"])


@router.get("/healthz", responses={200: {"model": HealthReply}, **describe_errors(503)})
async def check_health(request: Request, work: WorkOfApp) -> Response:
    """Describe the server and its indexes; without the token, only say that the server runs."""
    row = {"status": "ok", "needs_token": request.app.state.needs_token}
    if get_entry(request.scope).has_token:
        indexes = await asyncio.to_thread(lambda: [_describe(index) for index in work.indexes.values()])
        row |= {"version": __version__, "can_edit": request.app.state.can_edit, "indexes": indexes}
    return reply_json(row)


def _describe(index: ServedIndex) -> dict[str, object]:
    about = index.pipeline.describe()
    return {
        "name": index.name,
        "passages": index.passages,
        "retriever": about["retriever"],
        "reader": about["reader_kind"],
    }
