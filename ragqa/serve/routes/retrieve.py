"""``POST /retrieve``: protocol by which Search-R1's trainer calls a retriever."""

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from ragqa.errors import BadInput
from ragqa.pipeline import clean_question
from ragqa.serve.request_limits import MAX_PASSAGES, split_questions
from ragqa.serve.routes.common import IndexQuery, WorkOfApp, log_questions
from ragqa.serve.schemas import RetrieveBody, describe_errors
from ragqa.serve.work import ServedIndex, Work
from ragqa.types import Hit

DEFAULT_TOPK = 3
"""Default number of passages per query, as in Search-R1's server."""
router = APIRouter(tags=["trainers"])


@router.post("/retrieve", responses=describe_errors(400, 401, 404, 413, 429, 503))
async def retrieve(body: RetrieveBody, request: Request, work: WorkOfApp, index: IndexQuery = None) -> Response:
    """Return the passages of many queries, as the server of Search-R1 does.

    An empty query has no passages.
    """
    log_questions(request, body.queries)
    k = body.topk or DEFAULT_TOPK
    if len(body.queries) > 1 and len(body.queries) * k > MAX_PASSAGES:
        total = f"{len(body.queries)} queries with topk = {k} are {len(body.queries) * k} passages"
        raise BadInput(f"{total}: at most {MAX_PASSAGES} can be asked for at once")
    client = (request.scope.get("client") or ("",))[0]
    parts = _iter_parts(work, work.find_index(index), body, k, client)
    first = await anext(parts)  # an error before the response begins can still set its status
    return StreamingResponse(_chain(first, parts), media_type="application/json")


async def _chain(first: str, rest: AsyncIterator[str]) -> AsyncIterator[str]:
    yield first
    async for part in rest:
        yield part


async def _iter_parts(work: Work, index: ServedIndex, body: RetrieveBody, k: int, client: str) -> AsyncIterator[str]:
    """Yield the response in parts, so that a large request takes turns and needs little memory."""
    comma = '{"result": ['
    for piece in split_questions(body.queries, k) if body.queries else []:
        asked = [clean_question(query) for query in piece if _has_words(query)]
        found = iter(await work.search(index, asked, k, client) if asked else [])
        for query in piece:
            hits = next(found) if _has_words(query) else []
            yield comma + json.dumps([_to_row(hit, body.return_scores) for hit in hits])
            comma = ", "
    yield ("" if body.queries else comma) + "]}"


def _has_words(query: str) -> bool:
    return any(character.isprintable() and not character.isspace() for character in query)


def _to_row(hit: Hit, with_score: bool) -> dict[str, Any]:
    """Return a hit as Search-R1 reads it: the first line of its contents is the quoted title."""
    passage = hit.passage
    # The first passage of a document has the document's id, since papers name the passages of Wikipedia, which are
    # documents of one passage each, by those ids.
    identifier = f"{passage.document}#{passage.start}" if passage.start else passage.document
    title = " ".join(passage.context.split())
    document = {"id": identifier, "contents": f'"{title}"\n{passage.text}'}
    return {"document": document, "score": hit.score} if with_score else document
