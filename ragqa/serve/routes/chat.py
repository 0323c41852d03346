"""``POST /v1/chat/completions`` and ``GET /v1/models`` for clients of OpenAI's API."""

import logging
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from time import time
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import StreamingResponse

from ragqa.chat_text import ChatMessage, StreamedMessage, format_message, read_message
from ragqa.conversation import make_standalone
from ragqa.errors import BadInput, RagqaError
from ragqa.follow_ups import Turn
from ragqa.pipeline import MAX_QUESTION_CHARS
from ragqa.serve.errors import UNAVAILABLE, make_error
from ragqa.serve.links import make_page_link
from ragqa.serve.routes.common import WorkOfApp, log_questions, reply_json
from ragqa.serve.schemas import MAX_TURNS, ChatBody, ChatMessageBody, describe_errors
from ragqa.serve.work import ServedIndex, Work
from ragqa.terminal import to_json
from ragqa.types import Answer

router = APIRouter(prefix="/v1", tags=["OpenAI"])
_STARTED = int(time())
"""Creation time of all models: the server's start, as Unix time in seconds."""


@dataclass(frozen=True)
class _Completion:
    model: str
    base_url: str
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time()))

    def make(self, kind: str, choices: list[dict[str, Any]], **rest: Any) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices, **rest}

    def make_annotations(self, message: ChatMessage) -> list[dict[str, Any]]:
        return [
            {
                "type": "url_citation",
                "url_citation": {
                    "start_index": citation.start,
                    "end_index": citation.end,
                    "title": citation.source.hit.passage.title or citation.source.format_place(),
                    "url": make_page_link(self.base_url, self.model, citation.source),
                },
            }
            for citation in message.citations
        ]


@router.get("/models", responses=describe_errors(401))
async def list_models(work: WorkOfApp) -> Response:
    """List the indexes as models."""
    return reply_json({"object": "list", "data": [_make_model(name) for name in work.indexes]})


@router.get("/models/{id:path}", responses=describe_errors(401, 404))
async def read_model(work: WorkOfApp, id: Annotated[str, Path(description="Name of an index.")]) -> Response:
    """Describe an index as a model."""
    return reply_json(_make_model(work.find_index(id).name))


def _make_model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": _STARTED, "owned_by": "ragqa"}


@router.post("/chat/completions", responses=describe_errors(400, 401, 404, 413, 429, 503, 504))
async def complete(body: ChatBody, request: Request, work: WorkOfApp) -> Response:
    """Answer the last user message; the messages before it are the conversation."""
    question, turns = read_conversation(body.messages)
    log_questions(request, [question])
    index = work.find_index(body.model)
    retrieved = await work.retrieve(index, make_standalone(question, turns), None, None)
    retrieved = replace(retrieved, question=question)
    completion = _Completion(index.name, str(request.base_url))
    if body.stream:
        usage = body.stream_options is not None and body.stream_options.include_usage
        chunks = _iter_chunks(completion, work, index, retrieved, usage)
        return StreamingResponse(chunks, media_type="text/event-stream")
    message = format_message(await work.answer(index, retrieved, None))
    choice = {
        "index": 0,
        "message": {
            "role": "assistant",
            "content": message.text,
            "refusal": None,
            "annotations": completion.make_annotations(message),
        },
        "finish_reason": "stop",
        "logprobs": None,
    }
    return reply_json(completion.make("chat.completion", [choice], usage=_USAGE))


_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
"""Usage of tokens: 0, because ragqa does not count them."""


def read_conversation(messages: list[ChatMessageBody]) -> tuple[str, list[Turn]]:
    """Return the text of the last user message, and at most ``MAX_TURNS`` turns before it.

    Raises:
        BadInput: the last user message is missing, empty or too long.
    """
    users = [number for number, message in enumerate(messages) if message.role == "user"]
    if not users or not (question := messages[users[-1]].read_text()).strip():
        raise BadInput("messages: the last message of the user, the question, has no text")
    if len(question) > MAX_QUESTION_CHARS:
        raise BadInput(f"messages: the last one, the question, may have at most {MAX_QUESTION_CHARS} characters")
    turns = []
    for number in users[:-1][-MAX_TURNS:]:
        earlier = messages[number].read_text()
        following = messages[number + 1]
        if earlier.strip() and following.role == "assistant":
            turns.append(read_message(earlier, following.read_text()))
    return question, turns


async def _iter_chunks(
    completion: _Completion, work: Work, index: ServedIndex, retrieved: Any, with_usage: bool
) -> AsyncIterator[str]:
    def format_chunk(delta: dict[str, Any], finish_reason: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
        return _format_data(completion.make("chat.completion.chunk", [choice]))

    yield format_chunk({"role": "assistant", "content": ""})
    message = StreamedMessage()
    try:
        async for piece in work.stream(index, retrieved, None):
            if isinstance(piece, Answer):
                rest = message.finish(piece)
                yield format_chunk({"content": rest.text, "annotations": completion.make_annotations(rest)})
            else:
                yield format_chunk({"content": message.add(piece)})
        yield format_chunk({}, "stop")
        if with_usage:
            yield _format_data(completion.make("chat.completion.chunk", [], usage=_USAGE))
    except BadInput as error:
        yield _format_data(make_error(400, str(error)))
    except (RagqaError, OSError) as error:
        logging.getLogger("ragqa.serve").error("%s", error)
        yield _format_data(make_error(503, UNAVAILABLE))
    yield "data: [DONE]\n\n"


def _format_data(row: dict[str, Any]) -> str:
    return f"data: {to_json(row)}\n\n"
