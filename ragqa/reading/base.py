"""Interfaces of readers, and settings of answer generation."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

from ragqa.types import Answer, Hit

DEFAULT_PASSAGES = 10
"""Default number of passages per question; more take longer and gain little on SQuAD."""

NO_PASSAGES = "no passages were found"
ONLY_ENGLISH = "only English is read well"
"""Reason that every reader gives when it declines a question without passages."""


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """Settings with which a generator decodes answers."""

    beams: int = 1
    """Number of beams of beam search; 1 is greedy search."""
    fast: bool = False
    """True for fast decoding of RAG-Sequence (Lewis et al. 2020, section 2.5).

    It scores a candidate only under the passages whose search found the candidate.
    """
    max_answer: int | None = None
    """Maximum answer length in tokens, including the end; None for the length used in training."""
    min_answer: int = 0
    """Minimum answer length in tokens."""

    @classmethod
    def from_options(cls, **options: int | bool | None) -> Self | None:
        """Make settings from command-line options, or return None if no option is set."""
        values = {name: value for name, value in options.items() if value is not None}
        return cls(**values) if values else None  # type: ignore[arg-type]


@dataclass(frozen=True)
class RetrieverIdentity:
    """Identity of the retriever that scores the hits of a reader."""

    kind: str
    """Name of the retriever, for messages."""
    encoder: str | None
    """Fingerprint of the encoder whose inner products are the scores; None for other scores."""


class Reader(Protocol):
    """Reader that answers questions from their hits, or declines."""

    kind: str
    """Key of ``ragqa.reading.registry.READERS``."""
    fingerprint: str
    """Digest of everything that determines answers and confidences.

    The kind is part of it if one directory can be read as several kinds.
    """

    @property
    def threshold(self) -> float:
        """Confidence below which answers are declined by default, from 0 to 1."""
        ...

    @property
    def is_closed_book(self) -> bool:
        """True for a reader that answers from memory, without passages."""
        ...

    def read(self, questions: list[str], hits: list[list[Hit]]) -> list[Answer]:
        """Return an answer for each question; only closed-book readers answer without hits."""
        ...


@runtime_checkable
class AnswerGenerator(Protocol):
    """Reader that generates its answers and can stream them."""

    decoding: Decoding
    """Settings in use; no field is None."""
    warning: str | None
    """Warning for the user about how the reader is used, or None: that the retriever is not the one used in training,
    or that the confidence is not calibrated."""

    @property
    def passages(self) -> int:
        """Number of passages per question in training."""
        ...

    @property
    def can_stream(self) -> bool:
        """True if the reader can stream answers with its settings."""
        ...

    def stream(self, question: str, hits: list[Hit]) -> Iterator[str | Answer]:
        """Yield the text of the answer in pieces, and at the end the complete ``Answer``."""
        ...


@runtime_checkable
class LatinReader(Protocol):
    """Reader that may read only questions in Latin script."""

    def can_read(self, question: str) -> bool:
        """Return True if the model can read the script of the question."""
        ...


def get_default_passages(reader: object) -> int:
    """Return the default number of passages per question of a reader."""
    return reader.passages if isinstance(reader, AnswerGenerator) else DEFAULT_PASSAGES
