"""Checks of a search request before its first search."""

import json

from ragqa.errors import BadInput
from ragqa.pipeline import clean_question
from ragqa.retrieval.base import DEFAULT_RESULTS
from ragqa.serve.request_limits import MAX_BYTES, MAX_PASSAGES

MAX_QUESTIONS = 1024
"""Maximum number of questions in a request."""
EXAMPLE = '{"questions": ["Who …?"], "k": 10}'


def parse_request(body: bytes, max_k: int) -> tuple[list[str], int]:
    """Return the questions of a search request, cleaned by ``clean_question``, and k.

    Args:
        body: body of the request.
        max_k: maximum number of passages per question.

    Raises:
        BadInput: the body is not a request, a question is empty, or a limit is exceeded.
    """
    if len(body) > MAX_BYTES:
        raise BadInput(f"the request has {len(body)} bytes: at most {MAX_BYTES} are read")
    try:
        row = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the request is not JSON: send {EXAMPLE}") from error
    questions, k = (row.get("questions"), row.get("k", DEFAULT_RESULTS)) if isinstance(row, dict) else (None, None)
    if not isinstance(questions, list) or not questions or not all(isinstance(text, str) for text in questions):
        raise BadInput(f"questions must be a list of texts: send {EXAMPLE}")
    if len(questions) > MAX_QUESTIONS:
        raise BadInput(f"{len(questions)} questions: at most {MAX_QUESTIONS} can be asked at once")
    if type(k) is not int or not 1 <= k <= max_k:
        raise BadInput(f"k must be a whole number from 1 to {max_k}")
    if len(questions) > 1 and len(questions) * k > MAX_PASSAGES:
        work = f"{len(questions)} questions with k = {k} are {len(questions) * k} passages"
        raise BadInput(f"{work}: at most {MAX_PASSAGES} can be asked for at once")
    return [clean_question(question) for question in questions], k
