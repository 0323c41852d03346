"""Interfaces of readers, and how an answer is decoded."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

from ragqa.reading.registry import ReaderKind
from ragqa.types import Answer, Hit

DEFAULT_PASSAGES = 10
"""Passages to read for a question by default: more cost time and, on SQuAD, gained little."""

NO_PASSAGES = "no passages were found"
"""Reason of every reader for declining a question without passages."""


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """Settings with which a generator searches for an answer."""

    beams: int = 1
    """Number of beams of beam search; 1 is greedy search."""
    fast: bool = False
    """For RAG-Sequence: score a candidate only under the passages whose search found it (Lewis et al. 2020, section
    2.5), and not under all of them."""
    max_answer: int | None = None
    """Maximum length of an answer in tokens, its end included; None for the length used in training."""
    min_answer: int = 0
    """Minimum length of an answer in tokens."""

    @classmethod
    def from_options(cls, **options: int | bool | None) -> Self | None:
        """Make settings of command-line options; None if all of them are None."""
        given = {name: value for name, value in options.items() if value is not None}
        return cls(**given) if given else None  # type: ignore[arg-type]


@dataclass(frozen=True)
class RetrieverIdentity:
    """The retriever whose scores come with the hits that a reader reads."""

    kind: str
    """Name of the retriever, for messages."""
    encoder: str | None
    """Fingerprint of the encoder whose inner products the scores are; None for scores of any other sort."""


class Reader(Protocol):
    """Reads the hits of each question and answers it, or declines."""

    kind: ReaderKind
    fingerprint: str
    """Digest of everything that decides about answers and confidences."""

    @property
    def threshold(self) -> float:
        """Confidence below which answers are declined by default, from 0 to 1."""
        ...

    @property
    def is_closed_book(self) -> bool:
        """True for a reader that answers from memory, without passages."""
        ...

    def read(self, questions: list[str], hits: list[list[Hit]]) -> list[Answer]:
        """Return one answer for each question; without hits a question is declined, except by a closed book."""
        ...


@runtime_checkable
class AnswerGenerator(Protocol):
    """A reader that writes its answers and may stream them."""

    decoding: Decoding
    """Settings in use, with no field None."""
    prior_warning: str | None
    """A line for the user if the scores of the hits are not those that it was trained with."""

    @property
    def passages(self) -> int:
        """Number of passages for a question in training."""
        ...

    @property
    def can_stream(self) -> bool:
        """True if, with its settings, it can show an answer while it writes it."""
        ...

    def stream(self, question: str, hits: list[Hit]) -> Iterator[str | Answer]:
        """Yield pieces of the answer, which joined are its text, then the answer."""
        ...


def get_default_passages(reader: object) -> int:
    """Return how many passages a reader reads for a question by default."""
    return reader.passages if isinstance(reader, AnswerGenerator) else DEFAULT_PASSAGES
