"""The values that pass between the parts: all frozen, none knows how it was made."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Passage:
    """A block of a document: what is indexed, found and read.

    ``text`` is ``source[start:end]`` of the document at ``path``: characters, as decoded.
    """

    id: int
    """Row in the passage store, 0 … N - 1."""
    document: str
    """The document's own id: the record's ``id``, or the file's path."""
    title: str
    text: str
    path: str
    """File the document was read from; for records, the file that holds them."""
    start: int
    end: int

    @property
    def titled(self) -> str:
        """What retrieval indexes: the title, then the text."""
        return f"{self.title}\n{self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and what would answer it where that is known."""

    text: str
    answers: tuple[str, ...] = ()
    """Any of them is right; none: nothing in the corpus answers it."""
    id: str = ""
    documents: tuple[str, ...] = ()
    """Ids, or ends of the paths, of the documents where the answer stands."""
    passages: tuple[str, ...] = ()
    """Texts of the passages where the answer stands."""
    titles: tuple[str, ...] = field(default=(), compare=False)
    """Of these passages; none where they are not known. They make no other question of it."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A retrieved passage and its score; higher is better, comparable within one search only."""

    passage: Passage
    score: float


@dataclass(frozen=True, slots=True)
class Span:
    """Characters ``start … end`` of a passage's text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Source:
    """A passage an answer stands on: where in it, and how much of the answer's weight it bears.

    Of a generated answer the weight is the passage's posterior p(z|x,y), and there is a span where it stands there.
    """

    hit: Hit
    span: Span | None
    weight: float


@dataclass(frozen=True, slots=True)
class Alternative:
    """A runner-up."""

    text: str
    confidence: float
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one question, or the refusal to give one.

    ``text`` is None where the question is declined; ``sources`` then are the nearest passages.
    ``score`` is the reader's own number, ``confidence`` the calibrated probability of being right.
    """

    question: str
    text: str | None
    score: float
    confidence: float
    sources: tuple[Source, ...] = ()
    alternatives: tuple[Alternative, ...] = field(default=())
    missing: tuple[str, ...] = ()
    """Shards of a served index that did not answer: the answer may stand there."""
    supported: bool | None = True
    """Whether the answer stands in one of the passages that were read; a generated one need not. None without one."""
    reason: str | None = None
    """Why there is no answer, or why it is not supported, in a few words."""
    note: str | None = None
    """What else is to be known of it, such as that the question was cut."""
