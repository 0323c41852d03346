"""Types and functions that several routes share."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Depends, Query, Request, Response

from ragqa.pipeline import RetrievedQuestion, clean_question
from ragqa.retrieval.base import NoHits, get_missing_shards
from ragqa.serve.gate import get_entry
from ragqa.serve.work import Work
from ragqa.terminal import to_json
from ragqa.types import Hit, Source

IndexQuery = Annotated[str | None, Query(max_length=200, description="Name of an index; by default the first.")]


def get_work(request: Request) -> Work:
    """Return the application's ``Work``."""
    work: Work = request.app.state.work
    return work


WorkOfApp = Annotated[Work, Depends(get_work)]


def reply_json(row: Any, status: int = 200) -> Response:
    """Return a response with a value as JSON; control characters are escaped."""
    return Response(to_json(row), status, media_type="application/json")


def log_questions(request: Request, questions: Sequence[str]) -> None:
    """Add questions to the log entry of a request."""
    get_entry(request.scope).questions += questions


def place_to_row(hit: Hit) -> dict[str, Any]:
    """Return the passage of a hit as the JSON values of ``PassageReply``."""
    row = Source(hit, None, 0.0).to_dict()
    return {name: value for name, value in row.items() if name not in ("answer_start", "answer_end", "weight")}


def found_to_row(retrieved: RetrievedQuestion) -> dict[str, Any]:
    """Return a question with its passages as the JSON values of ``SearchReply``."""
    hits = retrieved.hits
    return {
        "question": retrieved.question,
        "asked": retrieved.asked if retrieved.asked != clean_question(retrieved.question) else None,
        "passages": [{**place_to_row(hit), "score": round(hit.score, 6)} for hit in hits],
        "reason": hits.reason if isinstance(hits, NoHits) else None,
        "missing": list(get_missing_shards(hits)),
    }
