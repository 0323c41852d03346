"""Schemas of requests and replies, for validation and for OpenAPI."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from ragqa.errors import BadInput
from ragqa.follow_ups import Turn
from ragqa.pipeline import MAX_QUESTION_CHARS
from ragqa.retrieval.filters import PassageFilter

MAX_READ = 100
"""Maximum number of passages to read for a question."""
MAX_FOUND = 1000
"""Maximum number of passages to find for a question."""
MAX_QUERIES = 10_000
"""Maximum number of queries in a request to ``POST /retrieve``."""
MAX_TURNS = 20
"""Maximum number of earlier turns: ``POST /ask`` refuses more, and a chat completion ignores the oldest."""
MAX_TEXT = 100_000
"""Maximum length in characters of an earlier answer, a title, or a chat message that is one string."""
_STRICT = ConfigDict(strict=True, extra="forbid")

QuestionText = Annotated[str, Field(min_length=1, max_length=MAX_QUESTION_CHARS)]
Pattern = Annotated[str, Field(min_length=1, max_length=300)]
IndexName = Annotated[str | None, Field(max_length=200, description="Name of an index; by default the first.")]


UNKNOWN_KEY = "unknown_key"
"""Type of the validation error for an unknown key."""


class StrictBody(BaseModel):
    """Object in a request, which must not have unknown keys."""

    model_config = _STRICT

    @model_validator(mode="before")
    @classmethod
    def check_keys(cls, values: Any) -> Any:
        """Return the values of an object unchanged, or refuse it because of its first unknown key.

        Pydantic itself would list all unknown keys, which takes minutes for a large object.

        Raises:
            PydanticCustomError: a key is unknown.
        """
        if isinstance(values, dict):
            for key in values:
                if key not in cls.model_fields:
                    raise PydanticCustomError(UNKNOWN_KEY, "there is no key {key}", {"key": repr(key[:40])})
        return values


class FilterBody(StrictBody):
    """Filter for the documents to search; empty fields allow all documents.

    A document must match one of ``paths``, have all ``tags``, and be no older than ``since``.
    """

    paths: list[Pattern] = Field(
        default=[], max_length=20, description="Patterns of files and folders, one of which must match: work/*.pdf"
    )
    tags: list[Pattern] = Field(default=[], max_length=20, description="Tags that a document must all have.")
    since: str = Field(default="", max_length=20, description="First date: 2024-01-31, 2024, or 7d for a week ago.")

    def to_filter(self) -> PassageFilter | None:
        """Return the filter; None if it allows all documents.

        Raises:
            BadInput: a value is not valid.
        """
        if any(path.startswith(("~", "./", "../")) or path in (".", "..") for path in self.paths):
            raise BadInput("paths: begin a pattern with the name of a file or folder, or with /")
        return PassageFilter(tuple(self.paths), tuple(self.tags), self.since) or None


class TurnBody(StrictBody):
    """Earlier question of a conversation, with its answer."""

    question: QuestionText
    answer: Annotated[str | None, Field(max_length=MAX_TEXT)] = None
    title: Annotated[str, Field(max_length=MAX_TEXT, description="Title of the first source.")] = ""

    def to_turn(self) -> Turn:
        """Return the turn for ``make_standalone``."""
        return Turn(self.question, self.answer, self.title)


class AskBody(StrictBody):
    """Question for ``POST /ask``."""

    question: QuestionText
    index: IndexName = None
    k: Annotated[int | None, Field(ge=1, le=MAX_READ, description="Number of passages to read.")] = None
    min_confidence: Annotated[float | None, Field(ge=0, le=1, description="Decline below this confidence.")] = None
    filter: FilterBody = FilterBody()
    turns: Annotated[
        list[TurnBody], Field(max_length=MAX_TURNS, description="Earlier turns, to which the question can refer.")
    ] = []
    stream: Annotated[bool, Field(description="Send events: first the passages, then the answer.")] = False


class PlaceReply(BaseModel):
    """Place in a file: numbers from 1, and the name of the sheet; null where not applicable."""

    model_config = _STRICT
    line: int | None
    row: int | None
    item: int | None
    page: int | None
    slide: int | None
    cell: int | None
    sheet: str | None


class PassageReply(PlaceReply):
    """Passage with its place; ``start`` and ``end`` are offsets in the document, in characters."""

    title: str
    headings: list[str]
    path: str
    place: str
    start: int
    end: int
    text: str
    document: str


class SourceReply(PassageReply):
    """Passage that supports an answer, or one of the nearest passages of a declined question."""

    answer_start: int | None
    answer_end: int | None
    weight: float


class AlternativeReply(BaseModel):
    """Less probable answer, or the best guess for a declined question."""

    model_config = _STRICT
    answer: str
    confidence: float


class StatementReply(BaseModel):
    """Sentence of a generated answer; ``citations`` are numbers of the sources, from 1."""

    model_config = _STRICT
    text: str
    start: int
    end: int
    citations: list[int]
    supported: bool
    reason: str | None


class AnswerReply(BaseModel):
    """Answer to a question, in the form of ``ragqa ask --json``."""

    model_config = _STRICT
    question: str
    answer: str | None
    confidence: float
    supported: bool | None
    reason: str | None
    note: str | None
    asked: str | None
    sources: list[SourceReply]
    alternatives: list[AlternativeReply]
    missing: list[str]
    statements: list[StatementReply]


class FoundReply(PassageReply):
    """Passage that a search found."""

    score: float


class SearchReply(BaseModel):
    """Passages found for a question, best first."""

    model_config = _STRICT
    question: str
    asked: str | None
    passages: list[FoundReply]
    reason: str | None
    missing: list[str]


class DocumentReply(BaseModel):
    """Document of an index."""

    model_config = _STRICT
    id: str
    path: str
    title: str
    tags: list[str]
    date: str | None
    passages: int


class DocumentsReply(BaseModel):
    """Part of the list of documents; ``first`` is the number of its first one, from 0."""

    model_config = _STRICT
    index: str
    total: int
    first: int
    documents: list[DocumentReply]


class PartReply(PassageReply):
    """Passage of a document; ``marks`` are the spans to mark, as offsets in the passage's text."""

    marks: list[tuple[int, int]]


class DocumentTextReply(DocumentReply):
    """Document with consecutive passages; ``first`` is the number of the first one, from 0."""

    index: str
    file: str | None
    first: int
    parts: list[PartReply]


class ChangeReply(BaseModel):
    """Result of a change: numbers of documents by outcome, and of passages in the index.

    ``seconds`` is the duration, and ``document`` the path of an added file.
    """

    model_config = _STRICT
    added: int
    replaced: int
    unchanged: int
    deleted: int
    passages: int
    seconds: float
    document: str | None


class IndexReply(BaseModel):
    """Index that is served."""

    model_config = _STRICT
    name: str
    passages: int | None
    retriever: str
    reader: str


class HealthReply(BaseModel):
    """State of the server; without a valid token, only ``status`` and ``needs_token``."""

    model_config = _STRICT
    status: Literal["ok"]
    needs_token: bool
    version: str | None = None
    can_edit: bool | None = None
    indexes: list[IndexReply] | None = None


class ErrorDetail(BaseModel):
    """Error message of one line, and type of the error."""

    model_config = _STRICT
    message: str
    type: str


class ErrorReply(BaseModel):
    """Reply to a request that failed."""

    model_config = _STRICT
    error: ErrorDetail


class RetrieveBody(BaseModel):
    """Queries for ``POST /retrieve``, as Search-R1's trainer sends them."""

    model_config = ConfigDict(strict=True, extra="ignore")
    queries: Annotated[list[str], Field(max_length=MAX_QUERIES, fail_fast=True)]
    topk: Annotated[int | None, Field(ge=1, le=MAX_FOUND)] = None
    return_scores: bool = False


class ContentPart(BaseModel):
    """Part of a chat message; only text parts are read."""

    model_config = ConfigDict(extra="ignore")
    type: str
    text: str | None = None


class ChatMessageBody(BaseModel):
    """Chat message."""

    model_config = ConfigDict(extra="ignore")
    role: str
    content: (
        Annotated[str, Field(max_length=MAX_TEXT)]
        | Annotated[list[ContentPart], Field(max_length=100, fail_fast=True)]
        | None
    ) = None

    def read_text(self) -> str:
        """Return the text of the message; the texts of several parts are joined by newlines."""
        if isinstance(self.content, list):
            return "\n".join(part.text or "" for part in self.content if part.type in ("text", "input_text"))
        return self.content or ""


class StreamOptions(BaseModel):
    """Options of a streamed completion."""

    model_config = ConfigDict(extra="ignore")
    include_usage: bool = False


class ChatBody(BaseModel):
    """Request for a chat completion; other fields of OpenAI's API are ignored."""

    model_config = ConfigDict(extra="ignore")
    model: Annotated[str, Field(max_length=200, description="Name of an index.")]
    messages: Annotated[list[ChatMessageBody], Field(min_length=1, max_length=1000, fail_fast=True)]
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Annotated[int | None, Field(ge=1, le=1)] = None


def describe_errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the error replies of a route by status, for OpenAPI."""
    return {status: {"model": ErrorReply} for status in statuses}
