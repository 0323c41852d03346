"""``POST /ask`` and ``GET /search``."""

import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from ragqa.conversation import make_standalone
from ragqa.errors import BadInput, RagqaError
from ragqa.pipeline import MAX_QUESTION_CHARS
from ragqa.retrieval.base import DEFAULT_RESULTS
from ragqa.serve.errors import UNAVAILABLE, make_error
from ragqa.serve.routes.common import IndexQuery, WorkOfApp, found_to_row, log_questions, reply_json
from ragqa.serve.schemas import MAX_FOUND, AnswerReply, AskBody, FilterBody, Pattern, SearchReply, describe_errors
from ragqa.serve.work import ServedIndex, Work
from ragqa.terminal import to_json
from ragqa.types import Answer

router = APIRouter(tags=["answers"])


@router.post("/ask", responses={200: {"model": AnswerReply}, **describe_errors(400, 401, 404, 413, 429, 503, 504)})
async def ask(body: AskBody, request: Request, work: WorkOfApp) -> Response:
    """Answer a question.

    With ``stream``, the response is the events ``passages``, ``text`` (generators only) and ``answer``. An error after
    the first event is the event ``error``.
    """
    log_questions(request, [body.question])
    index = work.find_index(body.index)
    standalone = make_standalone(body.question, [turn.to_turn() for turn in body.turns])
    retrieved = await work.retrieve(index, standalone, body.k, body.filter.to_filter())
    retrieved = replace(retrieved, question=body.question)
    if body.stream:
        events = _iter_events(work, index, retrieved, body.min_confidence)
        return StreamingResponse(events, media_type="text/event-stream")
    return reply_json((await work.answer(index, retrieved, body.min_confidence)).to_dict())


async def _iter_events(
    work: Work, index: ServedIndex, retrieved: Any, min_confidence: float | None
) -> AsyncIterator[str]:
    yield _format_event("passages", found_to_row(retrieved))
    try:
        async for piece in work.stream(index, retrieved, min_confidence):
            if isinstance(piece, Answer):
                yield _format_event("answer", piece.to_dict())
            else:
                yield _format_event("text", {"text": piece})
    except BadInput as error:
        yield _format_event("error", make_error(400, str(error)))
    except (RagqaError, OSError) as error:
        logging.getLogger("ragqa.serve").error("%s", error)
        yield _format_event("error", make_error(503, UNAVAILABLE))


def _format_event(name: str, row: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {to_json(row)}\n\n"


@router.get("/search", responses={200: {"model": SearchReply}, **describe_errors(400, 401, 404, 429, 503)})
async def search(
    request: Request,
    work: WorkOfApp,
    q: Annotated[str, Query(min_length=1, max_length=MAX_QUESTION_CHARS, description="Question or words.")],
    index: IndexQuery = None,
    k: Annotated[int, Query(ge=1, le=MAX_FOUND, description="Number of passages.")] = DEFAULT_RESULTS,
    path: Annotated[list[Pattern] | None, Query(max_length=20, description="Patterns of files and folders.")] = None,
    tag: Annotated[list[Pattern] | None, Query(max_length=20, description="Tags that a document must have.")] = None,
    since: Annotated[str, Query(max_length=20, description="First date: 2024-01-31, 2024, or 7d for a week ago.")] = "",
) -> Response:
    """Find the passages nearest to a question."""
    log_questions(request, [q])
    wanted = FilterBody(paths=path or [], tags=tag or [], since=since).to_filter()
    return reply_json(found_to_row(await work.retrieve(work.find_index(index), q, k, wanted)))
